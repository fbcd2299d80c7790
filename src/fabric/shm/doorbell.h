// The doorbell of a node: by it senders tell the node that messages wait, and wake it if no thread polls.
//
// Waking a sleeping thread costs 15 microseconds; a cache line that changes hands costs 0.1. So the doorbell counts the
// threads of the node that poll, and a sender makes the system call only if there is none. The doorbell is one cache
// line: setting the pending bit brings the count of pollers along. On a machine of more than 64 nodes the sources' bits are
// in words behind it, and `pending` is their summary (source_groups.h).
//
//   pending  a bit a source: the source's ring may hold messages. The node's own bit (on a large machine, bit 63): it has
//            work beside messages (Fabric::mark_own_work). A thread that sets that bit wakes the service thread, unless the node is attended;
//            by (c) below, the service thread then looks at the bit at the end of an interval
//   pollers  how many threads look at `pending` again and again; kWaking: the service thread is being woken
//   wakes    the futex word of the service thread, which counts the reasons to wake it
//   computing  how many processors run code that looks at `pending` now and then (polls that mgcc compiles in)
//   attended   1: the service thread looks at `pending` by itself, at intervals (attention.h)
//
// The rules. All operations below are sequentially consistent.
//
//   Sender      S1 publishes the message in the ring
//               S2 sets the source's bit, unless it sees that the bit is set
//               S3 if it set the bit, no thread clears it, and pollers = 0 (for a microsecond), and attended = 0 or
//                  computing = 0: CAS 0 -> kWaking; the thread whose CAS succeeds increments wakes and wakes the service
//                  thread
//   Poller      (any thread in poll(), counted or not)
//               P1 takes the source's token (or skips the source), P2 clears the bit, P3 drains the ring; if it stops
//               early (enough for one batch, or the next message is not due) P4 sets the bit again;
//               P5 gives the token back, P6 if the bit is set, or on a large machine any of its group, does S3
//   Leaver      (a thread that ends polling, or computing)
//               L1 decrements pollers or computing, L2 if that made it 0 and pending != 0 (or overflow waits) does S3
//   Service     V1 reads wakes; V2 clears kWaking and, if pollers = 0, counts itself; V3 polls until it finds nothing
//               (or has found nothing for some time);
//               V4 decrements pollers; V5 looks: if pollers > 0, or if there is no bit that it could act on, then
//               V6 sleeps while wakes still has the value from V1. In all other cases it begins again.
//               "Could act on" leaves out sources whose token is held, and those whose head is not due: for these V6
//               has a time limit. Or, V6' sets attended, and sleeps for an interval at most. Before a V6 that has no time
//               limit it clears attended, if that is set, and begins again.
//
// No message is forgotten. The claim: whenever a ring holds a message that is due, some thread is between two of the
// steps above, or is counted in pollers, or the service thread will leave V6.
//
// (1) If a ring holds a message, its bit is set, or a poller that holds the token is between P2 and P4 or P5. For if
//     the sender did not set the bit at S2, it saw it set after S1; the P2 that cleared it comes later in the total
//     order, so P3 finds the message, or P4 sets the bit.
// (2) Take the last time that the bit was set, by X (S2 or P4). X then reads pollers (S3 or P6), or, after S2, finds
//     the bit clear: the thread that cleared it (P2) did so after S1, and drains the ring, so that this was not the
//     last time, or (1) holds.
//   (a) X reads 0 and its CAS succeeds, or fails on kWaking: then wakes is incremented after kWaking was set. The
//       service thread clears kWaking only at V2, after V1. If its V2 comes after the CAS, it goes on to look at
//       pending (V3 or V5) after the bit was set. If its V2 came before, then so did its V1, so the increment comes
//       after V1 and V6 does not sleep. If V2 finds that another thread is counted, see (b).
//   (b) X reads a count > 0, or its CAS fails on one. Then a thread is counted and has its L1 or V4 still to come.
//       Consider the thread that takes the count to 0: every decrement before it leaves a thread that is counted. It
//       reads pending after its decrement, so it sees the bit: a leaver does S3, which is (a); the service thread
//       begins again at V5, or has seen a new thread counted there, for which (b) holds again. If kWaking is set at
//       L1, (a) holds already.
//   (c) X reads attended = 1. The service thread clears it before it sleeps without a limit, and reads pending afterwards:
//       so it reads pending after X has set the bit, at the end of an interval or then, and what it does is that of (b). A
//       processor that goes to sleep has decremented computing before; if X has read the count from before that, the
//       processor's L2 sees the bit. So a message waits for an interval only if a processor computes.
//   On a large machine S2 and P2 are insert() and erase() of source_groups.h, and V5 and L2 look at the summary, and then at
//   the groups. S3 follows insert() whether that has set the summary or found it set: so whoever takes the count of pollers
//   to 0 after X's S3 finds the group's bit in the summary, or another thread is between E2 and the end of its erase(). That
//   thread has the token of a source of this group, so its P6 is still to come, and finds the group not empty.
// (3) Suppose that V5 leaves a source out. If it does so because the token is held: V5's reading of the token precedes
//     P5, so P6 sees the bit and reads pollers after V4, which is (a) or (b). If it does so because the head is not
//     due: the message at the head of a ring stays there until it is due, and no message behind it may pass, so waking
//     at that time is soon enough.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/futex.h"
#include "fabric/shm/source_groups.h"
#include "profile/virtual_time.h"

