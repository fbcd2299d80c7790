// A part of the network locks: unlocks that put their release off, and what other nodes do to get such a lock
// (network_lock.h, "Deferred releases").
#include <chrono>
#include <thread>

#include "base/lock_guard.h"
#include "profile/virtual_time.h"
#include "status/node_status.h"
#include "sync/network_lock.h"
#include "sync/words.h"

namespace multigrain {
namespace {

// A try that has polled as long as the wait policy says looks again at such intervals. Nothing wakes it if a processor of
// the other node takes the lock.
constexpr std::chrono::microseconds kTryLooksEvery{20};

}  // namespace

// --- At the node where the lock is

// Sets `owes` to false if it learns that there is nothing to release. In virtual time, when the node would be asked to let
// go would depend on the machine's speed.
bool NetworkLocks::should_defer(const Record& record, bool& owes) const {
  switch (options_.deferred) {
    case DeferredReleases::kNever:
      return false;
    case DeferredReleases::kAlways:
      return true;
    case DeferredReleases::kLearned:
      break;
  }
  if (!record.history.pays() || virtual_time::on()) return false;
  owes = host_.owes_release();
  return owes;
}

// The caller holds the lock, for which no other node was known to wait, and unlocks it without a release. Returns false
// if another node has asked meanwhile: then the lock is still held.
bool NetworkLocks::defer(Record& record, const SyncHandle& lock) {
  const size_t which = number(lock);
  const uint64_t at = slot_at(which);
  MULTIGRAIN_KNOWS();
  host_.release_own_part();
  const uint64_t held = kHere | kHeld;
  if (MULTIGRAIN_KEEPS(own_.compare_and_swap(at, held, held | kDeferred) != held)) return false;
  MULTIGRAIN_KNOWS();
  record.hand_ons = 0;
  if (!MULTIGRAIN_KEEPS(record.is_listed)) {
    record.is_listed = true;
    list(record, static_cast<uint32_t>(which));
  }
  leave(record);
  // A thread that wanted to let go for a node that asked before the caller left has found it inside the record (N4). An
  // atomic that changes a word is a full fence, so either that thread sees that the caller has left, or the caller sees
  // that the node has asked.
  if (MULTIGRAIN_KEEPS(next_of(slot(at)) != 0)) {
    set_wanted(self_);
    serve_wanted();
  }
  return true;
}

// Puts the record into the list, where it is not.
void NetworkLocks::list(Record& record, uint32_t number) {
  MULTIGRAIN_STEP(&deferred_);
  uint32_t first = deferred_.load(std::memory_order_relaxed);
  do {
    record.next_listed = first;
  } while (!deferred_.compare_exchange_weak(first, number + 1, std::memory_order_release));
}

// Returns the first record of the list + 1, and empties the list.
uint32_t NetworkLocks::take_list() {
  MULTIGRAIN_STEP(&deferred_);
  return deferred_.exchange(0, std::memory_order_acquire);
}

bool NetworkLocks::is_wanted() const {
  return own_.load(words::kLockWanted) != 0;
}

// Says that a node wants a lock of `node`.
void NetworkLocks::set_wanted(NodeId node) {
  fabric_.fetch_and_set(node, SegmentId::kWords, words::kLockWanted, 1);
}

void NetworkLocks::serve_wanted() {
  MULTIGRAIN_FORGETS;
  // If another thread is letting go, the caller need not wait: that thread looks at the word again when it has finished.
  while (MULTIGRAIN_KEEPS(is_wanted()) && MULTIGRAIN_FINDS(&letting_go_, letting_go_.try_lock())) {
    MULTIGRAIN_KNOWS();
    const bool is_served_late = own_.exchange(words::kLockWanted, 0) == kByMessage;
    let_go_all(is_served_late);
    MULTIGRAIN_KNOWS();
    MULTIGRAIN_STEP(&letting_go_);
    letting_go_.unlock();
    MULTIGRAIN_KNOWS();
  }
}

// If another thread is letting go, the caller waits for it: afterwards no thread of the node releases for a lock that was
// deferred before the call.
void NetworkLocks::let_go_deferred() {
  {
    MULTIGRAIN_FORGETS;
    MULTIGRAIN_STEP(&deferred_);
    if (deferred_.load(std::memory_order_relaxed) == 0 && !letting_go_.is_locked()) return;
    MULTIGRAIN_LOCK_STEP(letting_go_);
    const LockGuard one_at_a_time(letting_go_);
    let_go_all(false);
    MULTIGRAIN_STEP(&letting_go_);
  }
  // Another thread that wanted to let go meanwhile has found `letting_go_` taken, and does not wait.
  serve_wanted();
}

// Lets go of all locks in the list, but for those whose records another thread is inside.
void NetworkLocks::let_go_all(bool is_served_late) {
  uint32_t listed = MULTIGRAIN_KEEPS(take_list());
  uint32_t entered = 0;
  while (listed != 0) {
    const uint32_t number = listed - 1;
    Record& record = records_[number];
    listed = record.next_listed;
    if (!try_enter(record)) {
      list(record, number);
    } else if (is_deferred(slot(slot_at(number)))) {
      record.next_listed = entered;
      entered = number + 1;
    } else {
      record.is_listed = false;
      leave(record);
    }
  }
  if (entered == 0) return;
  MULTIGRAIN_KNOWS();
  // What processors write from now on under one of these locks they write after they have entered its record.
  host_.release();
  while (entered != 0) {
    const uint32_t number = entered - 1;
    Record& record = records_[number];
    entered = record.next_listed;
    record.is_listed = false;
    if (next_of(slot(slot_at(number))) != 0) {
      if (is_served_late)
        record.history.was_served_late();
      else
        record.history.was_served_soon();
    }
    static_cast<void>(set_free(record, number, kHere | kHeld | kDeferred));
  }
}

void NetworkLocks::on_wanted() {
  own_.exchange(words::kLockWanted, kByMessage);
  fabric_.wake_service();
}

// --- At the node that asks

void NetworkLocks::ask_by_message(NodeId node, const SyncHandle& lock) {
  asked_.fetch_add(1, std::memory_order_relaxed);
  MessageHeader header;
  header.type = options_.wanted_message;
  header.word[0] = lock.encode().value;
  fabric_.send(node, header, SendContext::kOrdinary);
}

// A try has asked for the lock, which comes once `deferring`, the node before in the queue, has released. Returns whether
// it has come. If not, a processor of that node has taken it before, and will bring it when it unlocks.
bool NetworkLocks::await_answer(size_t number, NodeId deferring) {
  MULTIGRAIN_FORGETS;
  const uint64_t at = slot_at(number);
  const uint64_t start = ticks();
  const uint64_t most = host_.wait_policy().spin_ticks;
  bool has_asked = false;
  PollingScope polling(fabric_);
  while (true) {
    MULTIGRAIN_KNOWS(has_asked);
    const uint64_t theirs = MULTIGRAIN_KEEPS(fabric_.fetch_add(deferring, SegmentId::kWords, at, 0));
    if (MULTIGRAIN_KEEPS((slot(at) & kHere) != 0)) return true;
    // If that node has the lock still, this one comes next in its queue.
    if ((theirs & (kHere | kHeld | kDeferred)) == (kHere | kHeld)) return false;
    fabric_.poll();
    const uint64_t polled = ticks() - start;
    if (!has_asked && polled >= most / kPartBeforeMessage) {
      ask_by_message(deferring, handle_of(number));
      has_asked = true;
    }
    serve_wanted();
    if (polled < most) {
      cpu_relax();
      continue;
    }
    polling.pause();
    std::this_thread::sleep_for(kTryLooksEvery);
    polling.resume();
  }
}

}  // namespace multigrain
