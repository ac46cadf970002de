#include "tests/client/program.h"

#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace tundish::client {

Program::Program(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<char*> argv, env;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // The first of two entries counts, so the added ones stand in front.
  for (const std::string& entry : environment) env.push_back(const_cast<char*>(entry.c_str()));
  for (char** entry = environ; *entry != nullptr; ++entry) env.push_back(*entry);
  env.push_back(nullptr);
  if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), env.data()) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  out_.fd = out[0];
  err_.fd = err[0];
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_.fd);
  close(err_.fd);
}

std::string Program::ReadLine(Stream& stream) {
  for (;;) {
    if (const size_t end = stream.text.find('\n'); end != std::string::npos) {
      std::string line = stream.text.substr(0, end);
      stream.text.erase(0, end + 1);
      return line;
    }
    char block[4096];
    const ssize_t got = read(stream.fd, block, sizeof block);
    if (got <= 0) return std::exchange(stream.text, "");
    stream.text.append(block, static_cast<size_t>(got));
  }
}

std::string Program::ReadLine() {
  return ReadLine(out_);
}
std::string Program::ReadErrorLine() {
  return ReadLine(err_);
}

int Program::Finish() {
  // Both at once: a program that fills one pipe while the other is read would wait for ever.
  bool open[2] = {true, true};
  Stream* streams[2] = {&out_, &err_};
  while (open[0] || open[1]) {
    pollfd events[2] = {{open[0] ? out_.fd : -1, POLLIN, 0}, {open[1] ? err_.fd : -1, POLLIN, 0}};
    poll(events, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (events[i].revents == 0) continue;
      char block[4096];
      const ssize_t got = read(streams[i]->fd, block, sizeof block);
      if (got <= 0) open[i] = false;
      if (got > 0) streams[i]->text.append(block, static_cast<size_t>(got));
    }
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void Program::Signal(int number) {
  kill(pid_, number);
}

Outcome RunProgram(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment) {
  Program program(arguments, environment);
  const int code = program.Finish();
  return {code, program.out(), program.err()};
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace tundish::client
