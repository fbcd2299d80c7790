// The pure engine of locks: the lock protocol of one node, as a state machine.
//
// A lock is a token that moves between nodes. Its manager (a node fixed by the handle) knows only the last node that
// asked for it; that makes the nodes a distributed queue, like the processors of an MCS lock:
//
//   REQUEST  node -> manager       I want the token. The manager makes the sender the tail ...
//   FORWARD  manager -> old tail   ... and tells the old tail which node comes after it.
//   TOKEN    node -> successor     The lock is yours.
//   BUSY     old tail -> node      Your try cannot have the lock now. The TOKEN comes when it can.
//
// A node has at most one request out, and gets exactly one FORWARD for each time that it was the tail, so it has at
// most one successor. It sends no second REQUEST before it passed the token on, which it does not do before that
// FORWARD came. Therefore the order in which the network delivers messages does not matter, not even between two nodes.
//
// Tries. A try must succeed if the lock is free, wherever the token is, and must not wait for the holder of the lock.
// So a REQUEST that only a try wanted is marked with an attempt number, as is the FORWARD that follows from it, and the
// old tail answers it at once: with the TOKEN if it has it and the lock is free, else with BUSY. The try waits for that
// answer: three messages at most, of which the handler of one sends the next. BUSY does not take the request back: the
// TOKEN still comes, and rests here, free, unless another node wants it. So tries and locks make one queue of nodes.
//
//   I2  A try waits only while this node's request is out, is marked, and has not been answered.
//
// A try that finds a request out which will not be answered, because it was marked and BUSY has come or because a
// lock() made it, fails at once. A try that finds a request out which will be answered waits for the same answer; so
// does a lock() that comes meanwhile, but BUSY does not send it away. The TOKEN goes to the waiter that came first, and
// the tries behind it have failed: the lock is held. The number tells the answer to this attempt from BUSY to an
// earlier attempt, which the TOKEN may have overtaken.
//
// A failed try proves that at some moment during the call another processor held the lock or was in a call that wants
// it, or the token was between two nodes, on its way to a node that had asked. The last node of such a journey says
// BUSY since it cannot tell the journey from a wait for a holder. A try does not fail otherwise.
//
// Inside a node the lock is handed from processor to processor in the order in which they asked. While no other node is
// known to wait this goes on as long as there are processors; once a successor is known, for at most `handoff_bound`
// more hand-ons. A token that no processor wants stays where it was last used.
//
// Flush before leave. The token must not leave a node before the writes of its critical sections are visible
// everywhere, and a FORWARD that finds the lock free is handled where no thread can wait for that. So the engine keeps:
//
//   I1  While the token is here and the lock is free, no write of a critical section of this node is unflushed.
//
// unlock() therefore comes in two steps. try_hand_on() passes the lock to a waiter of the same node, unflushed: the
// hardware keeps the node coherent, and the token stays. Otherwise the caller flushes *the node's* delayed update
// queue, still holding the lock, and calls unlock_flushed(), the only transition that makes the lock free or lets the
// token go after use. That flush covers the processors that handed the lock on before: their writes precede the hand-on
// and the queue belongs to the node, or are in a flush under way, for which SyncHost::release waits too. No other
// processor writes under the lock in between, because the flusher holds it. Where delayed update queues belong to
// processors (inline checks), try_hand_on() may be used between processors of one domain only.
#pragma once

#include "base/ids.h"
#include "sync/waiters.h"

