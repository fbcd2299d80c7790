// What execve() does, for a guest: finds what is to be run, maps it and its interpreter, and builds the stack on which it
// begins. [the System V ABI for x86-64, section 3.4.1; execve(2); ELF]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "guest/address_space.h"

namespace multigrain::guest {

// A file that can be executed, and with which words.
struct Executable {
  std::string path;                    // of the ELF file: of a script, its interpreter
  std::vector<std::string> arguments;  // of a script, with the interpreter's before the script's own
};

// Why a program cannot be executed: the errno that execve() would give, and a sentence.
struct CannotExecute {
  int code = 0;
  std::string sentence;
};

// Follows #! lines as the system does. Nothing is mapped yet. Errors: no such file, a directory, not executable, a format
// that the host cannot run (another architecture, set-user-id).
tl::expected<Executable, CannotExecute> find_executable(const std::string& path, std::vector<std::string> arguments);

// Where a guest's first thread begins.
struct Start {
  uint64_t instruction = 0;
  uint64_t stack = 0;
  std::string auxiliary;  // the auxiliary vector that is there, as bytes
};

// Maps the program. `environment`: NAME=VALUE. `has_vdso`: whether it is told of the system's own. Errors: a damaged file, a missing interpreter, no room. What was mapped
// before an error stays: the process is of no use then.
tl::expected<Start, CannotExecute> load_program(AddressSpace& space, const Executable& executable,
                                                const std::vector<std::string>& environment, bool has_vdso);

}  // namespace multigrain::guest
