// The host of a guest: what this process knows of it.
#pragma once

#include <sched.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "guest/address_space.h"
#include "guest/cluster.h"
#include "guest/processor_masks.h"
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
  std::string auxiliary;                 // the auxiliary vector that it was given, as bytes
  // On several nodes: the processors of its threads, and which threads of the home's process are none of the guest's.
  ProcessorMasks masks;
  std::vector<pid_t> own_threads;
  // And the cores that mgrun was given, for processes that the guest starts: those run by the system.
  cpu_set_t cores_of_processes{};
  // Whether this is the process that mgrun started. Processes that the guest starts run here, too, but what they execute
  // is the system's business.
  bool is_first = true;
  // The nodes of a guest that runs on several; else null.
  Cluster* cluster = nullptr;
  // Whether the guest is told of the system's own functions for the time (vdso). They are a page of each system, and what
  // they say is that system's.
  bool has_vdso = true;
  // Whether this process was forked by one with nodes, and still has mappings of that one's host.
  bool has_mappings_of_nodes = false;
  // Whether the guest's memory is kept coherent by a protocol: the system must not be given pointers into it.
  bool memory_is_shared = false;
  bool traps_all_calls = false;
};

// The one of this process. Exists from run_guest() on.
Host& host();

struct HostOptions {
  bool memory_is_shared = false;
  // All calls arrive by signals, and the guest's code stays as it is.
  bool traps_all_calls = false;
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
