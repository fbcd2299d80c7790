// Lets a thread of the guest on a node that is not the home ask its shadow for what only the home can do.
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

// A node knows this of one of its threads that is away from home.
class Away {
 public:
  explicit Away(uint16_t slot) : slot_(slot) {}
  [[nodiscard]] uint16_t slot() const { return slot_; }
  // Returns how many bytes of the last reply's data are an offer (local_files.h).
  [[nodiscard]] uint32_t offered() const { return offered_; }

 private:
  friend class Requests;
  const uint16_t slot_;
  EventCount changed_;
  std::atomic<uint32_t> has_reply_{0};
  // These are the reply's.
  int64_t result_ = 0;
  uint32_t bytes_ = 0;
  bool has_signal_ = false;
  uint32_t offered_ = 0;
  // The home sends the next signal only when the thread has answered this one. No lock guards it: the thread itself can
  // be the one that handles the home's message, and is then interrupted there.
  siginfo_t signal_{};
  std::atomic<bool> has_sent_signal_{false};
  pid_t tid_ = 0;  // its number on this node
};

class Requests {
 public:
  // The slots begin at `slots` in the frames of the home, which is node 0. Registers the handlers of
  // the home's messages.
  Requests(Fabric& fabric, const WaitPolicy& policy, uint64_t slots);

  // Makes the calling thread the thread of `away`, until end().
  void begin(Away& away);
  // Ends the thread's shadow.
  void end(Away& away);
  // Has the shadow carry out the request, with `data` behind it, and returns its result. The reply's own data is stored
  // in `answer`, if that is given. A signal that came with the reply becomes the thread's pending one.
  long ask(ThreadBlock& thread, Request request, std::span<const std::byte> data = {},
           std::vector<std::byte>* answer = nullptr);
  // Returns the signal that the home has sent; si_signo is 0 if there is none. This is signal-safe.
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

// Returns what the request kTakeOver has behind it, of a thread of the guest that stands at `context`: ThreadToTakeOver and the
// context. The calling thread is that thread.
std::vector<std::byte> thread_to_take_over(const ucontext_t& context, const ThreadBlock& thread);

// Asks the home for the dispositions of signals, on behalf of a thread that is away.
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