namespace multigrain {

struct alignas(64) Doorbell {
  static constexpr uint32_t kWaking = uint32_t{1} << 31;
  static constexpr uint32_t kCount = kWaking - 1;

  static constexpr int kPatience = 40;  // about a microsecond

  std::atomic<uint64_t> pending;
  std::atomic<uint32_t> pollers;
  std::atomic<uint32_t> wakes;
  std::atomic<uint32_t> computing;
  std::atomic<uint32_t> attended;

  alignas(64) GroupWords groups;  // of the sources' bits, on a large machine

  // The sources whose bits are set, on a machine of so many nodes.
  [[nodiscard]] SourceGroups sources(unsigned nodes) { return {pending, groups, nodes}; }
  // Returns the bit of `pending` by which a node says that it has work of its own.
  static constexpr uint64_t own_work(unsigned self, unsigned nodes) {
    return uint64_t{1} << (nodes <= SourceGroups::kPerGroup ? self : 63);
  }

  // Does S2 and S3, after a message was published in the ring from `source`, of so many nodes, with a sequentially consistent
  // store.
  void announce(unsigned source, unsigned nodes) {
    const SourceGroups set = sources(nodes);
    if (set.contains(source)) return;
    set.insert(source);
    // A processor that ends one wait often begins another within a microsecond (out of a barrier and into a lock); the
    // system call that would wake the service thread meanwhile costs this sender ten, and that processor its core.
    // A thread that begins to poll reads `pending` after the bit was set; a thread that clears the bit drains the ring.
    for (int i = 0; i < kPatience; ++i) {
      // A processor that polls without being counted may have cleared it, too; it announces what it leaves itself (P6).
      if (!set.contains(source)) return;
      if (pollers.load(std::memory_order_relaxed) != 0 || is_attended()) break;
      cpu_relax();
    }
    wake_unless_polled();
  }

  // Does S3.
  void wake_unless_polled() {
    if (pollers.load(std::memory_order_seq_cst) != 0 || is_attended()) return;
    uint32_t none = 0;
    if (pollers.compare_exchange_strong(none, kWaking, std::memory_order_seq_cst)) wake();
  }

  // Returns whether messages may be left to processors that compute.
  [[nodiscard]] bool is_attended() const {
    return attended.load(std::memory_order_seq_cst) != 0 && computing.load(std::memory_order_seq_cst) != 0;
  }

  // Wakes the service thread whether a thread polls or not: for reasons other than messages.
  void wake() {
    wakes.fetch_add(1, std::memory_order_seq_cst);
    // In virtual time the wake-up costs nothing: a message's handler costs what the network model says.
    const virtual_time::Unaccounted wake;
    futex_wake(wakes, FutexScope::kMachine, 1);
  }

  void begin_polling() { pollers.fetch_add(1, std::memory_order_seq_cst); }

  // Does L1 or V4. Returns the new value: 0 means that the caller must look for work and, if there is any, see to it.
  uint32_t end_polling() { return pollers.fetch_sub(1, std::memory_order_seq_cst) - 1; }

  // Does V2. Returns whether the service thread is now counted in pollers.
  bool begin_service() {
    uint32_t seen = pollers.load(std::memory_order_seq_cst);
    while (true) {
      const bool alone = (seen & kCount) == 0;
      if (pollers.compare_exchange_weak(seen, alone ? 1 : seen & ~kWaking, std::memory_order_seq_cst)) return alone;
    }
  }
};
static_assert(sizeof(Doorbell) == 3 * 64 && offsetof(Doorbell, groups) == 64);

}  // namespace multigrain
