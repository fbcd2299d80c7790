// Locks in the network: a node takes and releases them with remote atomics alone, without the help of another node's
// processors ([GeNIMA], III.A: "system-wide network locks ... without involving remote processors").
// But a node may be asked for a lock whose release it has deferred (below).
//
// Each lock has a word at its manager, the *tail*: 1 + the last node that asked, 0 if none ever did. And it has a word
// at each node, the *slot*. Nodes queue as processors do in an MCS lock; within a node, processors queue by tickets
// ([GeNIMA], III.B.4), or race for a word where the run's options say so.
//
//   slot   kHere      the lock is at this node
//          kHeld      a processor of this node holds it, or will as soon as it is here, or kDeferred
//          kDeferred  with kHere and kHeld: no processor holds the lock, but what was written under it has not been
//                     released
//          kSleeps    the processor that waits for it has stopped polling: the node that brings the lock must send a
//                     message
//          next       1 + the node that comes after this one; 0 if no node has said that it does
//          from       1 + the node whose release the lock brought here, until a processor of this node has acquired
//                     from it
//
//   A node asks      old tail P := swap(tail, me)            at the manager, one remote atomic
//                    old slot of P := add next = me to it    at P, one remote atomic
//                    if that says kHere and not kHeld, the lock is ours: no processor of P can take it any more.
//                    Otherwise wait, polling the own slot, until kHere is added to it.
//   A node lets go   with next: own slot := 0, and add kHere and from = me to next's slot, one remote atomic.
//                    without: take kHeld off the own slot. The lock stays where it was used last.
//
// A try joins the queue without kHeld when it finds, too late, that another node was faster. Then the lock comes some
// day and rests at the node. A processor that wants it after that takes it from there. A processor that wanted it
// before the lock came has set kHeld, and the node that brings the lock sees so in the old slot, as it sees whether a
// next node waits. To the node itself a slot with kHere and next but not kHeld says that the lock is gone.
//
// So a lock that is free costs two remote atomics wherever it is, a lock that is handed over costs one to the node that
// lets go of it, and taking a lock again where it was used last costs none.
//
// Deferred releases. Where the end of an interval is dear, and a lock is taken at the same node again and again, a
// processor that unlocks may put its release off: it adds kDeferred, and to the other nodes the lock looks held. A
// processor of this node takes the lock by taking kDeferred away. A node that asks and finds kDeferred sets the *wanted*
// word of the node where the lock is, and, if the lock has not come after a while, sends a message. Then a thread there
// lets go of all locks whose release was deferred: a processor that waits for a lock, locks or unlocks and finds the word
// set, or the service thread that got the message. The thread goes inside their records, as a processor that unlocks is,
// releases once for all, and lets go. Of a record that it finds taken it need not let go: it leaves the lock to
// the processor that is inside, which looks for a next node after it has left (N4).
//
//  N1  At most one slot of a lock has kHere and no next, or kHere and kHeld. (To a slot that says that the lock is gone
//      a processor that asks anew adds kHeld for a moment, before it makes the slot ready.)
//  N2  For each time that a node asks, exactly one other node adds itself to its slot, and none does before it asked.
//  N3  While a lock is at a node and its slot says neither kHeld nor kDeferred, everything written under it has been
//      released there (SyncHost).
//  N4  If a slot says kDeferred and next, then a processor of that node is inside the record, or the wanted word of the
//      node is set, or a thread is about to set it, or a thread of the node is letting go and has yet to come to that lock.
//
// In virtual time a third word at each node says when the lock was let go there, or came. Nodes pass it on
// outside the model of the network, since a processor that finds a lock free must not go on before that time. And
// no processor polls.
//
// Waking. One-sided operations wake no thread. A processor that has polled for as long as the policy says sets
// kSleeps, and the node that then brings the lock sends a message: a notification, for which nothing in the protocol
// waits but that processor.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/own_words.h"
#include "fabric/wait.h"
#include "sync/deferral_history.h"
#include "sync/handle.h"
#include "sync/host.h"

