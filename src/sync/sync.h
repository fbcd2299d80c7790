// Locks, barriers, conditions, semaphores and flags of one node: Sync carries out the actions of the pure engines of
// this folder.
//
// The engines (lock_engine.h, barrier_engine.h, server_engine.h) decide. Sync finds an object's record, guards it
// with a spin lock for one transition, and then carries out the transition's actions: it sends, wakes and waits.
// Message handlers run the same transitions at the same time as the node's processors.
//
// Writes are made visible at releases, by SyncHost::release(). Under eager release consistency acquires have nothing to
// do ([MGS], section 3.1.2); under lazy release consistency they find out what was released (SyncHost::acquire).
// Releases are unlock (unless the lock stays in the node, see lock_engine.h), barrier, cond_wait (through its unlock),
// cond_signal and cond_broadcast (if a processor waits), sem_post and flag_set.
//
// Each object has a manager. That of a lock, barrier, condition or flag is node (creator + index) mod nodes, so
// that the managers of an array of them are spread over the machine; that of a semaphore is its creator, which
// knows its initial value.
//
// Misuse (handle 0, a handle of another kind, a handle that was destroyed, unlocking a lock that is not held) ends the
// run with a sentence that names the call, and exit status 1. A destroyed handle is recognised on the node that
// destroyed it, on the node that created it, and everywhere once its index is in use again.
//
// Unless its comment says otherwise, a function may be called from any processor thread of the node, and not from
// signal or message handlers. Nothing here uses malloc or stdio after construction.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "fabric/fabric.h"
#include "profile/this_thread.h"
#include "sync/barrier_engine.h"
#include "sync/handle.h"
#include "sync/host.h"
#include "sync/lock_engine.h"
#include "sync/network_lock.h"
#include "sync/rendezvous.h"
#include "sync/server_engine.h"
#include "sync/waiters.h"

namespace multigrain {

struct SyncOptions {
  // How often a lock may be handed on inside a node while another node waits for it, from 1 to 65535.
  uint16_t handoff_bound = 16;
  // The greatest number of children of a node in the barrier's tree. Up to 9 nodes the default makes one level: a
  // root and its leaves.
  unsigned barrier_radix = 8;
  // How many objects of each kind one node can have created at a time, at most 2^22. They cost address space only.
  uint32_t max_locks = 1u << 22;
  uint32_t max_others = 1u << 20;
  // How many locks, and how many conditions, the runtime has for itself (Sync::own_lock); they count among those above.
  uint32_t own_locks = 0;
  uint32_t own_conds = 0;
  // Chooses locks in the network (network_lock.h) instead of tokens that travel in messages (lock_engine.h). There can
  // be words::kLockCount of them in the machine, so max_locks is at most that number divided by the nodes.
  bool network_locks = false;
  IntraNodeLock intra_node = IntraNodeLock::kTicket;  // of network locks
  // Of other locks: whether one that another processor of the node waits for is handed on there without a release. Only if
  // one release of the host covers what all processors of the node have written.
  bool hands_on_dirty = true;
  // Whether a release of the host covers what the calling thread has written, and not what others of the node have: each
  // processor then releases before it arrives at a barrier.
  bool own_releases = false;
  // Of network locks. Not kNever only if one release of the host covers what all processors of the node have written.
  DeferredReleases deferred = DeferredReleases::kNever;
  // What it has cost the node that there was no barrier (Protocol::lost_without_barrier), for rendezvous (rendezvous.h); nullptr: there
  // are none. Only with network locks.
  const std::atomic<uint32_t>* lost_without_barrier = nullptr;
};

// What a checkpoint keeps of the objects that one node has created, while all processors are at a barrier and hold no lock. All
// of them but semaphores and flags are then as created.
struct SyncImage {
  std::array<HandleSource::Image, kSyncKinds> sources;  // in the order of SyncKind
  struct Value {
    uint32_t index;
    uint32_t value;
  };
  std::vector<Value> semaphores;
  std::vector<Value> flags;
};

// Counts of events on this node since its start, summed over its processors.
struct SyncCounters {
  // Locks taken while the token was here, because the lock was free or came from another processor of the node.
  uint64_t lock_local = 0;
  // Locks for which the token had to come from another node.
  uint64_t lock_remote = 0;
  uint64_t lock_waits = 0;  // locks of both kinds that had to wait
  // Unlocks that passed the lock to a processor of this node without a flush.
  uint64_t hand_ons = 0;
  uint64_t tokens_sent = 0;    // times that a lock left this node
  uint64_t barriers = 0;       // processors' arrivals at barriers
  uint64_t server_calls = 0;   // operations on conditions, semaphores and flags
  uint64_t server_remote = 0;  // of those, the ones managed by another node
  uint64_t lock_wakes = 0;     // notifications to sleeping waiters of network locks
  uint64_t deferred = 0;       // unlocks that put their release off
  uint64_t lock_asked = 0;     // messages that asked for a lock whose release was put off
};

class Sync {
 public:
  // How many threads of one node may wait at the same time; one more ends the run with a sentence.
  static constexpr uint32_t kMaxWaiters = 4096;

