#include "sync/lock_engine.h"

#include "base/error.h"

namespace multigrain {

LockState LockState::initial(const LockPlace& place) {
  LockState state;
  state.here_ = place.self == place.manager;
  state.tail_ = place.manager;
  return state;
}

LockActions LockState::acquire(const LockPlace& place, WaiterLinks links, WaiterId waiter, Nanoseconds since) {
  LockActions actions;
  if (here_ && !held_) {
    held_ = true;
    actions.granted = true;
    return actions;
  }
  queue_.push(links, waiter, kLock, since);
  actions.queued = true;
  if (!here_ && !requested_) ask(place, 0, actions);
  return actions;
}

LockActions LockState::try_acquire(const LockPlace& place, WaiterLinks links, WaiterId waiter) {
  LockActions actions;
  if (here_) {
    actions.granted = !held_;
    held_ = true;
    return actions;
  }
  if (!requested_) {
    // 0 stands for a request that is not a try's, so the number skips it when it wraps after 2^32 tries.
    if (++attempt_ == 0) ++attempt_;
    unanswered_ = true;
    ask(place, attempt_, actions);
  }
  if (unanswered_) {
    queue_.push(links, waiter, kTry);
    actions.queued = true;
  }
  return actions;
}

bool LockState::try_hand_on(const LockPlace& place, WaiterLinks links, LockActions& actions) {
  if (queue_.empty() || (has_next_ && hand_ons_ >= place.handoff_bound)) return false;
  if (has_next_) ++hand_ons_;
  actions.wake = queue_.pop(links);
  return true;
}

LockActions LockState::unlock_flushed(const LockPlace& place, WaiterLinks links) {
  MG_CHECK(here_ && held_);
  LockActions actions;
  // Waiters may have come while the caller flushed.
  if (try_hand_on(place, links, actions)) return actions;
  held_ = false;
  if (has_next_) {
    pass(actions);
    if (!queue_.empty()) ask(place, 0, actions);
  }
  return actions;
}

LockActions LockState::on_request(const LockPlace& place, NodeId from, uint32_t attempt) {
  MG_CHECK(place.self == place.manager, from.value);
  // The tail holds the token or will get it, so it cannot be the one that asks.
  MG_CHECK(tail_ != from, from.value);
  const NodeId old_tail = tail_;
  tail_ = from;
  if (old_tail == place.self) return on_forward(place, from, attempt);
  LockActions actions;
  actions.send_forward = true;
  actions.forward_to = old_tail;
  actions.forward_next = from;
  actions.attempt = attempt;
  return actions;
}

LockActions LockState::on_forward(const LockPlace& place, NodeId next, uint32_t attempt) {
  MG_CHECK(!has_next_ && next != place.self, next.value);
  MG_CHECK(here_ || requested_, next.value);
  LockActions actions;
  has_next_ = true;
  next_ = next;
  if (here_ && !held_) {
    pass(actions);  // by I1 there is nothing to flush
  } else if (attempt != 0) {
    actions.send_busy = true;
    actions.busy_to = next;
    actions.attempt = attempt;
  }
  return actions;
}

LockActions LockState::on_token(const LockPlace& place, WaiterLinks links) {
  MG_CHECK(requested_ && !here_, place.self.value);
  LockActions actions;
  here_ = true;
  requested_ = false;
  unanswered_ = false;
  if (!queue_.empty()) {
    held_ = true;
    actions.wake = queue_.pop(links);
    refuse_tries(links, actions);
  } else if (has_next_) {
    // Only a try asked, and it was told BUSY: no processor of this node has written under the lock
    // since the token came.
    pass(actions);
  }
  return actions;
}

LockActions LockState::on_busy(WaiterLinks links, uint32_t attempt) {
  // Numbers compare as the distance between them, which survives the wrap.
  MG_CHECK(attempt != 0 && attempt_ - attempt < 1u << 31, attempt, attempt_);
  LockActions actions;
  if (!unanswered_ || attempt != attempt_) return actions;
  MG_CHECK(requested_ && !here_, attempt);
  unanswered_ = false;
  refuse_tries(links, actions);
  return actions;
}

void LockState::ask(const LockPlace& place, uint32_t attempt, LockActions& actions) {
  requested_ = true;
  actions.attempt = attempt;
  if (place.self != place.manager) {
    actions.send_request = true;
    return;
  }
  // The manager is the requester. The tail is another node: were it this one, the token would be here or asked for.
  MG_CHECK(tail_ != place.self);
  actions.send_forward = true;
  actions.forward_to = tail_;
  actions.forward_next = place.self;
  tail_ = place.self;
}

void LockState::pass(LockActions& actions) {
  actions.send_token = true;
  actions.token_to = next_;
  here_ = false;
  has_next_ = false;
  next_ = NodeId{};
  hand_ons_ = 0;
}

void LockState::refuse_tries(WaiterLinks links, LockActions& actions) {
  queue_.take_wanting(links, kTry, [&](WaiterId waiter) { actions.refused.push(links, waiter); });
}

}  // namespace multigrain
