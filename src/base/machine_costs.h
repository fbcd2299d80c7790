// What an emulated machine charges for everything that is not the program's own code, under --clock counted: the prices of
// a machine description (emulation/machine_description.h), without their sources.
//
// Every price is a whole number of picoseconds, everywhere: the prices of instructions are fractions of a nanosecond, and
// sums of whole numbers do not depend on the order in which they are added.
//
// A price is charged to the clock of the thread that does the work, at the place that its comment names. The network's
// latency, bandwidth and occupancy are not here (base/network_model.h): they pass between two nodes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace multigrain {

using Picoseconds = uint64_t;

// A price that depends on how many processors the node has: a table of points, and straight lines between them ([GeNIMA],
// figure 3: the cost of changing a page's protection by the number of processors). Before the first point and behind the
// last it is that of the first and the last.
class CostCurve {
 public:
  struct Point {
    uint32_t processors = 1;  // of the node; ascending from point to point
    Picoseconds cost = 0;
    bool operator==(const Point&) const = default;
  };
  static constexpr size_t kMostPoints = 8;

  constexpr CostCurve() = default;
  // The same for any number of processors.
  constexpr explicit CostCurve(Picoseconds cost) : count_(1) { points_[0] = {.processors = 1, .cost = cost}; }

  // Adds a point. Its number of processors must be greater than that of the point before. Returns false if it is not, or if
  // there are kMostPoints.
  constexpr bool add(Point point) {
    if (count_ == kMostPoints || (count_ != 0 && points_[count_ - 1].processors >= point.processors)) return false;
    points_[count_++] = point;
    return true;
  }

  // Returns the price in a node of so many processors, rounded to the nearest picosecond; 0 if there are no points.
  // Async-signal-safe.
  [[nodiscard]] constexpr Picoseconds at(uint32_t processors) const {
    if (count_ == 0) return 0;
    if (processors <= points_[0].processors) return points_[0].cost;
    for (uint32_t i = 1; i < count_; ++i) {
      const Point& from = points_[i - 1];
      const Point& to = points_[i];
      if (processors > to.processors) continue;
      const uint64_t step = processors - from.processors;
      const uint64_t steps = to.processors - from.processors;
      // The costs may fall from point to point; both products are below 2^63, since a cost is at most kMostCost.
      return (from.cost * (steps - step) + to.cost * step + steps / 2) / steps;
    }
    return points_[count_ - 1].cost;
  }
  [[nodiscard]] constexpr std::span<const Point> points() const { return {points_.data(), count_}; }
  constexpr bool operator==(const CostCurve& other) const {
    if (count_ != other.count_) return false;
    for (uint32_t i = 0; i < count_; ++i)
      if (points_[i] != other.points_[i]) return false;
    return true;
  }

 private:
  std::array<Point, kMostPoints> points_{};
  uint32_t count_ = 0;
};

// The greatest price: 10 seconds. A greater one is a typing mistake, and would look like a run that hangs.
inline constexpr Picoseconds kMostCost = 10'000'000'000'000;

struct MachineCosts {
  // --- Faults and checks

  // From an access without right to the fault's handler, and from its end back: runtime/fault_entry.cpp, serve().
  Picoseconds fault_entry = 0;
  // From a compiled check that misses into the protocol, and back, with all registers kept: virtual_time::MissedCheck,
  // which each miss of a line protocol's driver has (dszoom/driver.cpp, shasta/entry.h).
  Picoseconds check_miss = 0;
  // A pointer that compiled code translates (MGS), or another compiled check of a page protocol. mgbench prints it.
  Picoseconds check = 0;
  // Each check that passes, of a load or of a store, of a program that was compiled with checks, and each look at whether a
  // message has come where such a program polls, at the end of each iteration of a loop that is not short: counted code
  // (count/abi.h: MG_COUNT_LOAD_CHECK and what follows it).
  Picoseconds load_check = 0;
  Picoseconds store_check = 0;
  Picoseconds poll = 0;
  // Looking a line or block up in its directory, and changing its entry there, by whoever does that: the requester of a miss
  // that has locked an entry (dszoom/driver.cpp, miss()), a transition of a block at its home (shasta/actions.cpp, end()).
  Picoseconds directory = 0;
  // Taking a node's rights to a line or block away, beside the network's operations or messages, and a look at the hazards of
  // its threads: for each node that loses rights dszoom/operations.cpp, scan_hazards(); shasta/rights.cpp, lower().
  Picoseconds downgrade = 0;
  // One transition of a page's or a block's state machine, with its lock and record, once a page or block: faults, also ahead
  // of their time, messages, releases and misses; where a page has lost its mappings (MGS's PINV_ACK), and where the home has
  // been read, or has refused that (mgs/driver.cpp, mgs/reads.cpp); at the end of an interval, where a notice takes or
  // updates a page that is here, and where a home moves from or to this node (hlrc/driver.cpp, acquires.cpp, barriers.cpp).
  Picoseconds transition = 0;
  // Filling one processor's entry of a translation table (TLB) from the node's page table: at the end of each fault that
  // one processor of the node takes (the drivers' on_fault()); 0 where the MMU does it.
  Picoseconds translation_fill = 0;
  // Entering a page into the list of pages that a release must look at: MGS's delayed update queue
  // (mgs/delayed_update_queue.cpp, push), HLRC's list of written pages (hlrc/interval.cpp).
  Picoseconds queue_page = 0;