  // Registers the handlers of message_range::kSync with `fabric`. Construct it before any message can arrive, on every
  // node with the same numbers and options. Host and fabric must outlive the object, and no message may be delivered to
  // this node once it is gone.
  Sync(SyncHost& host, Fabric& fabric, unsigned nodes, unsigned processors_per_node, SyncOptions options = {});
  Sync(const Sync&) = delete;
  Sync& operator=(const Sync&) = delete;

  // --- Locks.
  // The lock is free when it is created. Creation sends nothing.
  SyncId lock_create();
  // No processor may hold or want the lock, now or later. The call sends at most one message; so do the other destroys.
  void lock_destroy(SyncId lock);
  void lock(SyncId lock);
  // Returns true if the caller has taken the lock. It returns false if, during the call, another processor held the
  // lock or was in a call that wants it, or the token was on its way to a node that had asked for it. So a lock that no
  // other processor uses is taken at the first attempt, wherever it was used last. The call never waits for the holder,
  // but, if the token is on another node, it waits for that node's answer: at most three messages, and those that are
  // before them in the queues. After a failed attempt the token comes all the same and stays until another node wants
  // it; attempts before that send nothing. While other nodes keep asking for the token as well, it may come and go
  // between two attempts: use lock() where fairness matters.
  [[nodiscard]] bool trylock(SyncId lock);
  // The calling processor must hold the lock.
  void unlock(SyncId lock);
  // The same two for a caller that knows whether time is virtual: the fast paths of the wall clock then have no test of it.
  template <bool kInVirtualTime>
  void lock_as(SyncId lock);
  template <bool kInVirtualTime>
  void unlock_as(SyncId lock);

  // Returns whether the lock has not been destroyed, as far as this node knows. Ends the run if the
  // handle is no lock's.
  [[nodiscard]] bool exists(SyncId lock) const;

  // Returns one of the locks or conditions that the runtime has for itself: number 0 to options.own_locks - 1, or to
  // options.own_conds - 1. They are there from the start and never destroyed, and every node knows them by their numbers.
  [[nodiscard]] SyncId own_lock(uint32_t number) const { return own(SyncKind::kLock, number); }
  [[nodiscard]] SyncId own_cond(uint32_t number) const { return own(SyncKind::kCond, number); }

  // --- Barriers.
  // Creates a barrier of `count` processors, at most 65535; 0 means all of the machine. A barrier of as many as the
  // machine has is for each processor of the machine once an episode: arrivals are counted per node. A barrier of any
  // other count takes whichever processors come.
  SyncId barrier_create(unsigned count);
  // Creates a barrier that takes whichever `count` threads come, also if that is as many as the machine has processors.
  SyncId barrier_create_for_any(unsigned count);
  void barrier_destroy(SyncId barrier);
  void barrier(SyncId barrier);

  // --- Conditions. Waiters are woken in the order in which they came, and never without a signal.
  SyncId cond_create();
  void cond_destroy(SyncId cond);
  void cond_wait(SyncId cond, SyncId lock);
  void cond_signal(SyncId cond);
  void cond_broadcast(SyncId cond);

  // --- Semaphores. Units go to waiters in the order in which the waiters came.
  SyncId sem_create(uint32_t value);
  void sem_destroy(SyncId sem);
  void sem_wait(SyncId sem);
  [[nodiscard]] bool sem_trywait(SyncId sem);
  void sem_post(SyncId sem);

