// Reports name functions and source lines, while a node's status has only addresses. This turns addresses of a node's
// process into functions and lines.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct Dwfl;

namespace multigrain {

// A file with code, and the number that was added to its addresses when it was loaded.
struct LoadedModule {
  std::string path;
  uint64_t base = 0;
};

class Symbols {
 public:
  // Reads the symbols of a process that runs.
  static Symbols of_process(pid_t pid);
  // Reads the symbols of the files that a process had loaded, which may have ended.
  static Symbols of_modules(std::span<const LoadedModule> modules);
  Symbols(Symbols&& other) noexcept;
  Symbols& operator=(Symbols&&) = delete;
  ~Symbols();

  // Describes an address: "inner at crash.c:8", or without debug information "inner+0x12 in prog", or "0x401234" if
  // nothing is known. If a call returns to the address, the call is described. If the code there is inlined, each of
  // the functions gets an entry, from the innermost on.
  std::vector<std::string> describe_all(uint64_t address, bool is_return_address);
  // Describes the innermost function only.
  std::string describe(uint64_t address, bool is_return_address) {
    return describe_all(address, is_return_address).front();
  }
  // Returns the line alone, "crash.c:8", of the call that returns to the address, or what describe() returns if the
  // line is not known.
  std::string line_of_call(uint64_t return_address);
  // Returns the name of the function that begins at the address, or what describe() returns.
  std::string function_at(uint64_t address);

 private:
  explicit Symbols(Dwfl* session) : session_(session) {}
  Dwfl* session_;
};

}  // namespace multigrain
