// Progress and sleeping: which thread makes UCX progress, which handles messages, and when the service thread sleeps.
//
//   progress   of UCX: by every thread that has a ProgressScope: it polls, or waits for a remote operation. While one
//              does, UCX's descriptor is muted, so that the service thread is not woken by every arrival. The last to
//              end its scope arms UCX and unmutes the descriptor (`listening_`). These are four system calls, and an
//              armed UCX makes its peers' shared-memory transports send signals: more than a message costs there. So
//              while waits follow each other closely, in a polling phase, the last thread to end its scope leaves the
//              descriptor muted, and the service thread polls by itself every kPollInterval until the phase is over
//              (`polling_phase_`).
//   messages   in the queues: by threads that poll (begin_polling() in fabric.h). A thread that puts a message into a
//              queue and sees that no thread polls wakes the service thread by its event descriptor.
//
// No arrival is overlooked. Operations below are sequentially consistent, the lock orders the rest.
//  (1) An arrival that UCX has not been asked about. Consider the last end_progress() that brought progressing_ to 0
//      (U1). It then saw polling_phase_ set (U2), or set it and woke the service thread, or saw to it that listening_
//      is set. listening_ is set after ucp_worker_arm() has succeeded, so UCX's descriptor is or becomes readable, and
//      is cleared only by a thread that has counted itself, and whose U1 is still to come. If U2 saw polling_phase_
//      set: only the service thread clears it (V1), under the lock, and then reads progressing_ (V2). V1 comes after
//      U2, so V2 sees 0, and the service thread listens before it sleeps; or it sees a later thread, whose U1 is still
//      to come. While polling_phase_ is set the service thread never sleeps for longer than kPollInterval, but for the
//      sleep in which it was set first, which the wake-up that goes with it ends. When the service thread wakes it
//      makes progress, and arms again before it sleeps unless a thread has a scope.
//  (2) A message in a queue: this is the argument of shm/doorbell.h with the dispatcher's pending_, pollers_ and
//      waking_ for pending, the count and kWaking. S1 and S2 are Dispatcher::enqueue(); S3 is wake_unless_polled(),
//      which every thread calls that made progress and does not go on to handle messages; the event descriptor keeps a
//      wake-up until it is read, which is V1.
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

  // Lets UCX work once, if no other thread is inside it. Returns whether anything happened.
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

  // Of the contract (fabric.h).
  void begin_polling();
  void end_polling();
  void serve();
  void wake_service();

  // S3: wakes the service thread if there are messages and no thread polls.
  void wake_unless_polled();

 private:
  void begin_progress();
  void end_progress();
  void wake();
  bool handle_unless_polled(Nanoseconds& next_work);
  Nanoseconds prepare_to_sleep();
  void sleep(Nanoseconds longest);
  void listen(bool on) MG_REQUIRES(inside_ucx);
  bool try_listen() MG_REQUIRES(inside_ucx);

  Parts& parts_;
  int ucx_fd_ = -1;
  int event_fd_ = -1;
  int epoll_fd_ = -1;
  bool precise_timers_ = false;         // of the service thread
  std::atomic<bool> listening_{false};  // UCX's descriptor wakes the service thread; written under the lock
  alignas(64) std::atomic<uint32_t> pollers_{0};
  std::atomic<uint32_t> progressing_{0};
  std::atomic<bool> waking_{false};
  std::atomic<bool> polling_phase_{false};  // the service thread polls every kPollInterval
  std::atomic<Nanoseconds> last_end_{0};    // of the last scope
  std::atomic<bool> stop_serving_{false};
};

}  // namespace multigrain::ucx