namespace multigrain {

namespace network_lock_explored {
struct LockState;
}

enum class IntraNodeLock : uint8_t { kTicket, kTestAndSet };

// Which unlocks put off their release: none, those of which their history says so, or (in tests) all.
enum class DeferredReleases : uint8_t { kNever, kLearned, kAlways };

class NetworkLocks {
 public:
  struct Options {
    uint16_t handoff_bound = 16;  // hand-ons inside a node while another node waits
    uint32_t max_locks = 0;       // created by each node
    IntraNodeLock intra_node = IntraNodeLock::kTicket;
    // Not kNever only if one release() covers what all processors of the node have written before.
    DeferredReleases deferred = DeferredReleases::kNever;
    MessageType wake_message = 0;
    MessageType wanted_message = 0;
  };
  // The locks' words are in words::kLocks of every node.
  NetworkLocks(SyncHost& host, Fabric& fabric, Options options);

  // How a lock was taken, or why it was not.
  enum class Taken : uint8_t {
    kNot,  // trylock: it is not free
    // The handle is that of a lock that was destroyed.
    kDestroyed,
    kHere,     // it was at this node
    kFetched,  // another node had it, unused
    kWaited,   // another node had it and handed it over
  };
  Taken lock(const SyncHandle& lock);
  Taken trylock(const SyncHandle& lock);

  enum class Left : uint8_t {
    kNotHeld,
    kFree,      // no other processor was known to want it
    kDeferred,  // as kFree, without a release
    kHandedOn,  // to this node's next processor, without a release
    kSent,      // to another node
  };
  Left unlock(const SyncHandle& lock);

  // Returns whether a processor of this node holds the lock.
  [[nodiscard]] bool is_held(const SyncHandle& lock) const;
  [[nodiscard]] bool is_destroyed(const SyncHandle& lock) const {
    return records_[number(lock)].generation.load(std::memory_order_relaxed) > lock.generation;
  }
  // Marks this node's record as destroyed. Returns false if it was marked before. `in_use` says whether a processor of
  // this node holds or wants the lock.
  bool forget(const SyncHandle& lock, bool& in_use);
  // Takes the message that wakes a waiter of this lock.
  void on_wake(const SyncHandle& lock);

  // --- Deferred releases (deferred_release.cpp).

  // Lets go of the locks whose release was deferred. Any thread of the node that may release calls this: a processor
  // before it waits for something else than a lock, so that nodes that want one of these locks need not wake a thread.
  void let_go_deferred();
  // Lets go of them if another node wants one. The service thread calls this after it has handled messages.
  void serve_wanted();
  // Takes the message of a node that waits for a lock of this node. Called by a handler.
  void on_wanted();

