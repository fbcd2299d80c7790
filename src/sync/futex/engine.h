// The pure engine of the futexes of a guest: a state machine at the node that serves them all.
//
// A guest's threads run on several nodes, and its pages are wherever they were used last. A futex call means: compare a
// word and queue, with no wake between the two. The server does not read the word; the waiter does, on its own node,
// where the page probably is, between two messages:
//
//   kEnqueue  waiter -> server    Queue me at this key, tentatively.
//   kQueued   server -> waiter    You are in the queue: look at the word now.
//   kConfirm  waiter -> server    It has the value that I expect: I wait.
//   kCancel   waiter -> server    It does not: forget me. (No answer.)
//   kLeave    waiter -> server    My time is up, or a signal came.
//   kLeft     server -> waiter    You wait no longer. (No answer if kWoken is on its way already: the wake stands.)
//   kWoken    server -> waiter    You have been woken.
//   kWake     waker -> server     Wake so many of this key, with these bits.
//   kRequeue  caller -> server    Wake so many, and move so many of the rest to a second key.
//   kHold     caller -> server    I must look at (or change) a word before I know what to do to these two keys.
//   kHeld     server -> caller    No thread queues there until you say what to do.
//   kHeldRequeue, kHeldWake, kHeldNothing    caller -> server    Do that.
//   kDone     server -> caller    The operation is done; the result is how many were woken, or woken and moved.
//
// The key is the guest's address: there is one address space.
//
//   I1  An operation takes effect at one moment, at the server: when it is carried out. At that moment no waiter about
//       which it decides is tentative, and the waiters that it wakes are told then and not before. So each waiter that
//       it wakes or counts has found its value before, each that it passes over is not in the queue of that key then,
//       and a count is exact.
//   I2  A waiter is put into a queue only while no operation on that queue has begun and is not carried out. So a
//       waiter looks at its word either before an operation is carried out, and then it is confirmed and the operation
//       meets it, or after it was queued, and then after everything that the operation's caller did before.
//   I3  While an operation holds two keys, no waiter of either is tentative: no thread looks at the word that the
//       holder compares or changes, but for threads whose calls end without waiting.
//   I4  The operations on a key are carried out in the order in which they came, and waiters are woken in the order in
//       which they were queued.
//
// An operation that cannot be carried out at once is *pending*, and so is every later operation that shares a bucket of
// the table with it, and every later waiter there, which is told kQueued only when the operations before it are done.
// That ends: an operation waits for tentative waiters, for a holder and for operations that came before, in one order
// for the whole server; and a tentative waiter or a holder waits for its page and never for this server.
//
// The order of messages matters only between a waiter and the server, in each direction: the fabric keeps it, since the
// messages of one slot are sent one after the other. So the server can tell a kLeave that meets its own kWoken from a
// kLeave of the slot's next waiter, which comes after that waiter's kEnqueue.
//
// Nothing is allocated: the caller's slot is the entry of the queue. A slot has one call at a time.
#pragma once

#include <cstdint>
#include <span>

#include "sync/waiters.h"

namespace multigrain {

enum class FutexCall : uint8_t {
  kEnqueue,
  kConfirm,
  kCancel,
  kLeave,
  kWake,
  kRequeue,
  kHold,
  kHeldRequeue,
  kHeldWake,
  kHeldNothing,
  kCount
};

enum class FutexAnswer : uint8_t { kNone, kQueued, kWoken, kLeft, kHeld, kDone, kCount };

// A call's arguments, besides its caller. The server does not look at those that a kind of call does not need.
struct FutexRequest {
  FutexCall call = FutexCall::kCount;
  uint32_t bitset = ~uint32_t{0};  // used by kEnqueue and kWake
  uint64_t key = 0;                // used by every call that begins something
  uint64_t second_key = 0;         // used by kRequeue and kHold
  uint32_t count = 0;              // how many waiters to wake
  // How many waiters to move to the second key, or, in a kHeldWake, to wake there.
  uint32_t second_count = 0;
};

// The server's record of a slot of a node.
struct FutexEntry {
  enum class State : uint8_t {
    kIdle,
    kPendingWait,  // queued after the operations before it
    // Waits for tentative waiters, or for the operations before it.
    kPendingOperation,
    kHolding,  // has been told kHeld
    kTentative,
    kWaiting
  };
  State state = State::kIdle;
  FutexRequest request;
  // The neighbours in the list of its bucket's waiters, or in the list of all calls that are pending.
  WaiterId next;
  WaiterId previous;
};

struct FutexList {
  WaiterId head;
  WaiterId tail;
};

// Waiters whose keys share a bucket are in one list, which operations search.
struct FutexBucket {
  FutexList waiters;
  uint32_t pending = 0;  // how many pending calls touch it
  // The last round in which a pending call could not go on.
  uint64_t blocked_in = 0;
};

// Tells `caller`'s node the answer. The answers to one slot must arrive in the order of the calls.
struct FutexAnswers {
  void (*tell)(void* context, WaiterId caller, FutexAnswer answer, uint32_t result) = nullptr;
  void* context = nullptr;
  void operator()(WaiterId caller, FutexAnswer answer, uint32_t result = 0) const {
    tell(context, caller, answer, result);
  }
};

// The server's state is its two tables: the entries, indexed by WaiterId, one for each slot and one for
// none, and the buckets.
class FutexServer {
 public:
  // The number of buckets is a power of two. If both tables are all zeroes, no thread waits.
  FutexServer(std::span<FutexEntry> entries, std::span<FutexBucket> buckets) : entries_(entries), buckets_(buckets) {}

  // Returns the same state over copies of the tables.
  [[nodiscard]] FutexServer over(std::span<FutexEntry> entries, std::span<FutexBucket> buckets) const {
    FutexServer copy = *this;
    copy.entries_ = entries;
    copy.buckets_ = buckets;
    return copy;
  }

  // Serves one message of `caller`. Panics if the protocol cannot have sent it.
  void serve(WaiterId caller, const FutexRequest& request, const FutexAnswers& answers);

 private:
  using State = FutexEntry::State;

  void begin(WaiterId caller, const FutexAnswers& answers);
  void finish(WaiterId caller, const FutexAnswers& answers);
  void grant(WaiterId caller, const FutexAnswers& answers);
  void carry_out(WaiterId caller, FutexCall call, const FutexAnswers& answers);
  void go_on(const FutexBucket& changed, const FutexAnswers& answers);

  [[nodiscard]] bool is_ready(const FutexRequest& request) const;
  [[nodiscard]] bool has_tentative(uint64_t key) const;
  [[nodiscard]] static bool is_meant(const FutexEntry& waiter, const FutexRequest& request);
  uint32_t wake(const FutexRequest& what, const FutexAnswers& answers);
  uint32_t move(const FutexRequest& what);
  void pend(WaiterId caller);
  void unpend(WaiterId caller);
  void dequeue(WaiterId waiter);

  [[nodiscard]] FutexBucket& bucket_of(uint64_t key) const;
  [[nodiscard]] FutexEntry& entry(WaiterId id) const { return entries_[id.value]; }
  void append(FutexList& list, WaiterId id) const;
  void remove(FutexList& list, WaiterId id) const;

  std::span<FutexEntry> entries_;
  std::span<FutexBucket> buckets_;
  // Calls in the order of arrival. Holders stay in their places.
  FutexList pending_;
  uint64_t round_ = 0;
};

}  // namespace multigrain
