// Makes a thread of the guest a caller of the futex engine of src/sync/futex.
#pragma once

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cerrno>

#include "guest/entry.h"
#include "guest/nodes/home.h"
#include "guest/signals.h"
#include "guest/thread_block.h"
#include "sync/futex/futexes.h"

namespace multigrain::guest {

// Returns what is to become of the call when the host's own signal has interrupted a wait of a thread away from home:
// the kernel knows that signal without the guest's SA_RESTART. -EAGAIN says that there is no signal for the guest.
inline long interrupted_away(ThreadBlock& thread, bool has_deadline) {
  if (thread.pending_signal == 0) return -EAGAIN;
  const bool restarts = !has_deadline && (thread.actions->action(thread.pending_signal).flags & SA_RESTART) != 0;
  return restarts ? kRestart : -EINTR;
}

// The engine reads the guest's memory by this, and lets the guest's thread sleep.
class FutexCaller final : public Futexes::Caller {
 public:
  // `home` is null on another node.
  FutexCaller(ThreadBlock& thread, Home* home) : thread_(thread), home_(home) {}

  bool load(uint64_t address, uint32_t& value) override {
    return load_guarded(reinterpret_cast<const void*>(address), value);
  }

  bool modify(uint64_t address, uint32_t operation, uint32_t& before) override {
    if (!load(address, before)) return false;
    while (true) {
      uint32_t after = 0;
      if (!Futexes::apply_operation(operation, before, after)) return true;
      const Exchange exchange = exchange_guarded(reinterpret_cast<void*>(address), before, after);
      if (exchange != Exchange::kDiffers) return exchange == Exchange::kDone;
    }
  }

  long sleep(std::atomic<uint32_t>& word, uint32_t expected, const timespec* deadline, bool realtime) override {
    const int operation = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | (realtime ? FUTEX_CLOCK_REALTIME : 0);
    const uint64_t arguments[6] = {reinterpret_cast<uint64_t>(&word),
                                   static_cast<uint64_t>(operation),
                                   expected,
                                   reinterpret_cast<uint64_t>(deadline),
                                   0,
                                   FUTEX_BITSET_MATCH_ANY};
    const long result = sleep_at(arguments);
    return result == -EINTR && thread_.away != nullptr ? interrupted_away(thread_, deadline != nullptr) : result;
  }

 private:
  long sleep_at(const uint64_t (&arguments)[6]) {
    if (home_ == nullptr) return pass_call(SYS_futex, arguments, thread_);
    const Home::Sleeping sleeping(*home_);
    return pass_call(SYS_futex, arguments, thread_);
  }

  ThreadBlock& thread_;
  Home* const home_;
};

}  // namespace multigrain::guest