namespace multigrain {

// The facts that do not change during the life of a lock.
struct LockPlace {
  NodeId self;
  NodeId manager;
  uint16_t handoff_bound = 16;
};

// The actions of a transition. They may be carried out in any order.
struct LockActions {
  bool granted = false;  // the processor that called has the lock
  // The processor that called waits: a later transition puts it in `wake` or in `refused`.
  bool queued = false;
  WaiterId wake;  // this waiter has the lock
  // These waiters' tries have failed. They are in no other queue, so no guard is needed to take them out.
  WaiterQueue refused;
  bool send_request = false;  // REQUEST(attempt) to the manager
  bool send_forward = false;  // FORWARD(forward_next, attempt) to forward_to
  bool send_token = false;    // TOKEN to token_to
  bool send_busy = false;     // BUSY(attempt) to busy_to
  NodeId forward_to;
  NodeId forward_next;
  NodeId token_to;
  NodeId busy_to;
  uint32_t attempt = 0;  // 0: the request is a lock()'s
};

class LockState {
 public:
  // The state of a lock that was never used: free, with the token at its manager.
  static LockState initial(const LockPlace& place);

  // A processor wants the lock. Either it is `granted`, or it is `queued` and `waiter` will be woken. `since` is its
  // virtual time, or 0; among the node's waiters the earliest comes first.
  LockActions acquire(const LockPlace& place, WaiterLinks links, WaiterId waiter, Nanoseconds since = 0);
  // A processor wants the lock only if it is free. It is `granted`, or it is `queued` until the answer comes, or it is
  // neither, and the try has failed.
  LockActions try_acquire(const LockPlace& place, WaiterLinks links, WaiterId waiter);
  // The first step of an unlock. Returns true, with `actions.wake` set, if the lock went to a waiter of this node.
  bool try_hand_on(const LockPlace& place, WaiterLinks links, LockActions& actions);
  // The second step, after the node's writes were flushed.
  LockActions unlock_flushed(const LockPlace& place, WaiterLinks links);

  // These take the messages. They panic if the protocol cannot have sent a message.
  LockActions on_request(const LockPlace& place, NodeId from, uint32_t attempt);
  LockActions on_forward(const LockPlace& place, NodeId next, uint32_t attempt);
  LockActions on_token(const LockPlace& place, WaiterLinks links);
  LockActions on_busy(WaiterLinks links, uint32_t attempt);

  [[nodiscard]] bool here() const { return here_; }
  [[nodiscard]] bool held() const { return held_; }
  // Returns whether an unlock has more to do than to mark the lock free.
  [[nodiscard]] bool wanted() const { return has_next_ || !queue_.empty(); }
  [[nodiscard]] bool waited_for() const { return !queue_.empty(); }
  // The functions from here to hand_ons() are for tests that explore the protocol: they tell states apart by these.
  [[nodiscard]] bool requested() const { return requested_; }
  // The number of this node's last try that asked for the token, and whether that try has not been answered.
  [[nodiscard]] uint32_t attempt() const { return attempt_; }
  [[nodiscard]] bool unanswered() const { return unanswered_; }
  [[nodiscard]] const WaiterQueue& queue() const { return queue_; }
  [[nodiscard]] bool has_next() const { return has_next_; }
  [[nodiscard]] NodeId next() const { return next_; }
  [[nodiscard]] NodeId tail() const { return tail_; }
  [[nodiscard]] uint16_t hand_ons() const { return hand_ons_; }

  // The uncontended path takes and frees the lock without a transition; lock.cpp tells the engine here what it did.
  void set_held(bool held) { held_ = held; }

 private:
  // The values of WaiterLink::wanted: what a waiter has called.
  static constexpr uint32_t kLock = 0;
  static constexpr uint32_t kTry = 1;

  void ask(const LockPlace& place, uint32_t attempt, LockActions& actions);
  void pass(LockActions& actions);
  void refuse_tries(WaiterLinks links, LockActions& actions);

  WaiterQueue queue_;  // processors of this node, oldest first
  uint32_t attempt_ = 0;
  NodeId next_;  // gets the token after us, if has_next_
  NodeId tail_;  // at the manager: the last node that asked
  uint16_t hand_ons_ = 0;
  bool here_ = false;       // the token is on this node
  bool held_ = false;       // and a processor has the lock
  bool requested_ = false;  // a REQUEST is out
  // attempt_ is the number of the request that is out, and tries wait for its answer.
  bool unanswered_ = false;
  bool has_next_ = false;
};

}  // namespace multigrain
