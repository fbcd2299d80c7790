// The home of a guest on several nodes: it knows which thread runs where, and has the shadows of those that are away.
//
// A shadow is a thread of the home's process. It has the number by which the guest knows the shadow's thread, and that
// thread's signal mask, so that the kernel sends the guest's signals to it as it would to the thread. Invariants:
//  (S1) A shadow carries out one request at a time, in the order in which its thread makes them.
//  (S2) A signal that a shadow has received and its thread has not yet acted on keeps all others blocked. Once it is
//       sent (sent_ != answered_), every request of the thread that could wait, or that changes something, is made
//       again after the signal: the reply is kRestart. The thread tells how many signals it has acted on with its next
//       mask (kMask), before the guest goes on, be it in a handler or not. A mask alone ends nothing: the thread may
//       have sent it before it knew of the signal.
//  (S3) A shadow takes its thread's place (kTakeOver) only when sent_ == answered_, and goes on in the guest only when
//       the thread's node has let the slot go (kEnd). The thread has its number, its mask and its signals still.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <semaphore>
#include <vector>

#include "base/mutex.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "guest/nodes/home_files.h"
#include "guest/nodes/messages.h"
#include "guest/nodes/thread_profiles.h"
#include "guest/thread_block.h"
#include "guest/threads.h"
#include "memory/region.h"

namespace multigrain::guest {

class Shadow;

// The home needs this of its node.
class HomeHost {
 public:
  virtual ~HomeHost() = default;
  // Returns the area of the address. From then on the home counts it as mapped on the asking thread's node.
  virtual AreaAnswer answer_area(uint64_t address) = 0;
  // Ends the guest by exit_group().
  [[noreturn]] virtual void exit_guest(int status) = 0;
};

class Home {
 public:
  // `slots` is this node's memory of the slots. `cores` is how many cores this node has.
  Home(Fabric& fabric, const WaitPolicy& policy, HomeHost& host, std::byte* slots, unsigned cores,
       ThreadProfiles& profiles);
  ~Home();
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

  // Has nodes read files by themselves. The caller does this before there is a thread on another node.
  void use_local_files(HomeFiles& files) { files_ = &files; }

  // Starts a thread on the node that has the fewest. `parent` is the block of the thread that starts it, or of that
  // thread's shadow. Returns the new thread's number, or -errno. The calling thread blocks all signals.
  long start_thread(const ThreadStart& start, const ThreadBlock& parent, uint64_t mask);
  // Must be called when a thread of this node has ended.
  void thread_ended_here() { thread_ended(0); }
  // Must be called when the guest's first thread has ended.
  void first_thread_has_ended(int status) {
    status_.store(status);
    thread_ended(0);
  }

  // While an object exists, a thread of this node sleeps (in a futex call), and leaves its core to other threads.
  class Sleeping {
   public:
    explicit Sleeping(Home& home) : home_(home) { home_.asleep_here_.fetch_add(1, std::memory_order_relaxed); }
    ~Sleeping() { home_.asleep_here_.fetch_sub(1, std::memory_order_relaxed); }
    Sleeping(const Sleeping&) = delete;
    Sleeping& operator=(const Sleeping&) = delete;

   private:
    Home& home_;
  };

 private:
  friend class Shadow;
  static void on_request(void* self, const Message& message);
  static void on_started(void* self, const Message& message);
  // Returns whether there is a core for each shadow that polls, besides those for the threads that run.
  [[nodiscard]] bool has_core_for_pollers() const;
  [[nodiscard]] NodeId choose_node() MG_REQUIRES(lock_);
  std::optional<uint16_t> take_slot() MG_REQUIRES(lock_);
  void shadow_ended(Shadow& shadow);
  // Gives the slot of a thread back.
  void release(Shadow& shadow);
  // The thread of this shadow runs at home from now on.
  void thread_came_home(Shadow& shadow);
  void thread_ended(unsigned node);
  Shadow* shadow_of(const Message& message);

  Fabric& fabric_;
  const WaitPolicy policy_;
  HomeHost& host_;
  std::byte* const slots_;
  const unsigned cores_;
  ThreadProfiles& profiles_;
  HomeFiles* files_ = nullptr;
  Mutex lock_;
  std::array<std::atomic<Shadow*>, slots::kCount> shadows_{};
  std::vector<uint16_t> free_slots_ MG_GUARDED_BY(lock_);
  std::array<std::atomic<unsigned>, NodeSet::kCapacity> threads_on_{};
  std::atomic<unsigned> threads_{1};
  std::atomic<int> status_{0};  // the first thread's status
  // These count this node's threads that sleep, and the shadows that poll.
  std::atomic<unsigned> asleep_here_{0};
  std::atomic<unsigned> polling_{0};
};

}  // namespace multigrain::guest
