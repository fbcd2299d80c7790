// The host of a guest: what this process knows of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "guest/address_space.h"
#include "guest/cluster.h"
#include "guest/program.h"
#include "guest/signals.h"

namespace multigrain::guest {

struct Host {
  Host() = default;
  Host(const std::vector<Range>& allowed, std::unique_ptr<Mappings> mappings, unsigned nodes)
      : space(allowed, std::move(mappings), nodes) {}

  AddressSpace space;
  SignalActions actions;
  Executable executable;                 // its path is absolute and without symbolic links
  std::vector<std::string> environment;  // NAME=VALUE, as the guest was given them
  // Whether this is the process that mgrun started. Processes that the guest starts run here, too, but what they execute
  // is the system's business.
  bool is_first = true;
  // The nodes of a guest that runs on several; else null.
  Cluster* cluster = nullptr;
  // Whether the guest is told of the system's own functions for the time (vdso). They are a page of each system, and what
  // they say is that system's.
  bool has_vdso = true;
  // Whether the guest's memory is kept coherent by a protocol: the system must not be given pointers into it.
  bool memory_is_shared = false;
};

// The one of this process. Exists from run_guest() on.
Host& host();

struct HostOptions {
  bool memory_is_shared = false;
};

// Runs the program in this process, as execve() would: does not return unless it cannot be run. The arguments are the
// program's, its name as given first. The calling thread is the process's only one.
CannotExecute run_guest(const std::string& path, std::vector<std::string> arguments,
                        std::vector<std::string> environment, const HostOptions& options = {});

// The same in the steps that a guest on several nodes needs. The calling thread blocks all signals from the first on.
// `mask`: what the guest begins with.
CannotExecute run_guest(Host& state, const std::string& path, std::vector<std::string> arguments,
                        std::vector<std::string> environment, uint64_t mask);
// The place of this process's host, which the caller constructs once.
void* place_of_host();
// Blocks all signals for this thread. The mask from before.
uint64_t block_signals();

}  // namespace multigrain::guest
