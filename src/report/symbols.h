// Addresses of a node's process, as functions and source lines.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct Dwfl;

namespace multigrain {

// A file with code, and what was added to its addresses when it was loaded.
struct LoadedModule {
  std::string path;
  uint64_t base = 0;
};

class Symbols {
 public:
  // Of a process that runs.
  static Symbols of_process(pid_t pid);
  // Of one that is gone.
  static Symbols of_modules(std::span<const LoadedModule> modules);
  Symbols(Symbols&& other) noexcept;
  Symbols& operator=(Symbols&&) = delete;
  ~Symbols();

  // "inner at crash.c:8", or without debug information "inner+0x12 in prog", or "0x401234" where nothing is known. Of
  // the address to which a call returns, the call. With the functions that the compiler put in its place: an entry each,
  // from the innermost on.
  std::vector<std::string> describe_all(uint64_t address, bool is_return_address);
  // The innermost.
  std::string describe(uint64_t address, bool is_return_address) {
    return describe_all(address, is_return_address).front();
  }
  // The line alone, "crash.c:8", of the call that returns to the address; or as describe() where there is none.
  std::string line_of_call(uint64_t return_address);
  // The name of the function that begins there; or as describe().
  std::string function_at(uint64_t address);

 private:
  explicit Symbols(Dwfl* session) : session_(session) {}
  Dwfl* session_;
};

}  // namespace multigrain
