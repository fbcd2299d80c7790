// The workloads' command lines. The library behind it (CLI11) is compiled once and plainly, not as a part of every
// program in each way that it is built: it would be most of what the compiler has to do, and it touches no shared
// memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace workloads {

// Exit status for a command line that makes no sense.
inline constexpr int kBadUsage = 2;

class CommandLine {
 public:
  CommandLine(const char* description, const char* name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Options, as "-n,--name", with their help. `to` keeps what it has if the option is not given.
  // A number from least to most.
  void add_number(const char* names, unsigned& to, const std::string& help, unsigned least, unsigned most);
  void add_number(const char* names, size_t& to, const std::string& help, size_t least, size_t most);
  void add_text(const char* names, std::string& to, const std::string& help);
  void add_choice(const char* names, std::string& to, const std::string& help, const std::vector<std::string>& among);
  void add_flag(const char* names, bool& to, const std::string& help);

  // Returns when there is a run to make; otherwise prints the help (exit status 0) or one sentence (kBadUsage), and
  // exits.
  void parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace workloads
