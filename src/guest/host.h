// The host of a guest: what this process knows of it.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "guest/address_space.h"
#include "guest/program.h"
#include "guest/signals.h"

namespace multigrain::guest {

struct Host {
  AddressSpace space;
  SignalActions actions;
  Executable executable;                 // its path is absolute and without symbolic links
  std::vector<std::string> environment;  // NAME=VALUE, as the guest was given them
  // Whether this is the process that mgrun started. Processes that the guest starts run here, too, but what they execute
  // is the system's business.
  bool is_first = true;
};

// The one of this process. Exists from run_guest() on.
Host& host();

// Runs the program in this process, as execve() would: does not return unless it cannot be run. The arguments are the
// program's, its name as given first. The calling thread is the process's only one.
CannotExecute run_guest(const std::string& path, std::vector<std::string> arguments, std::vector<std::string> environment);

}  // namespace multigrain::guest