  // --- Access rights: PageDriver::grant_*, upgrade, revoke_write, revoke (coherence/page_driver.cpp). rights_change()
  // below adds them up.

  // A call that allows more for consecutive pages, by the processors of the node.
  CostCurve grant_call;
  // A call that allows less for consecutive pages: the other processors' TLBs are told. Where each processor has a translation
  // table of its own, the processors are those that have mapped the page (mgs/driver.cpp, shoot_down()).
  CostCurve revoke_call;
  // Each page of such a call.
  CostCurve rights_page;

  // --- Pages' bytes

  // Making a twin, for each byte of the page: PageDriver::make_twin.
  Picoseconds twin_byte = 0;
  // Comparing a page with its twin, for each byte of the page: the callers of encode_diff and for_each_change
  // (mgs/driver.cpp, send_diff; hlrc/interval.cpp; hlrc/acquires.cpp, merge).
  Picoseconds diff_make_byte = 0;
  // Applying a diff, for each byte of the diff: the callers of apply_diff (mgs/driver.cpp, merge); for each byte that differs:
  // hlrc/acquires.cpp, merge.
  Picoseconds diff_apply_byte = 0;
  // Each byte of a message's payload or slice that the sending processor copies itself (programmed I/O), or makes coherent in
  // memory before the interface reads it ([MGS], 3.2.4, page cleaning): OrderedFabric::send().
  Picoseconds send_byte = 0;
  // Each byte that a processor copies out of a message into memory: OrderedFabric::fetch_part() and deliver(), for payloads.
  Picoseconds receive_byte = 0;

  // --- Messages: fabric/emulation/ordered_fabric.cpp

  // Composing and launching a message, on the sender's processor: send().
  Picoseconds message_send = 0;
  // Entering and leaving a message's handler, whoever runs it: deliver().
  Picoseconds message_receive = 0;
  // The same again if the handler interrupts a processor that computes; nothing if a processor of the node waits and polls:
  // deliver(), beside NetworkModel::handler_ns, which --net may have.
  Picoseconds interrupt = 0;

  // --- One-sided operations: fabric/emulation/virtual_fabric.cpp

  // Starting a put, a get or an atomic operation on another node's memory, on the requester's processor: start_put(),
  // start_put_pieces(), start_get(), start_fetch_*() and the blocking forms.
  Picoseconds remote_issue = 0;
  // What the other node's interface adds to the answer to a get, whatever its size, and for each byte; and to an atomic
  // operation. It delays the answer, and occupies neither the link nor a processor: ask().
  Picoseconds get_answer = 0;
  Picoseconds get_answer_byte = 0;
  Picoseconds atomic_answer = 0;

  // --- Synchronisation: src/sync

  // Taking and letting go a lock that is at this node, which no other processor wants: Sync::lock(), trylock(), unlock(),
  // NetworkLocks::take_if_here(), set_free().
  Picoseconds lock_acquire = 0;
  Picoseconds lock_release = 0;
  // Asking for a lock that is not at this node, beside messages and remote operations: Sync::lock_slowly(),
  // NetworkLocks::ask().
  Picoseconds lock_ask = 0;
  // Handing a lock to another node, beside messages and remote operations: Sync::perform() with send_token,
  // NetworkLocks::send().
  Picoseconds lock_pass = 0;
  // What a release finds out before it looks at its pages: SyncHost::release(), if there is something to release.
  Picoseconds release = 0;
  // Each processor's arrival at a barrier and its leaving it: Sync::barrier().
  Picoseconds barrier_arrive = 0;
  Picoseconds barrier_leave = 0;
  // Each operation on a condition, a semaphore or a flag: sync/server.cpp, at the caller and at the manager.
  Picoseconds flag = 0;
  // Starting a function on a processor: Processors::spawn(), at the caller.
  Picoseconds spawn = 0;

  // --- Inside a node

  // A line that moves from one processor of the node to another: a lock or a turn that is handed on inside the node
  // (Sync::wake_slot, NetworkLocks::leave with waiters), each arrival at a barrier behind the node's first, each leaving.
  Picoseconds node_miss = 0;

  bool operator==(const MachineCosts&) const = default;
};

// Returns what one call costs that allows more (`grants`) or less for `pages` consecutive pages, in a node of `processors`.
// Async-signal-safe.
[[nodiscard]] constexpr Picoseconds rights_change(const MachineCosts& costs, bool grants, uint64_t pages,
                                                  uint32_t processors) {
  return (grants ? costs.grant_call : costs.revoke_call).at(processors) + pages * costs.rights_page.at(processors);
}

}  // namespace multigrain
