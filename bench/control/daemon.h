#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tundish::bench {

/// A number that tells how spread a set of measurements is.
double Percentile(std::vector<double> values, double percent);

/// Uniform in [low, high), from the generator every bench shares; seeded with `--seed`.
double Random(double low, double high);
void SeedRandom(unsigned seed);

/// An empty folder that goes away with its owner.
class ScratchFolder {
 public:
  /// Below `parent`, so that the caller chooses the disk.
  explicit ScratchFolder(const std::filesystem::path& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A tundishd process on free ports, with its state in a folder. Dies with this process. Start and
/// Kill are called on one thread, the process's first: the kernel ties the child to it.
class Daemon {
 public:
  /// What the process has used so far.
  struct Usage {
    double cpu_seconds = 0;
    double resident_mib = 0;
    double peak_mib = 0;
  };

  Daemon(std::filesystem::path binary, std::filesystem::path folder,
         std::vector<std::string> flags = {});
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Returns as soon as the process exists. It ends this program if it cannot be started.
  void Start();
  /// Sends `signal` and waits for the end.
  void End(int signal);

  const std::string& address() const { return address_; }
  std::filesystem::path database() const { return folder_ / "state" / "tundish.db"; }
  Usage ReadUsage() const;
  pid_t pid() const { return pid_; }

 private:
  const std::filesystem::path binary_;
  const std::filesystem::path folder_;
  std::vector<std::string> flags_;
  std::string address_;
  std::string http_;
  pid_t pid_ = -1;
};

}  // namespace tundish::bench
