// Carries out the futex operations of mutexes whose word says which thread has them (FUTEX_LOCK_PI and the like), for
// words that the engine of src/sync/futex serves. A thread of another node cannot have its priority raised, so no
// thread has: what is left is a mutex.
//
// The word is 0 or the owner's number, with FUTEX_WAITERS if the owner has to wake a waiter when it unlocks, and
// FUTEX_OWNER_DIED. The kernel would hand the mutex over to a waiter. Here the word becomes 0 and one waiter is woken.
// It tries again, and sets FUTEX_WAITERS again whether it gets the mutex or not, since other waiters may sleep.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "guest/calls.h"
#include "guest/entry.h"
#include "guest/nodes/futex_caller.h"
#include "guest/nodes/nodes.h"

namespace multigrain::guest {
namespace {

uint32_t owner_of(uint32_t value) {
  return value & FUTEX_TID_MASK;
}

class OwnedFutex {
 public:
  OwnedFutex(uint64_t address, ThreadBlock& thread)
      : word_(reinterpret_cast<void*>(address)), self_(static_cast<uint32_t>(number_of(thread))) {}

  // Does what FUTEX_TRYLOCK_PI does. -EAGAIN says that another thread has the mutex, and `value` is the word then.
  long try_lock(uint32_t& value, uint32_t marks) {
    if (!load_guarded(word_, value)) return -EFAULT;
    while (owner_of(value) == 0) {
      const uint32_t wanted = self_ | marks | (value & (FUTEX_WAITERS | FUTEX_OWNER_DIED));
      const Exchange exchange = exchange_guarded(word_, value, wanted);
      if (exchange != Exchange::kDiffers) return exchange == Exchange::kDone ? 0 : -EFAULT;
    }
    return owner_of(value) == self_ ? -EDEADLK : -EAGAIN;
  }

  // Has the owner wake this thread when it unlocks. -EAGAIN says that the word has changed.
  long mark(uint32_t& value) {
    if ((value & FUTEX_WAITERS) != 0) return 0;
    const uint32_t wanted = value | FUTEX_WAITERS;
    const Exchange exchange = exchange_guarded(word_, value, wanted);
    value = wanted;
    return exchange == Exchange::kDone ? 0 : exchange == Exchange::kFault ? -EFAULT : -EAGAIN;
  }

  // Returns 1 if a waiter is to be woken.
  long unlock() {
    uint32_t value = 0;
    if (!load_guarded(word_, value)) return -EFAULT;
    while (owner_of(value) == self_) {
      const bool has_waiters = (value & FUTEX_WAITERS) != 0;
      const Exchange exchange = exchange_guarded(word_, value, 0);
      if (exchange != Exchange::kDiffers) return exchange == Exchange::kFault ? -EFAULT : has_waiters ? 1 : 0;
    }
    return -EPERM;
  }

 private:
  void* const word_;
  const uint32_t self_;
};

}  // namespace

bool Nodes::is_there(uint32_t tid, ThreadBlock& thread) {
  if (thread.away == nullptr) return syscall(SYS_tgkill, getpid(), tid, 0) == 0;
  const uint64_t arguments[6] = {tid, 0, 0, 0, 0, 0};
  return call_at_home(SYS_tkill, arguments, thread) != -ESRCH;
}

long Nodes::lock_owned(const Call& call, const timespec* timeout) {
  const uint64_t address = call.arguments[0];
  const int command = call.integer(1) & FUTEX_CMD_MASK;
  const bool is_realtime = command == FUTEX_LOCK_PI || (call.integer(1) & FUTEX_CLOCK_REALTIME) != 0;
  const int wait = FUTEX_WAIT_BITSET | (is_realtime ? FUTEX_CLOCK_REALTIME : 0);
  OwnedFutex futex(address, call.thread);
  FutexCaller caller(call.thread, home_ ? &*home_ : nullptr);
  uint32_t marks = 0;
  while (true) {
    uint32_t value = 0;
    if (const long tried = futex.try_lock(value, marks); tried != -EAGAIN) return tried;
    if (!is_there(owner_of(value), call.thread)) {
      // The owner may have ended after it unlocked.
      uint32_t now = 0;
      if (!load_guarded(reinterpret_cast<const void*>(address), now)) return -EFAULT;
      if (owner_of(now) == owner_of(value)) return -ESRCH;
      continue;
    }
    if (const long marked = futex.mark(value); marked != 0) {
      if (marked == -EAGAIN) continue;
      return marked;
    }
    const long waited = futexes_.call(caller, address, wait, value, timeout, 0, 0, FUTEX_BITSET_MATCH_ANY);
    // The kernel has this call made again whatever handler there was.
    if (waited == -EINTR) return kRestart;
    if (waited != 0 && waited != -EAGAIN) return waited;
    marks = FUTEX_WAITERS;
  }
}

long Nodes::owned_futex(const Call& call, const timespec* timeout) {
  const uint64_t address = call.arguments[0];
  if (address % sizeof(uint32_t) != 0) return -EINVAL;
  OwnedFutex futex(address, call.thread);
  switch (call.integer(1) & FUTEX_CMD_MASK) {
    case FUTEX_TRYLOCK_PI: {
      uint32_t value = 0;
      return futex.try_lock(value, 0);
    }
    case FUTEX_UNLOCK_PI: {
      const long unlocked = futex.unlock();
      if (unlocked == 1) futexes_.wake(address, 1);
      return unlocked < 0 ? unlocked : 0;
    }
    default:
      return lock_owned(call, timeout);
  }
}

}  // namespace multigrain::guest
