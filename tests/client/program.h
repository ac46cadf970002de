#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace tundish::client {

/// A program under test, started with its standard output and error on pipes. Killed and reaped at
/// the end.
class Program {
 public:
  /// `arguments[0]` is the program; `environment` entries ("NAME=value") are added to the test's.
  explicit Program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// The next line of standard output or error without its end; empty at the end of the stream.
  std::string ReadLine();
  std::string ReadErrorLine();

  /// Reads both streams to their end and waits; the exit code, or minus the signal.
  int Finish();

  void Signal(int number);

  /// What was read by Finish(), lines read before left out.
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

 private:
  struct Stream {
    int fd = -1;
    std::string text;
  };
  static std::string ReadLine(Stream& stream);

  pid_t pid_ = 0;
  Stream out_, err_;
};

struct Outcome {
  int code = 0;
  std::string out, err;
};

/// Runs a program to its end.
Outcome RunProgram(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});

/// The lines of `text`.
std::vector<std::string> Lines(const std::string& text);

}  // namespace tundish::client
