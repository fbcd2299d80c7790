#include "sync/futex/engine.h"

#include "base/error.h"

namespace multigrain {
namespace {

bool has_second_key(FutexCall call) {
  return call == FutexCall::kRequeue || call == FutexCall::kHold;
}

}  // namespace

void FutexServer::serve(WaiterId caller, const FutexRequest& request, const FutexAnswers& answers) {
  FutexEntry& who = entry(caller);
  switch (request.call) {
    case FutexCall::kEnqueue:
    case FutexCall::kWake:
    case FutexCall::kRequeue:
    case FutexCall::kHold:
      MG_CHECK(who.state == State::kIdle, caller.value, static_cast<uint64_t>(who.state));
      who.request = request;
      begin(caller, answers);
      return;
    case FutexCall::kConfirm:
      MG_CHECK(who.state == State::kTentative, caller.value, static_cast<uint64_t>(who.state));
      who.state = State::kWaiting;
      go_on(bucket_of(who.request.key), answers);
      return;
    case FutexCall::kCancel: {
      MG_CHECK(who.state == State::kTentative, caller.value, static_cast<uint64_t>(who.state));
      const FutexBucket& bucket = bucket_of(who.request.key);
      dequeue(caller);
      go_on(bucket, answers);
      return;
    }
    case FutexCall::kLeave:
      if (who.state == State::kIdle) return;  // kWoken is under way
      MG_CHECK(who.state == State::kWaiting, caller.value, static_cast<uint64_t>(who.state));
      // No operation that decides about waiters can go on because there is one waiter less.
      dequeue(caller);
      answers(caller, FutexAnswer::kLeft);
      return;
    case FutexCall::kHeldRequeue:
    case FutexCall::kHeldWake:
    case FutexCall::kHeldNothing: {
      MG_CHECK(who.state == State::kHolding, caller.value, static_cast<uint64_t>(who.state));
      who.request.count = request.count;
      who.request.second_count = request.second_count;
      if (request.call != FutexCall::kHeldNothing) carry_out(caller, request.call, answers);
      const FutexBucket& bucket = bucket_of(who.request.key);
      const FutexBucket& second = bucket_of(who.request.second_key);
      unpend(caller);
      who.state = State::kIdle;
      go_on(bucket.pending != 0 ? bucket : second, answers);
      return;
    }
    case FutexCall::kCount:
      break;
  }
  panic("a futex call of an unknown kind:", static_cast<uint64_t>(request.call));
}

void FutexServer::begin(WaiterId caller, const FutexAnswers& answers) {
  FutexEntry& who = entry(caller);
  // Calls with two keys mean all waiters, whatever their bits.
  if (has_second_key(who.request.call)) who.request.bitset = ~uint32_t{0};
  const bool is_free = bucket_of(who.request.key).pending == 0 &&
                       (!has_second_key(who.request.call) || bucket_of(who.request.second_key).pending == 0);
  who.state = who.request.call == FutexCall::kEnqueue ? State::kPendingWait : State::kPendingOperation;
  if (who.request.call == FutexCall::kHold || !is_free || !is_ready(who.request)) {
    pend(caller);
    if (is_free && is_ready(who.request)) grant(caller, answers);
    return;
  }
  finish(caller, answers);
}

// Returns whether no waiter about which the request decides is tentative.
bool FutexServer::is_ready(const FutexRequest& request) const {
  if (request.call == FutexCall::kEnqueue) return true;
  if (request.call != FutexCall::kWake) return !has_tentative(request.key) && !has_tentative(request.second_key);
  uint32_t found = 0;
  for (WaiterId at = bucket_of(request.key).waiters.head; at != kNobody && found != request.count;
       at = entry(at).next) {
    if (!is_meant(entry(at), request)) continue;
    if (entry(at).state == State::kTentative) return false;
    ++found;
  }
  return true;
}

bool FutexServer::has_tentative(uint64_t key) const {
  for (WaiterId at = bucket_of(key).waiters.head; at != kNobody; at = entry(at).next)
    if (entry(at).request.key == key && entry(at).state == State::kTentative) return true;
  return false;
}

bool FutexServer::is_meant(const FutexEntry& waiter, const FutexRequest& request) {
  return waiter.request.key == request.key && (waiter.request.bitset & request.bitset) != 0;
}

// Finishes a call that is ready, has nothing pending before it, and is not a kHold. The call is in no list.
void FutexServer::finish(WaiterId caller, const FutexAnswers& answers) {
  FutexEntry& who = entry(caller);
  if (who.state == State::kPendingWait) {
    who.state = State::kTentative;
    append(bucket_of(who.request.key).waiters, caller);
    answers(caller, FutexAnswer::kQueued);
    return;
  }
  carry_out(caller, who.request.call, answers);
  who.state = State::kIdle;
}

void FutexServer::grant(WaiterId caller, const FutexAnswers& answers) {
  entry(caller).state = State::kHolding;
  answers(caller, FutexAnswer::kHeld);
}

void FutexServer::carry_out(WaiterId caller, FutexCall call, const FutexAnswers& answers) {
  const FutexRequest& what = entry(caller).request;
  uint32_t done = wake(what, answers);
  if (call == FutexCall::kHeldWake) {
    FutexRequest second = what;
    second.key = what.second_key;
    second.count = what.second_count;
    done += wake(second, answers);
  } else if (call != FutexCall::kWake) {
    done += move(what);
  }
  answers(caller, FutexAnswer::kDone, done);
}

uint32_t FutexServer::wake(const FutexRequest& what, const FutexAnswers& answers) {
  uint32_t woken = 0;
  for (WaiterId at = bucket_of(what.key).waiters.head; at != kNobody && woken != what.count;) {
    const WaiterId next = entry(at).next;
    if (is_meant(entry(at), what)) {
      dequeue(at);
      answers(at, FutexAnswer::kWoken);
      ++woken;
    }
    at = next;
  }
  return woken;
}

uint32_t FutexServer::move(const FutexRequest& what) {
  FutexList& from = bucket_of(what.key).waiters;
  FutexList& to = bucket_of(what.second_key).waiters;
  uint32_t moved = 0;
  for (WaiterId at = from.head; at != kNobody && moved != what.second_count;) {
    const WaiterId next = entry(at).next;
    if (entry(at).request.key == what.key) {
      ++moved;
      // Waiters that are moved to the key where they are keep their places, and are counted, as in
      // Linux's futex_requeue().
      if (what.key != what.second_key) {
        remove(from, at);
        entry(at).request.key = what.second_key;
        append(to, at);
      }
    }
    at = next;
  }
  return moved;
}

// Lets pending calls go on after something has happened to the waiters or to the operations of this bucket.
void FutexServer::go_on(const FutexBucket& changed, const FutexAnswers& answers) {
  if (changed.pending == 0) return;
  ++round_;
  // One round in the order of arrival is enough: a call that goes on makes way for later calls only.
  for (WaiterId at = pending_.head; at != kNobody;) {
    const FutexEntry& call = entry(at);
    const WaiterId next = call.next;
    FutexBucket& bucket = bucket_of(call.request.key);
    FutexBucket& second = has_second_key(call.request.call) ? bucket_of(call.request.second_key) : bucket;
    const bool is_next = bucket.blocked_in != round_ && second.blocked_in != round_;
    if (is_next && call.state != State::kHolding && is_ready(call.request)) {
      if (call.request.call == FutexCall::kHold) {
        grant(at, answers);
      } else {
        unpend(at);
        finish(at, answers);
      }
    }
    if (call.state == State::kPendingWait || call.state == State::kPendingOperation || call.state == State::kHolding)
      bucket.blocked_in = second.blocked_in = round_;
    at = next;
  }
}

void FutexServer::pend(WaiterId caller) {
  const FutexRequest& request = entry(caller).request;
  append(pending_, caller);
  ++bucket_of(request.key).pending;
  if (has_second_key(request.call)) ++bucket_of(request.second_key).pending;
}

void FutexServer::unpend(WaiterId caller) {
  const FutexRequest& request = entry(caller).request;
  remove(pending_, caller);
  --bucket_of(request.key).pending;
  if (has_second_key(request.call)) --bucket_of(request.second_key).pending;
}

void FutexServer::dequeue(WaiterId waiter) {
  remove(bucket_of(entry(waiter).request.key).waiters, waiter);
  entry(waiter).state = State::kIdle;
}

FutexBucket& FutexServer::bucket_of(uint64_t key) const {
  // Fibonacci hashing gives different buckets to words that lie side by side.
  return buckets_[(key >> 2) * 0x9e3779b97f4a7c15u >> 32 & (buckets_.size() - 1)];
}

void FutexServer::append(FutexList& list, WaiterId id) const {
  entry(id).next = kNobody;
  entry(id).previous = list.tail;
  (list.tail == kNobody ? list.head : entry(list.tail).next) = id;
  list.tail = id;
}

void FutexServer::remove(FutexList& list, WaiterId id) const {
  const FutexEntry& gone = entry(id);
  (gone.previous == kNobody ? list.head : entry(gone.previous).next) = gone.next;
  (gone.next == kNobody ? list.tail : entry(gone.next).previous) = gone.previous;
}

}  // namespace multigrain