  // How many notifications this node has sent, and how many messages that ask for a lock.
  [[nodiscard]] uint64_t wakes() const { return wakes_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t asked() const { return asked_.load(std::memory_order_relaxed); }

  static constexpr uint64_t kHere = 1;
  static constexpr uint64_t kHeld = 2;
  static constexpr uint64_t kSleeps = 4;
  static constexpr uint64_t kDeferred = 8;
  // A node that waits for a lock whose release was deferred sends a message after it has polled for this part of the time
  // for which it polls at most.
  static constexpr uint64_t kPartBeforeMessage = 4;
  // The wanted word of a node, if a message said so.
  static constexpr uint64_t kByMessage = 2;
  static constexpr unsigned kNextShift = 8;
  static constexpr unsigned kFromShift = 16;
  static constexpr uint64_t kFromMask = uint64_t{0xff} << kFromShift;

 private:
  friend struct network_lock_explored::LockState;  // the tests that explore the locks

  struct alignas(64) Record {
    std::atomic<uint32_t> generation;
    // A lock of its own lets one processor of this node at a time deal with the slot: enter() takes it, leave() gives
    // it back. With kTicket these are a ticket lock's two counters.
    std::atomic<uint32_t> tickets;  // with kTestAndSet: 1 while taken
    std::atomic<uint32_t> serving;  // with kTestAndSet: how many wait
    EventCount event;
    // That lock guards the members below. No annotation says so, because it is held from lock() to unlock(), and lock()
    // says by the value that it returns whether it holds it, which Clang's analysis cannot follow.
    bool handed_on;  // the slot is held for the next processor
    // A try has asked for the lock, which is not here, or has come and not been seen yet.
    bool requested;
    uint16_t hand_ons;  // since another node is known to wait
    DeferralHistory history;
    // Whether the record is among those that `deferred_` begins, and the next of these + 1. A processor inside the record
    // puts it there, and a thread with `letting_go_` takes it out.
    bool is_listed;
    uint32_t next_listed;
  };
  static_assert(sizeof(Record) == 64);

  [[nodiscard]] size_t number(const SyncHandle& lock) const;
  [[nodiscard]] SyncHandle handle_of(size_t number) const;
  [[nodiscard]] static uint64_t tail_at(size_t number);
  [[nodiscard]] static uint64_t slot_at(size_t number);
  // The word of virtual time that belongs to the slot at `at`.
  [[nodiscard]] static uint64_t since(uint64_t at) { return at + sizeof(uint64_t); }
  void stamp(NodeId node, uint64_t at);
  void go_on_after(NodeId node, uint64_t at);
  [[nodiscard]] uint64_t slot(uint64_t at) const { return own_.load(at); }
  [[nodiscard]] static unsigned next_of(uint64_t slot) { return slot >> kNextShift & 0xff; }
  [[nodiscard]] static unsigned from_of(uint64_t slot) { return slot >> kFromShift & 0xff; }

  bool enter_generation(Record& record, const SyncHandle& lock);
  void enter(Record& record, const SyncHandle& lock);
  bool try_enter(Record& record);
  void leave(Record& record);
  [[nodiscard]] bool others_wait(const Record& record) const;

  bool take_if_here(Record& record, uint64_t at);
  Taken ask(Record& record, const SyncHandle& lock, bool only_try);
  Taken join_queue(Record& record, size_t number, NodeId manager, bool only_try);
  // `deferring` is the node that has deferred the lock's release, if one has.
  void await_token(Record& record, size_t number, std::optional<NodeId> deferring);
  bool await_answer(size_t number, NodeId deferring);
  Left set_free(Record& record, size_t number, uint64_t held);
  void send(Record& record, size_t number, uint64_t now);
  void acquire_what_came(uint64_t at, uint64_t slot);

  [[nodiscard]] bool defers() const { return options_.deferred != DeferredReleases::kNever; }
  [[nodiscard]] static bool is_deferred(uint64_t slot) { return (slot & kDeferred) != 0; }
  [[nodiscard]] bool should_defer(const Record& record, bool& owes) const;
  bool defer(Record& record, const SyncHandle& lock);
  void list(Record& record, uint32_t number);
  uint32_t take_list();
  [[nodiscard]] bool is_wanted() const;
  void set_wanted(NodeId node);
  void ask_by_message(NodeId node, const SyncHandle& lock);
  void let_go_all(bool is_served_late) MG_REQUIRES(letting_go_);

  SyncHost& host_;
  Fabric& fabric_;
  OwnWords own_;
  const NodeId self_;
  const Options options_;
  SparseArray<Record> records_;
  std::atomic<uint64_t> wakes_{0};
  std::atomic<uint64_t> asked_{0};

  // The records of locks whose release was deferred begin with this one, + 1. Locks that were taken again since are there,
  // too.
  std::atomic<uint32_t> deferred_{0};
  SpinLock letting_go_;  // held while a thread lets go of them
};

}  // namespace multigrain
