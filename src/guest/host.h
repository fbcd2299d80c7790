// The host of a guest: what this process knows of its guest, and the functions that start a guest.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "guest/address_space.h"
#include "guest/cluster.h"
#include "guest/processor_files.h"
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
  std::string auxiliary;                 // the guest's auxiliary vector, as bytes
  // A guest on several nodes is told of these processors, and so are the processes that it forks, which run without the
  // nodes: they may have counted before. A guest on one node has none here, and is told of the machine's.
  std::optional<Processors> processors;
  // On several nodes, the home keeps here which processors the guest's threads asked for, and which threads of this
  // process are none of the guest's.
  ProcessorMasks masks;
  std::vector<pid_t> own_threads;
  // It also keeps the cores that mgrun was given, for processes that the guest starts: those run natively.
  cpu_set_t cores_of_processes{};
  // Says whether this is the process that mgrun started. Processes that the guest starts run in a host, too, but what
  // they execute runs natively.
  bool is_first = true;
  // The nodes of a guest that runs on several are reached by this; it is null for a guest on one.
  Cluster* cluster = nullptr;
  // Says whether the guest is told of the kernel's own functions for the time (vdso). They are a page of each kernel,
  // and tell that kernel's time.
  bool has_vdso = true;
  // Says whether this process was forked by one with nodes, and still has mappings of that one's host.
  bool has_mappings_of_nodes = false;
  // Says whether a protocol keeps the guest's memory coherent: then the kernel must not be given pointers into it.
  bool memory_is_shared = false;
  bool traps_all_calls = false;
  // If processes of the guest may run on other nodes, this counts those that processes without nodes have forked, for the
  // statistics. It is memory of all of the guest's processes.
  std::atomic<uint32_t>* forks_without_nodes = nullptr;
};

// Returns the host of this process, which exists from run_guest() on.
Host& host();

struct HostOptions {
  bool memory_is_shared = false;
  // All calls arrive by signals, and the guest's code stays as it is.
  bool traps_all_calls = false;
};

// Runs the program in this process, as execve() would. Returns only if the program cannot be run. The arguments are the
// program's, with its name as given first. The calling thread is the process's only one.
CannotExecute run_guest(const std::string& path, std::vector<std::string> arguments,
                        std::vector<std::string> environment, const HostOptions& options = {});

// Does the same with a host that the caller has made, as a guest on several nodes needs it. The guest begins with
// `mask`. The calling thread has blocked all signals before it made the host.
CannotExecute run_guest(Host& state, const std::string& path, std::vector<std::string> arguments,
                        std::vector<std::string> environment, uint64_t mask);
// Returns the place of this process's host, where the caller constructs it once.
void* place_of_host();
// Blocks all signals for this thread but those that the host always needs. Returns the mask from before.
uint64_t block_signals();

}  // namespace multigrain::guest
