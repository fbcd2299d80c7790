// The futexes of a guest whose threads run on several nodes: the system call futex(), and what carries out the actions
// of the pure engine (engine.h).
//
// All words are the guest's, in sequentially consistent shared memory; the caller of futex() reads them. One node
// serves all futexes. Calls of that node send no messages.
//
// Any thread of the node may use call() and wake(); the rest is for the threads that handle messages. No function uses
// malloc or stdio after construction, and none holds a lock while it waits or while it uses its Caller.
#pragma once

#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "sync/futex/engine.h"
#include "sync/handle.h"

namespace multigrain {

class Futexes {
 public:
  // How many calls of one node can be under way at a time; one more ends the run with a sentence.
  static constexpr uint32_t kMaxCalls = 1u << 15;

  // The caller of a futex call. It gives the call the guest's memory, and sleep that signals interrupt. Its functions
  // are called on the thread that makes the call, which may take page faults in load() and modify().
  class Caller {
   public:
    virtual ~Caller() = default;
    // Reads the aligned word. Returns false if the guest cannot read it (EFAULT).
    virtual bool load(uint64_t address, uint32_t& value) = 0;
    // Carries out the operation that FUTEX_WAKE_OP encodes in its last argument, as one atomic read-modify-write: see
    // apply_operation(). `before` becomes the word's old value. Returns false if the guest cannot write the word.
    virtual bool modify(uint64_t address, uint32_t operation, uint32_t& before) = 0;
    // Sleeps as FUTEX_WAIT_BITSET with all bits does, on a word that belongs to Futexes and is private to the process:
    // returns once the word is not `expected` and a FUTEX_WAKE (private) of it was made, or sooner. `deadline` is
    // absolute, on CLOCK_REALTIME or CLOCK_MONOTONIC; null means none. Returns 0 or -EAGAIN if the thread is to look
    // again, -ETIMEDOUT, or, if a signal came, what the guest's call is to return unless the thread is woken: -EINTR,
    // or a value that makes the guest repeat the call.
    virtual long sleep(std::atomic<uint32_t>& word, uint32_t expected, const timespec* deadline, bool realtime) = 0;
  };

  // Registers the handlers of message_range::kFutex with `fabric`. Construct it on every node, with the same
  // server, before any message can arrive. The fabric must outlive the object, and no message may be delivered to
  // this node once it is gone.
  Futexes(Fabric& fabric, const WaitPolicy& policy, NodeId server);
  Futexes(const Futexes&) = delete;
  Futexes& operator=(const Futexes&) = delete;

  // Makes the system call futex(), with the guest's arguments; the caller has copied the timeout (null: none).
  // `second_value` is the fourth argument, for operations whose fourth argument is a number. Returns what the system
  // would, -errno for errors, or what Caller::sleep() has returned.
  long call(Caller& caller, uint64_t address, int operation, uint32_t value, const timespec* timeout,
            uint32_t second_value, uint64_t second_address, uint32_t third_value);
  // Makes a FUTEX_WAKE, for the ends of threads. Returns how many threads were woken, or -EINVAL.
  long wake(uint64_t address, uint32_t count);

  // Returns whether the fourth argument of that operation is a timeout, to be copied, rather than a number.
  static bool has_timeout(int operation);
  // Computes what FUTEX_WAKE_OP's `operation` makes of a word. Returns false if there is no such operation (ENOSYS).
  static bool apply_operation(uint32_t operation, uint32_t before, uint32_t& after);
  // Says in `holds` whether a word's old value meets the condition of FUTEX_WAKE_OP's `operation`. Returns false if there
  // is no such condition (ENOSYS).
  static bool compare(uint32_t operation, uint32_t before, bool& holds);

 private:
  // The number of buckets of the server's table, a power of two.
  static constexpr size_t kBuckets = 1u << 12;
  // A slot's `answer` is a FutexAnswer; or kAsleep, if its thread may be in Caller::sleep(); or kUnused, if no thread
  // expects an answer.
  static constexpr uint32_t kAsleep = static_cast<uint32_t>(FutexAnswer::kCount);
  static constexpr uint32_t kUnused = kAsleep + 1;

  struct Slot {
    std::atomic<uint32_t> answer;
    std::atomic<uint32_t> result;  // a kDone's result
    uint32_t next_free;            // 1 + the slot
    EventCount event;
  };
  struct Deadline {
    const timespec* at;  // null: none
    bool is_realtime;
  };
  struct Two {
    uint64_t address;
    uint32_t count;
    uint64_t second_address;
    uint32_t second_count;
    [[nodiscard]] FutexRequest request(FutexCall call) const {
      return {.call = call, .key = address, .second_key = second_address, .count = count, .second_count = second_count};
    }
  };

  // A call has a slot for as long as it lasts. This is the caller's side of the protocol.
  class Place {
   public:
    explicit Place(Futexes& futexes);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    FutexAnswer ask(const FutexRequest& request);
    void expect();
    void tell(const FutexRequest& request);
    long sleep(Caller& caller, const Deadline& deadline);
    FutexAnswer await(PollingScope& polling);
    [[nodiscard]] uint32_t result() const { return slot().result.load(std::memory_order_relaxed); }

   private:
    [[nodiscard]] Slot& slot() const { return futexes_.slots_[number_]; }
    [[nodiscard]] bool is_answered() const;

    Futexes& futexes_;
    const uint32_t number_;
  };

  long wait(Caller& caller, uint64_t address, uint32_t expected, uint32_t bitset, const Deadline& deadline);
  long wake(uint64_t address, uint32_t count, uint32_t bitset);
  long requeue(Caller& caller, const Two& keys, const uint32_t* expected);
  long wake_op(Caller& caller, const Two& keys, uint32_t operation);
  long done(Place& place, const FutexRequest& request);

  void serve(WaiterId caller, const FutexRequest& request);
  void send_answer(WaiterId to, FutexAnswer answer, uint32_t result);
  void deliver(uint32_t slot, FutexAnswer answer, uint32_t result);
  void on_call(const Message& message);
  void on_answer(const Message& message);
  [[nodiscard]] uint32_t take_slot();
  void free_slot(uint32_t slot);

  Fabric& fabric_;
  const WaitPolicy policy_;
  const NodeId self_;
  const NodeId server_;

  SparseArray<Slot> slots_;
  SpinLock slots_guard_;
  uint32_t free_slots_ MG_GUARDED_BY(slots_guard_) = 0;
  uint32_t fresh_slots_ MG_GUARDED_BY(slots_guard_) = 0;

  // The server's tables, and its lock. Other nodes have one element of each.
  SparseArray<FutexEntry> entries_;
  SparseArray<FutexBucket> buckets_;
  SpinLock engine_guard_;
  FutexServer engine_ MG_GUARDED_BY(engine_guard_);
};

}  // namespace multigrain
