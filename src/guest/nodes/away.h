// A thread of the guest on a node that is not the home: how it asks its shadow.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "guest/nodes/messages.h"
#include "guest/signals.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

// What a node knows of one of its threads.
class Away {
 public:
  explicit Away(uint16_t slot) : slot_(slot) {}
  [[nodiscard]] uint16_t slot() const { return slot_; }

 private:
  friend class Requests;
  const uint16_t slot_;
  EventCount changed_;
  std::atomic<uint32_t> has_reply_{0};
  // Of the reply.
  int64_t result_ = 0;
  uint32_t bytes_ = 0;
  bool has_signal_ = false;
  // From the home, which sends the next one only when the thread has answered this one. Not under a lock: the thread itself can be the
  // one that handles the home's message, and is then interrupted there.
  siginfo_t signal_{};
  std::atomic<bool> has_sent_signal_{false};
  pid_t tid_ = 0;  // here
};

class Requests {
 public:
  // `slots`: where the slots begin in the frames of the home, which is node 0. Registers the handlers of what it sends.
  Requests(Fabric& fabric, const WaitPolicy& policy, uint64_t slots);

  // The calling thread is that of `away` from now on, until end().
  void begin(Away& away);
  // The shadow ends.
  void end(Away& away);
  // Has the shadow carry out the request, with `data` behind it. The reply's own data: in `answer`, if that is given. A signal that came
  // with the reply is the thread's pending one.
  long ask(ThreadBlock& thread, Request request, std::span<const std::byte> data = {},
           std::vector<std::byte>* answer = nullptr);
  // The signal that the home has sent; si_signo 0: none. Signal-safe.
  static siginfo_t take_signal(Away& away);

 private:
  static void on_reply(void* self, const Message& message);
  static void on_signal(void* self, const Message& message);
  Away* away_of(const Message& message) MG_REQUIRES(lock_);

  Fabric& fabric_;
  const WaitPolicy policy_;
  const uint64_t slots_;
  SpinLock lock_;
  std::array<Away*, slots::kCount> by_slot_ MG_GUARDED_BY(lock_){};
};

// The dispositions of signals, as a thread that is away has to ask for them.
class ActionsAtHome final : public SignalActions {
 public:
  explicit ActionsAtHome(ThreadBlock& thread) : thread_(thread) {}
  SystemAction action(int signal) override;
  long set(int signal, const SystemAction& action) override;
  void restore(int) override {}

 private:
  ThreadBlock& thread_;
};

}  // namespace multigrain::guest
