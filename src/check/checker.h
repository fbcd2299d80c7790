// What mgrun --check looks for at run time, on one node: errors with blocks of shared memory (heap_check.h), the order in
// which locks are taken (lock_order.h), and locks that are held where they should not be. Globals and processors that were
// never started are the runtime's (runtime/processors.h), which counts them here.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/mutex.h"
#include "base/spin_lock.h"
#include "check/findings.h"
#include "check/heap_check.h"
#include "check/lock_calls.h"
#include "check/lock_order.h"
#include "fabric/fabric.h"
#include "races/module.h"
#include "status/node_status.h"

namespace multigrain::check {

// The messages' types, which the runtime gives.
struct MessageTypes {
  MessageType finding;
  MessageType lock_edges;
};

class Checker {
 public:
  // Returns whether an address lies in code of the program, of which reports name the calls.
  using InProgram = bool (*)(const void* address);

  Checker(Fabric& fabric, const MessageTypes& types, const races::Module& module, const SharedAccess& access,
          InProgram in_program);

  [[nodiscard]] Findings& findings() { return findings_; }
  [[nodiscard]] HeapCheck& heap() { return heap_; }

  // --- Called by processors, before the call does what it is for. `site` is where the call returns to. A thread that is no
  // processor may call these; of its locks nothing is known.

  // The processor is about to wait for the lock.
  void wants(uint64_t lock, const void* site);
  // The processor has taken the lock, by whichever call.
  void took(uint64_t lock, const void* site);
  // The processor has come to a barrier.
  void at_barrier(const void* site);

  // --- The end of the run.

  // The calling thread is the one that ends the program.
  void at_exit();
  // On another node than 0: tells node 0 in which order locks were taken here.
  void send_lock_order();
  // On node 0, when the other nodes have sent theirs: looks for cycles.
  void finish();

 private:
  // Each processor has a table of the hashes of what it noted last, so that what it does again and again costs no lock.
  static constexpr size_t kRecent = 256;
  struct alignas(64) Recent {
    std::array<std::atomic<uint64_t>, kRecent> hash;
  };

  [[nodiscard]] std::vector<HeldLockPlace> held_by(const ProcessorStatus& status) const;
  void take_edges(const Message& message);
  std::string describe(const HeldLockPlace& place);
  void tell(const LockCycle& cycle);

  Fabric& fabric_;
  const MessageTypes types_;
  const InProgram in_program_;
  Findings findings_;
  HeapCheck heap_;
  Mutex lock_;
  LockOrder order_ MG_GUARDED_BY(lock_);
  std::set<std::pair<uint64_t, uint64_t>> barriers_told_ MG_GUARDED_BY(lock_);
  SpinLock others_lock_;  // a message handler takes it
  std::vector<LockEdge> edges_of_others_ MG_GUARDED_BY(others_lock_);
  std::vector<uint64_t> lost_by_others_ MG_GUARDED_BY(others_lock_);  // by node: edges that it had no room for
  std::unique_ptr<std::array<Recent, Config::kMaxProcessorsPerNode>> recent_;
  // Of each processor, which makes it when it takes its first lock.
  std::array<std::unique_ptr<LockCalls>, Config::kMaxProcessorsPerNode> calls_;
};

// The node's; nullptr but under --check. Set before any processor runs, and never destroyed.
extern constinit Checker* g_checker;

}  // namespace multigrain::check
