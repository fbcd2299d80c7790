// This brings the environment of a guest (src/guest) through the host that runs it. The host's loader, C library and
// runtime read variables, too; so those have other names until the guest begins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace multigrain::guest {

// Returns the name under which a variable (NAME=VALUE) is given to the host.
std::string name_for_host(std::string_view variable);

// Returns the guest's environment, from the host's, in the same order. Variables that are only the host's are left out.
std::vector<std::string> environment_for_guest(const char* const* environment);

// Makes OpenMP's threads sleep while they wait (OMP_WAIT_POLICY=passive), unless the user has decided by this or
// another variable. On several nodes a thread that polls a word takes its page from the node that writes it, time and
// again, and perhaps a core as well.
void let_openmp_sleep(std::vector<std::string>& environment);

}  // namespace multigrain::guest