  // --- Flags.
  SyncId flag_create();
  void flag_destroy(SyncId flag);
  void flag_set(SyncId flag, uint32_t value);
  [[nodiscard]] uint32_t flag_get(SyncId flag);
  // Returns once the flag equals `value`, or has equalled it at a moment after the manager heard of this call.
  void flag_wait(SyncId flag, uint32_t value);

  // --- Deferred releases of locks (network_lock.h). Any thread of the node that may release can call these.

  // Releases, and lets go of the locks whose release was deferred. Called before a wait for something else than a lock, too:
  // a node that wants one of these locks would have to wake a thread here meanwhile.
  void let_go_deferred() {
    if (network_locks_) network_locks_->let_go_deferred();
  }
  // Does that if another node wants such a lock. The service thread calls it after it has handled messages.
  void serve() {
    if (network_locks_) network_locks_->serve_wanted();
  }

  // --- Checkpoints. One processor of each node calls these while all processors of the machine wait for it, and no thread
  // else uses objects of this node. Flags are read and written as the program would do it, at their managers. Both allocate.
  [[nodiscard]] SyncImage image();
  // In a run in which this node has created nothing but what it had created before the image, too. Errors: it makes no sense.
  Status restore(const SyncImage& image);

  // Returns whether it is the handle of a barrier of all processors of the machine.
  [[nodiscard]] bool is_barrier_of_all(SyncId id) const {
    const SyncHandle handle = SyncHandle::decode(id);
    return handle.kind == static_cast<uint8_t>(SyncKind::kBarrier) && handle.argument == nodes_ * processors_;
  }

  // --- Measuring. Any thread may call this. The counts are exact when no call is in progress.
  [[nodiscard]] SyncCounters counters() const;

 private:
  // A thread has a slot, in which it waits, for the duration of a slow call.
  struct alignas(64) Slot {
    EventCount event;
    std::atomic<uint32_t> stage;  // kSlotIdle, kSlotWaiting, or a ServerAnswer
    uint32_t result;              // valid when the stage is kServed
    uint32_t next_free;           // slot + 1
    // The node that may answer, + 1; 0 if the thread has asked no node.
    std::atomic<uint32_t> asked;
  };
  static constexpr uint32_t kSlotIdle = 0;
  static constexpr uint32_t kSlotWaiting = 3;

  // A lock's record has a cache line of its own, so that an array of locks does not falsely share.
  struct alignas(64) LockRecord {
    std::atomic<uint32_t> word;  // lock.cpp describes it
    SpinLock guard;              // guards word too while kSlow is set
    // The engine's state but for its `held`, which is in `word`.
    LockState state MG_GUARDED_BY(guard);
  };
  static_assert(sizeof(LockRecord) == 64);

  // What a barrier asks of the last processor of the node that has arrived, which waits for it.
  enum class BarrierWork : uint8_t { kNone, kGather, kLearn };

  struct alignas(64) BarrierRecord {
    SpinLock guard;
    uint32_t generation MG_GUARDED_BY(guard);
    // These three only grow, over generations too: a processor that has been let go but has not run since must see that
    // it may go, even if another processor has destroyed the barrier meanwhile and its index is in use again.
    std::atomic<uint32_t> rounds;  // episodes of `node` that ended
    // How many of this node's arrivals at a counted barrier may go.
    std::atomic<uint32_t> departed;
    // How many arrivals at a counted barrier this node has had.
    uint32_t tickets MG_GUARDED_BY(guard);
    EventCount event;
    // The virtual time of the latest arrival of the episode that this node knows of.
    Nanoseconds latest MG_GUARDED_BY(guard);
    BarrierNode node MG_GUARDED_BY(guard);
    std::atomic<BarrierWork> work;
    EventCount worker;  // waits for it
    CountedBarrier counted MG_GUARDED_BY(guard);
  };

  struct alignas(64) ServerRecord {
    SpinLock guard;
    uint32_t generation MG_GUARDED_BY(guard);
    ServerState state MG_GUARDED_BY(guard);
    // Its destruction is in the word that says who waits for conditions (server.cpp, C2).
    bool counts_as_destroyed MG_GUARDED_BY(guard);
  };

