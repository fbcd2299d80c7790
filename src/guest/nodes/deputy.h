// What the home does for a thread of the guest that runs elsewhere: a *deputy* is a thread of the home with the number
// by which the guest knows the other one, with its signals and its mask, and makes its calls. A shadow (home.h) is the
// deputy of one thread of a process whose other threads run at home or on other nodes; a shadow process (placement.h)
// is that of a whole process. Invariants S1 and S2 of home.h are kept here.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "guest/nodes/messages.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

class Deputy {
 public:
  // The block is the deputy's own. `mask` is the signal mask of the thread that is away.
  Deputy(ThreadBlock& block, uint64_t mask) : block_(block), mask_(mask) {}
  Deputy(const Deputy&) = delete;
  Deputy& operator=(const Deputy&) = delete;

 protected:
  virtual ~Deputy() = default;

  // Carries out a request, and returns its result. What goes back with it is put into `answer`.
  virtual long carry_out(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer);
  // Does so unless a signal is on its way to the thread that has to come first; then the result is kRestart.
  long carry_out_in_order(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer);

  // Lets the system send the signals that the thread does not block.
  void apply_mask();
  static void block_all();
  // Returns a signal that has come for the thread, which counts as sent then; si_signo is 0 if there is none. Further
  // ones are blocked until the thread has acted on it.
  siginfo_t take_signal();
  [[nodiscard]] bool has_sent_signal() const { return sent_ != answered_; }

  ThreadBlock& block_;
  uint64_t mask_;
  pid_t tid_ = 0;
  bool takes_over_ = false;
  // A context that came with a request is put here, for the child of a fork or a new thread.
  alignas(64) std::byte context_[kFrameSize];

 private:
  long call(const Request& request);
  long set_action(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer);
  long set_mask(uint64_t mask, bool must_take, uint32_t answered);
  void act_by_default(int signal, bool is_forced);
  long take_over(std::span<const std::byte> data);

  // These count the signals that the thread was sent, and those on which it has acted.
  uint32_t sent_ = 0;
  uint32_t answered_ = 0;
};

}  // namespace multigrain::guest
