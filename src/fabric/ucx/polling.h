// Progress and sleeping: this part decides which thread makes UCX progress, which thread handles messages, and when the
// service thread sleeps.
//
//   progress   Every thread that has a ProgressScope, because it polls or waits for a remote operation, makes UCX
//              progress. While a thread has one, UCX's descriptor is muted, so that arrivals do not wake the service
//              thread. The last thread to end its scope arms UCX and unmutes the descriptor (`listening_`). These are
//              four system calls, and an armed UCX makes its peers' shared-memory transports send signals, which cost
//              more than a message there. So while waits follow each other closely, in a polling phase, the last thread
//              to end its scope leaves the descriptor muted, and the service thread polls by itself every kPollInterval
//              until the phase is over (`polling_phase_`).
//   messages   Threads that poll (begin_polling() in fabric.h) handle the messages in the queues. A thread that puts a
//              message into a queue and sees that no thread polls wakes the service thread by its event descriptor.
//
// No arrival is overlooked. Operations below are sequentially consistent; the lock orders the rest.
//  (1) Take an arrival that no thread has asked UCX about. Consider the last end_progress() that brought progressing_
//      to 0 (U1). It then saw polling_phase_ set (U2), or set it and woke the service thread, or saw to it that
//      listening_ is set. listening_ is set after ucp_worker_arm() has succeeded, so UCX's descriptor is or becomes
//      readable, and is cleared only under the lock and while a thread is counted, whose U1 is still to come. If U2 saw
//      polling_phase_ set: only the service thread clears it (V1), under the lock, and then reads progressing_ (V2). V1
//      comes after U2, so V2 sees 0, and the service thread listens before it sleeps; or V2 sees that a later thread is
//      counted, whose U1 is still to come. While polling_phase_ is set the service thread never sleeps for longer than
//      kPollInterval, except in the sleep during which it was set first, and that sleep is ended by the wake-up that
//      goes with the setting. When the service thread wakes it makes progress, and arms again before it sleeps unless a
//      thread has a scope. If a thread has one, the service thread mutes the descriptor itself before it sleeps: that
//      thread may still wait for the lock to do so, and the service thread, which has a real-time priority and would be
//      woken by an arrival again and again, would keep it from its core.
//  (2) Take a message in a queue. The argument is that of shm/doorbell.h, with the dispatcher's pending_, with pollers_
//      and with waking_ in the place of pending, the count of pollers and kWaking. S1 and S2 are Dispatcher::enqueue();
//      S3 is wake_unless_polled(), which every thread calls that made progress and does not go on to handle messages;
//      the event descriptor keeps a wake-up until it is read, which is V1.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ucx/inside_ucx.h"

namespace multigrain::ucx {

struct Parts;

class Polling {
 public:
  explicit Polling(Parts& parts) : parts_(parts) {}

  Status open();
  void close();

  // Lets UCX work once, if no other thread is inside it. Returns whether UCX has done anything.
  bool progress();

  // While it exists, its thread makes progress again and again.
  class ProgressScope {
   public:
    explicit ProgressScope(Polling& polling) : polling_(polling) { polling.begin_progress(); }
    ~ProgressScope() { polling_.end_progress(); }
    ProgressScope(const ProgressScope&) = delete;
    ProgressScope& operator=(const ProgressScope&) = delete;

   private:
    Polling& polling_;
  };
  [[nodiscard]] bool a_thread_progresses() const { return progressing_.load(std::memory_order_relaxed) != 0; }

  // These belong to the contract (fabric.h).
  void begin_polling();
  void end_polling();
  void serve();
  void wake_service();

  // Does S3: wakes the service thread if there are messages and no thread polls.
  void wake_unless_polled();

 private:
  void begin_progress();
  void end_progress();
  void wake();
  bool handle_unless_polled(Nanoseconds& next_work);
  Nanoseconds prepare_to_sleep();
  void sleep(Nanoseconds longest);
  void listen(bool on) MG_REQUIRES(inside_ucx);
  void mute() MG_REQUIRES(inside_ucx);
  bool try_listen() MG_REQUIRES(inside_ucx);

  Parts& parts_;
  int ucx_fd_ = -1;
  int event_fd_ = -1;
  int epoll_fd_ = -1;
  bool precise_timers_ = false;         // the service thread has set its timer slack
  std::atomic<bool> listening_{false};  // UCX's descriptor wakes the service thread; written under the lock
  alignas(64) std::atomic<uint32_t> pollers_{0};
  std::atomic<uint32_t> progressing_{0};
  std::atomic<bool> waking_{false};
  std::atomic<bool> polling_phase_{false};  // the service thread polls every kPollInterval
  std::atomic<Nanoseconds> last_end_{0};    // when the last scope ended
  std::atomic<bool> stop_serving_{false};
};

}  // namespace multigrain::ucx
