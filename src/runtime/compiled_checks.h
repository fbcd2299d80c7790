// Whether the program was compiled with access checks: what mgcc compiles carries a note (section .note.multigrain).
#pragma once

#include <string>

namespace multigrain {

struct CompiledChecks {
  bool in_program = false;  // the executable has some
  std::string missing;      // the first of the executable and the libraries that it came with that has none; or empty
  std::string of_another_version;  // the first whose checks another version of mgcc made; or empty
};

// Looks at everything that is loaded, but libraries of the system (in /lib, /lib64 and /usr, except /usr/local) and of
// Multigrain. What a program loads later is not seen. Start-up only.
CompiledChecks find_compiled_checks();

}  // namespace multigrain