  enum Counter : unsigned {
    kLockLocal,
    kLockRemote,
    kLockWaits,
    kHandOns,
    kTokensSent,
    kBarriers,
    kServerCalls,
    kServerRemote,
    kDeferred,
    kCounters
  };
  struct alignas(64) CounterStripe {
    std::array<std::atomic<uint64_t>, kCounters> value;
  };
  static constexpr unsigned kStripes = 64;
  // Threads use different stripes, so that they count in different cache lines. This is the calling thread's + 1, or 0. It
  // is initial-exec, because the first access must not allocate.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local unsigned t_stripe;

  // sync.cpp: handles and slots.
  SyncHandle create(SyncKind kind, uint32_t argument, const char* full);
  [[nodiscard]] SyncId own(SyncKind kind, uint32_t number) const;
  void destroy(SyncId id, SyncKind kind, const char* bad, const char* destroyed);
  [[nodiscard]] bool forget(const SyncHandle& handle);
  // Returns the handle, or ends the run with the sentence `bad` if it is no handle of that kind. Inlined, since a handle
  // that is written field by field and read as a whole costs a lock as much as an atomic.
  [[nodiscard, gnu::always_inline]] SyncHandle check(SyncId id, SyncKind kind, const char* bad) const {
    const SyncHandle handle = SyncHandle::decode(id);
    if (handle.kind != static_cast<uint8_t>(kind) || handle.creator.value >= nodes_ || handle.index >= limit_of(kind))
        [[unlikely]]
      die(1, bad, id.value);
    return handle;
  }
  [[nodiscard]] SyncHandle check_message(const Message& message, SyncKind kind) const;
  [[nodiscard]] uint32_t limit_of(SyncKind kind) const {
    return kind == SyncKind::kLock ? options_.max_locks : options_.max_others;
  }
  [[nodiscard]] NodeId manager_of(const SyncHandle& handle) const;
  template <typename Record>
  [[nodiscard]] Record& find(const SparseArray<Record>& table, const SyncHandle& handle) const {
    return table[size_t{handle.creator.value} * (table.size() / nodes_) + handle.index];
  }
  uint32_t take_slot();
  void free_slot(uint32_t slot);
  [[nodiscard]] WaiterId waiter_of(NodeId node, uint32_t slot) const {
    return WaiterId(1 + node.value * kMaxWaiters + slot);
  }
  void wake_slot(uint32_t slot, ServerAnswer answer, uint32_t result);
  void await_slot(PollingScope& polling, uint32_t slot, ServerAnswer answer);
  [[nodiscard]] HandleSource& source_of(SyncKind kind);
  [[nodiscard]] const SparseArray<ServerRecord>& servers_of(SyncKind kind) const;
  [[nodiscard]] WaiterLinks links() const { return {&links_[0], links_.size()}; }
  // Returns the counter of a processor's profile that counts the same, if there is one.
  [[nodiscard]] static constexpr std::optional<multigrain::Counter> in_profile(Counter counter) {
    switch (counter) {
      case kLockLocal:
        return multigrain::Counter::kLocksLocal;
      case kLockRemote:
        return multigrain::Counter::kLocksRemote;
      case kBarriers:
        return multigrain::Counter::kBarriers;
      case kDeferred:
        return multigrain::Counter::kDeferredReleases;
      default:
        return std::nullopt;
    }
  }
  void count(Counter counter) {
    if (const auto same = in_profile(counter)) this_profile().count(*same);
    if (t_stripe == 0) [[unlikely]]
      take_stripe();
    std::atomic<uint64_t>& value = counters_[t_stripe - 1].value[counter];
    // A stripe but the last belongs to one thread.
    if (t_stripe < kStripes)
      value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    else
      value.fetch_add(1, std::memory_order_relaxed);
  }
  static void take_stripe();
  void on_recycle(const Message& message);

  // lock.cpp
  bool take_network_lock(SyncId id, const SyncHandle& lock, bool only_try);
  [[nodiscard]] LockPlace place_of(const SyncHandle& lock) const;
  [[nodiscard]] bool forget_lock(LockRecord& record, const SyncHandle& lock);
  template <typename Transition>
  bool transition(LockRecord& record, const SyncHandle& lock, Transition&& step);
  void perform(SyncId lock, const LockPlace& place, const LockActions& actions, SendContext context);
  [[nodiscard]] bool is_held(SyncId lock) const;
  [[nodiscard]] Nanoseconds free_since(const SyncHandle& lock) const;
  void taken(const SyncHandle& lock);
  void let_go(const SyncHandle& lock);
  bool lock_slowly(SyncId id, const SyncHandle& lock, LockRecord& record, bool only_try);
  void unlock_slowly(SyncId id, const SyncHandle& lock, LockRecord& record, bool flushed);
  void on_lock_message(const Message& message);

