// Makes the program's globals shared memory, for a program that was written for threads, which share them
// (mg_share_globals()). No paper has this: their programs share what they allocate as shared.
//
// The pages of the program's writable segments (private/globals.h) become one allocation under the page protocol, and
// the frames of that allocation are mapped where the globals are, on every node. Node 0 then stores what its globals
// held, as the program could have, so that the protocol needs to know nothing of all this.
//
// Such a page also holds what is not the program's own: slots for functions of libraries, and variables of libraries
// that the linker placed in the executable (stdout, optarg). They become shared with it. That is right because every
// node has the same libraries at the same addresses and the same kind of processor, which is checked; and because a
// thread would share those variables, too. Refused is a program that has the C library's `environ` there, because
// each node's points to a stack of its own.
//
// A child that the program forks gets copies of the globals in place of the shared pages, which it may not use.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "coherence/protocol.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "memory/access_rights.h"
#include "memory/heap/shared_heap.h"
#include "memory/region.h"
#include "runtime/private/globals.h"

namespace multigrain {

// Each node has one. It registers its handlers on construction and must outlive the fabric's last message.
class SharedGlobals {
 public:
  SharedGlobals(Fabric& fabric, const WaitPolicy& policy, Region& region, AccessRights& rights, SharedHeap& heap,
                Protocol& protocol);
  SharedGlobals(const SharedGlobals&) = delete;
  SharedGlobals& operator=(const SharedGlobals&) = delete;

  // Called on node 0, not from a handler, while no processor but the caller's runs: returns when the globals are shared
  // on every node, with the values that they have on node 0. They stay shared until end(); the second call does nothing.
  // Errors, after which everything is as before: pages of the region that are larger than the machine's; no room; too
  // many libraries; `environ`. A node that runs other code than node 0 ends the run with a sentence.
  Status share(const Placement& placement);

  // Called on node 0 when the run ends, while other nodes still answer: the globals become private memory again, because
  // the destructors of the program's libraries use them when the fabric is gone.
  void end();

  // From now on a child that the program forks gets a copy of all shared memory, as it does of the globals: for a program
  // of threads, whose locals and blocks of malloc are there. It takes time in proportion to what is there.
  void copy_all_at_fork() { copies_all_ = true; }

  // Called before the program forks, and in the child afterwards, before any code of the program.
  void before_fork();
  void in_forked_child();

 private:
  void on_share(const Message& message);
  void on_shared(const Message& message);
  // Maps the frames from `first` on where the globals are. Ends the run if the kernel refuses, because the globals are
  // then lost.
  void map(PageId first);
  // Makes those of the pages that any node has written readable on this node.
  void bring_here(PageId first, uint64_t count);
  // Puts memory of this process alone, with what this node's frames hold, at the pages' place in the region.
  void take_region_private();
  // Copies the frames of these pages, as far as there are any, to where the first one's copy is to be.
  void copy_frames(PageId first, uint64_t count, std::byte* to);
  // Puts memory of this process alone, with what this node's frames hold, in place of a part of the globals.
  void take_private(const Range& part);

  Fabric& fabric_;
  const WaitPolicy policy_;
  Region& region_;
  AccessRights& rights_;
  SharedHeap& heap_;
  Protocol& protocol_;
  std::atomic<bool> shared_{false};
  std::atomic<bool> copies_all_{false};
  PageId first_{};  // the globals' pages in the region, if they are shared
  // On node 0: the nodes that have answered.
  EventCount answered_;
  std::atomic<unsigned> answers_{0};
};

}  // namespace multigrain
