// Starts processes of the guest on a node that is not the home. It is a process beside the node's: forked before the node
// begins, it has neither the node's memory nor its threads and connections, and so can fork processes that have the
// guest's addresses free.
//
// The node's end (the pipe from it is closed) is told to all processes, which go on at home then; the placer ends with
// the last of them.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace multigrain::guest {

class Placer {
 public:
  // Forks the placer. The calling process has one thread, and has blocked all signals.
  static Result<Placer> start();
  Placer(Placer&&) = default;
  Placer& operator=(Placer&&) = default;

  // Lets it begin: its processes run on these cores.
  void serve(const cpu_set_t& cores);
  // Ends it, on a node that needs none. It is no child of this process afterwards.
  void dismiss();
  // Returns the number by which the home finds it (connect_to_placer()).
  [[nodiscard]] uint64_t name() const { return name_; }

 private:
  Placer(pid_t process, FileDescriptor pipe, uint64_t name) : process_(process), pipe_(std::move(pipe)), name_(name) {}
  pid_t process_;
  FileDescriptor pipe_;
  uint64_t name_;
};

// Returns a connection to a process that a placer has just forked for this one; none is open, and errno says why, if there
// cannot be one.
FileDescriptor connect_to_placer(uint64_t name);

}  // namespace multigrain::guest