  // barrier.cpp
  [[nodiscard]] BarrierPlace barrier_place_of(const SyncHandle& barrier) const;
  [[nodiscard]] bool enter_generation(BarrierRecord& record, const SyncHandle& barrier) MG_REQUIRES(record.guard);
  static void arrive(BarrierRecord& record) MG_REQUIRES(record.guard);
  static void release_waiters(BarrierRecord& record, Nanoseconds since);
  [[nodiscard]] static Nanoseconds depart(BarrierRecord& record, const BarrierActions& actions)
      MG_REQUIRES(record.guard);
  void barrier_of_all(SyncId id, const SyncHandle& barrier, BarrierRecord& record);
  void gather_and_learn(SyncId id, const BarrierPlace& place, BarrierRecord& record);
  static void call_worker(BarrierRecord& record, const BarrierActions& actions, Nanoseconds since);
  void barrier_of_some(SyncId id, const SyncHandle& barrier, BarrierRecord& record);
  void go_on(SyncId id, const BarrierPlace& place, BarrierRecord& record, uint32_t episode,
             const BarrierActions& actions, SendContext context) MG_RELEASE(record.guard);
  void perform(SyncId id, const BarrierPlace& place, BarrierRecord& record, uint32_t episode,
               const BarrierActions& actions, Nanoseconds since, SendContext context);
  void counted_arrival(SyncId id, BarrierRecord& record, uint32_t count, NodeId from) MG_REQUIRES(record.guard);
  void check_sender(const Message& message, const SyncHandle& barrier, const BarrierPlace& place) const;
  void on_barrier_message(const Message& message);

  // server.cpp
  uint32_t call(SyncId id, SyncKind kind, ServerCall what, uint32_t argument, const char* bad, const char* destroyed);
  [[nodiscard]] bool nobody_waits(SyncId cond, const char* bad);
  void add_to_cond_word(const SyncHandle& cond, uint64_t waiters);
  [[nodiscard]] bool enter_generation(ServerRecord& record, const SyncHandle& handle) MG_REQUIRES(record.guard);
  void start_call(SyncId id, const SyncHandle& handle, ServerCall what, uint32_t argument, uint32_t slot,
                  const char* destroyed);
  [[nodiscard]] bool serve_call(const SyncHandle& handle, ServerCall what, uint32_t argument, WaiterId caller);
  void answer_to(WaiterId waiter, ServerAnswer answer, uint32_t result);
  void on_server_message(const Message& message);

  SyncHost& host_;
  Fabric& fabric_;
  const NodeId self_;
  const unsigned nodes_;
  const unsigned processors_;  // of each node
  const SyncOptions options_;

  std::optional<NetworkLocks> network_locks_;
  std::optional<Rendezvous> rendezvous_;
  SparseArray<LockRecord> locks_;
  // The virtual time at which each lock was last let go here: no processor takes it earlier. Used in virtual time only.
  SparseArray<std::atomic<Nanoseconds>> lock_free_since_;
  SparseArray<BarrierRecord> barriers_;
  SparseArray<ServerRecord> conds_;
  SparseArray<ServerRecord> sems_;
  SparseArray<ServerRecord> flags_;

  HandleSource lock_source_;
  HandleSource barrier_source_;
  HandleSource cond_source_;
  HandleSource sem_source_;
  HandleSource flag_source_;

  SpinLock slots_guard_;
  uint32_t free_slots_ MG_GUARDED_BY(slots_guard_) = 0;  // slot + 1
  // All slots below this one were used before.
  uint32_t fresh_slots_ MG_GUARDED_BY(slots_guard_) = 0;
  SparseArray<Slot> slots_;
  SparseArray<WaiterLink> links_;
  // Indexed by WaiterId: 1 while a call from that slot of another node is not answered yet.
  SparseArray<std::atomic<uint8_t>> calls_;

  mutable std::array<CounterStripe, kStripes> counters_{};
};

}  // namespace multigrain
