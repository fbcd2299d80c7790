// Finds out whether the program was compiled with access checks: whatever mgcc compiles carries a note (section
// .note.multigrain).
#pragma once

#include <string>

namespace multigrain {

struct CompiledChecks {
  bool in_program = false;  // the executable has checks
  // The first of the executable and the libraries that came with it that has no checks; empty if all have them.
  std::string missing;
  // All of the program's own code has checks, and may access shared memory in no other way: mgcc has linked only that.
  bool has_no_gaps = false;
  // The first of them that has no compiled translation (mgcc -fmultigrain-translate), and the first that another version of
  // mgcc has compiled so; empty if there is none.
  std::string untranslated;
  std::string translation_of_another_version;
  // The first of them whose checks another version of mgcc made; empty if there is none.
  std::string of_another_version;
};

// Looks at everything that is loaded, except libraries of the system (in /lib, /lib64 and /usr, but not /usr/local) and
// of Multigrain. It does not see what the program loads later. Call it at start-up only.
CompiledChecks find_compiled_checks();

}  // namespace multigrain
