// Does what execve() does, for a guest: finds the file that is to be run, maps it and its interpreter, and builds the
// stack on which the program begins. [the System V ABI for x86-64, section 3.4.1; execve(2); ELF]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "guest/address_space.h"

namespace multigrain::guest {

// A file that can be executed, with its arguments.
struct Executable {
  std::string path;                    // the ELF file, which may interpret a script
  std::vector<std::string> arguments;  // an interpreter's come before its script's own
};

// Says why a program cannot be executed: the errno that execve() would give, and a sentence.
struct CannotExecute {
  int code = 0;
  std::string sentence;
};

// Follows #! lines as the kernel does. Maps nothing yet. Fails if there is no such file, if it is a directory or not
// executable, or if it has a format that the host cannot run (another architecture, set-user-id).
tl::expected<Executable, CannotExecute> find_executable(const std::string& path, std::vector<std::string> arguments);

// The state in which a guest's first thread begins.
struct Start {
  uint64_t instruction = 0;
  uint64_t stack = 0;
  std::string auxiliary;  // the auxiliary vector on the stack, as bytes
};

// Maps the program. `environment` has strings NAME=VALUE. `has_vdso`: the program is told of the kernel's vdso. Fails
// if a file is damaged, an interpreter is missing, or there is no room. What was mapped before an error stays, since
// the process is of no use then.
tl::expected<Start, CannotExecute> load_program(AddressSpace& space, const Executable& executable,
                                                const std::vector<std::string>& environment, bool has_vdso);

}  // namespace multigrain::guest
