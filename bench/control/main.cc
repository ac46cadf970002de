// Load on a coordinator, by real processes and the real protocol. `control_bench submit`,
// `control_bench kills` …; see --help.
#include <string>

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include "bench/control/daemon.h"
#include "bench/control/fuzz.h"
#include "bench/control/scale.h"
#include "bench/control/streams.h"
#include "bench/control/submit.h"

int main(int argc, char** argv) {
  CLI::App app("Measures and checks a Tundish coordinator under load.", "control_bench");
  app.require_subcommand(1);
  std::string tundishd = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tundishd";
  std::string scratch = std::filesystem::temp_directory_path();
  unsigned seed = 1;
  app.add_option("--tundishd", tundishd, "Program to load")->capture_default_str();
  app.add_option("--scratch", scratch, "Folder on the disk to use")->capture_default_str();
  app.add_option("--seed", seed, "Of everything random")->capture_default_str();
  app.fallthrough();

  tundish::bench::SubmitOptions submit;
  CLI::App& submissions = *app.add_subcommand("submit", "Durable submissions per second");
  submissions.add_option("--seconds", submit.seconds)->capture_default_str();
  submissions.add_option("--clients", submit.clients)->capture_default_str();
  int kills = 100;
  CLI::App& exactly_once = *app.add_subcommand(
      "kills",
      "Submissions while the coordinator is killed again and again: none lost, none twice");
  exactly_once.add_option("--kills", kills)->capture_default_str();
  exactly_once.add_option("--clients", submit.clients)->capture_default_str();

  tundish::bench::ScaleOptions scale;
  CLI::App& agents = *app.add_subcommand("agents", "Cost of idle agents, by their number");
  agents.add_option("--agents", scale.agents, "Numbers to try")->delimiter(',');
  agents.add_option("--seconds", scale.seconds)->capture_default_str();
  CLI::App& restart = *app.add_subcommand("restart", "SIGKILL and start with many jobs and agents");
  int restart_agents = 2000;
  restart.add_option("--agents", restart_agents)->capture_default_str();
  restart.add_option("--jobs", scale.jobs)->capture_default_str();
  tundish::bench::StreamOptions streams;
  CLI::App& delivery = *app.add_subcommand("streams", "Time from a step to every reader of a job");
  delivery.add_option("--readers", streams.readers)->capture_default_str();
  delivery.add_option("--ranks", streams.ranks)->capture_default_str();
  delivery.add_option("--steps-per-second", streams.steps_per_second)->capture_default_str();
  delivery.add_option("--seconds", streams.seconds)->capture_default_str();

  tundish::bench::FuzzOptions fuzz;
  CLI::App& fuzzing = *app.add_subcommand("fuzz", "Malformed and extreme messages to every method");
  fuzzing.add_option("--seconds", fuzz.seconds)->capture_default_str();

  CLI11_PARSE(app, argc, argv);
  tundish::bench::SeedRandom(seed);
  submit.tundishd = tundishd;
  submit.scratch = scale.scratch = streams.scratch = fuzz.scratch = scratch;
  scale.tundishd = streams.tundishd = fuzz.tundishd = tundishd;
  fuzz.seed = seed;
  spdlog::set_level(spdlog::level::err);  // a thousand agents would each say what happens to them
  if (agents.parsed()) return tundish::bench::BenchAgents(scale);
  if (restart.parsed()) {
    scale.agents = {restart_agents};
    return tundish::bench::BenchRestart(scale);
  }
  if (fuzzing.parsed()) return tundish::bench::FuzzRpcs(fuzz);
  if (delivery.parsed()) return tundish::bench::BenchStreams(streams);
  if (submissions.parsed()) return tundish::bench::BenchSubmit(submit);
  return tundish::bench::CheckExactlyOnce(submit, kills);
}
