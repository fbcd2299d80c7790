// Carries out the futex calls of a guest on several nodes. Most are served by the engine of src/sync/futex, by address.
// Words in shared mappings of files are the kernel's, for calls that do not say that they are private: the nodes map
// the same file on the same machine, and so may a process that knows nothing of nodes, such as a child of the guest's,
// with a lock in that memory. On several hosts only the home has such words: a thread that is away comes home to them.
//
// No wake-up is lost as long as a waker looks where the waiters are:
// (Q1) Who has the queue of a word is decided by the guest's area that has the word, and by nothing else; above all not
//      by what this node happens to have mapped. The nodes know the same areas, so they decide alike.
// (Q2) A node that is not the home forgets areas at any moment, for example when the guest forks. So it decides by an
//      area that it finds under the lock under which its areas change, and if it finds none, it asks the home again.
// (Q3) The kernel finds waiters by the file and the place in it, which all mappings of the file have in common, those
//      of other processes included. Where a node has forgotten the area meanwhile, nothing can be read, so the kernel
//      refuses the call (EFAULT) without effect, and the call is made again.
// (Q4) A call of two words of which one is the kernel's and one the engine's moves no waiter from one queue to the
//      other, where those who wake by the second word would not find it: it wakes them (mixed_futex()).
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "guest/calls.h"
#include "guest/entry.h"
#include "guest/nodes/futex_caller.h"
#include "guest/nodes/nodes.h"
#include "profile/this_thread.h"

namespace multigrain::guest {
namespace {

constexpr long kSecond = 1'000'000'000;
constexpr int kLock2 = 13;  // FUTEX_LOCK_PI2, newer than some headers

bool has_two_words(int command) {
  return command == FUTEX_REQUEUE || command == FUTEX_CMP_REQUEUE || command == FUTEX_WAKE_OP;
}

bool is_wait(int command) {
  return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

bool is_owned(int command) {
  switch (command) {
    case FUTEX_LOCK_PI:
    case kLock2:
    case FUTEX_TRYLOCK_PI:
    case FUTEX_UNLOCK_PI:
      return true;
    default:
      return false;
  }
}

// Returns whether the kernel can carry the operation out although it knows the guest's threads by other numbers.
bool is_without_owner(int command) {
  return is_wait(command) || has_two_words(command) || command == FUTEX_WAKE || command == FUTEX_WAKE_BITSET;
}

timespec from_now(const timespec& timeout) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += timeout.tv_nsec;
  until.tv_sec += until.tv_nsec / kSecond;
  until.tv_nsec %= kSecond;
  // This is so far away that it is no deadline.
  if (__builtin_add_overflow(until.tv_sec, timeout.tv_sec, &until.tv_sec)) until.tv_sec = INT64_MAX;
  return until;
}

}  // namespace

Nodes::Queue Nodes::queue_of(uint64_t address) {
  const auto* const word = reinterpret_cast<const void*>(address);
  uint32_t ignored = 0;
  while (load_guarded(word, ignored)) {
    // The guest has no areas there, so it can share nothing.
    if (!given_.is_in_allowed({address, address + 1})) return Queue::kEngine;
    if (is_home()) return of_files_.has_shared(address) ? Queue::kKernel : Queue::kEngine;
    // Reading the word has its area mapped here, unless it has been forgotten already.
    if (const auto area = areas_.area_of(address))
      return area->is_shared && area->file != 0 ? Queue::kKernel : Queue::kEngine;
  }
  return Queue::kNone;
}

long Nodes::wake_in(Queue queue, uint64_t address, uint32_t count) {
  if (queue == Queue::kEngine) return futexes_.wake(address, count);
  while (true) {
    const uint64_t version = areas_.version();
    uint32_t ignored = 0;
    if (!load_guarded(reinterpret_cast<const void*>(address), ignored)) return -EFAULT;
    const long result = syscall(SYS_futex, address, FUTEX_WAKE, count, nullptr, nullptr, 0);
    if (result >= 0) return result;
    if (errno != EFAULT || version == areas_.version()) return -errno;
  }
}

// A waiter may always be woken early, and then looks at the first word again. So those that should be moved to the
// second word's queue are woken, too.
long Nodes::mixed_futex(const Call& call, Queue first, Queue second) {
  const uint64_t address = call.arguments[0];
  const auto count = static_cast<int>(call.arguments[2]);
  const auto second_count = static_cast<int>(call.arguments[3]);
  const auto third = static_cast<uint32_t>(call.arguments[5]);
  FutexCaller caller(call.thread, home_ ? &*home_ : nullptr);
  if ((call.integer(1) & FUTEX_CMD_MASK) != FUTEX_WAKE_OP) {
    if (count < 0 || second_count < 0) return -EINVAL;
    if (first == Queue::kNone || second == Queue::kNone) return -EFAULT;
    if ((call.integer(1) & FUTEX_CMD_MASK) == FUTEX_CMP_REQUEUE) {
      uint32_t value = 0;
      if (!caller.load(address, value)) return -EFAULT;
      if (value != third) return -EAGAIN;
    }
    const uint32_t all = static_cast<uint32_t>(count) + static_cast<uint32_t>(second_count);
    return all == 0 ? 0 : wake_in(first, address, std::min<uint32_t>(all, INT32_MAX));
  }
  uint32_t before = 0;
  bool holds = false;
  if (first == Queue::kNone || second == Queue::kNone) return -EFAULT;
  if (!Futexes::apply_operation(third, 0, before)) return -ENOSYS;
  if (!caller.modify(call.arguments[4], third, before)) return -EFAULT;
  if (!Futexes::compare(third, before, holds)) return -ENOSYS;
  const long woken = wake_in(first, address, static_cast<uint32_t>(count));
  if (woken < 0 || !holds) return woken;
  const long more = wake_in(second, call.arguments[4], static_cast<uint32_t>(second_count));
  return more < 0 ? more : woken + more;
}

// The words may not be mapped on this node, or no longer. So they are read first, and again if the kernel could
// not read them.
long Nodes::system_futex(const Call& call, bool has_timeout, const timespec& timeout) {
  const int command = call.integer(1) & FUTEX_CMD_MASK;
  uint64_t arguments[6];
  std::ranges::copy(call.arguments, arguments);
  timespec deadline = timeout;
  if (has_timeout) arguments[3] = reinterpret_cast<uint64_t>(&deadline);
  const bool is_valid = timeout.tv_sec >= 0 && timeout.tv_nsec >= 0 && timeout.tv_nsec < kSecond;
  if (has_timeout && call.integer(1) == FUTEX_WAIT && is_valid) {
    // This is the same wait with a deadline, which stays when the wait is made again.
    deadline = from_now(timeout);
    arguments[1] = FUTEX_WAIT_BITSET;
    arguments[5] = FUTEX_BITSET_MATCH_ANY;
  }
  while (true) {
    uint32_t ignored = 0;
    const uint64_t version = areas_.version();
    if (!load_guarded(reinterpret_cast<const void*>(arguments[0]), ignored)) return -EFAULT;
    if (has_two_words(command) && !load_guarded(reinterpret_cast<const void*>(arguments[4]), ignored)) return -EFAULT;
    long result = pass_call(SYS_futex, arguments, call.thread);
    if (result == -EINTR && call.thread.away != nullptr && is_wait(command)) {
      result = interrupted_away(call.thread, has_timeout);
      if (result == -EAGAIN) continue;
    }
    if (result != -EFAULT || version == areas_.version()) return result;
  }
}

// Only the home has a thread with the number that the word says, so the call is made there.
long Nodes::system_owned_futex(const Call& call, bool has_timeout, const timespec& timeout) {
  uint64_t arguments[6];
  std::ranges::copy(call.arguments, arguments);
  if (call.thread.away == nullptr) {
    if (has_timeout) arguments[3] = reinterpret_cast<uint64_t>(&timeout);
    return pass_call(SYS_futex, arguments, call.thread);
  }
  // The shadow has no memory of this thread's from which the kernel could read a deadline. So the deadline takes the
  // place of arguments that these calls do not have.
  arguments[3] = has_timeout ? 1 : 0;
  arguments[4] = static_cast<uint64_t>(timeout.tv_sec);
  arguments[5] = static_cast<uint64_t>(timeout.tv_nsec);
  return call_at_home(SYS_futex, arguments, call.thread);
}

long Nodes::futex(Call& call) {
  call.thread.needs_home = false;
  const long result = futex_here(call);
  // A word that only the home has is looked at there.
  if (call.thread.needs_home && result == -EFAULT) return kRestart;
  call.thread.needs_home = false;
  return result;
}

long Nodes::futex_here(Call& call) {
  this_profile().count(Counter::kFutexCalls);
  const CategoryScope waiting(this_profile(), Category::kLock);
  virtual_time::synchronise();
  const int command = call.integer(1) & FUTEX_CMD_MASK;
  timespec timeout{};
  const bool has_timeout =
      (is_wait(command) || command == FUTEX_LOCK_PI || command == kLock2) && call.arguments[3] != 0;
  if (has_timeout && !read_guest(call.arguments[3], timeout)) return -EFAULT;
  if ((call.integer(1) & FUTEX_PRIVATE_FLAG) == 0 && (is_without_owner(command) || is_owned(command)) &&
      call.arguments[0] % sizeof(uint32_t) == 0) {
    const Queue queue = queue_of(call.arguments[0]);
    // On several hosts this may be a word that only the home has: the call is made there.
    if (queue == Queue::kNone && call.thread.needs_home) return -EFAULT;
    if (has_two_words(command) && call.arguments[4] % sizeof(uint32_t) == 0) {
      const Queue second = queue_of(call.arguments[4]);
      if (queue != second || queue == Queue::kNone) return mixed_futex(call, queue, second);
    }
    if (queue == Queue::kKernel)
      return is_owned(command) ? system_owned_futex(call, has_timeout, timeout)
                               : system_futex(call, has_timeout, timeout);
  }
  if (is_owned(command)) {
    const bool is_valid = timeout.tv_sec >= 0 && timeout.tv_nsec >= 0 && timeout.tv_nsec < kSecond;
    return is_valid ? owned_futex(call, has_timeout ? &timeout : nullptr) : -EINVAL;
  }
  FutexCaller caller(call.thread, home_ ? &*home_ : nullptr);
  return futexes_.call(caller, call.arguments[0], call.integer(1), static_cast<uint32_t>(call.arguments[2]),
                       has_timeout ? &timeout : nullptr, static_cast<uint32_t>(call.arguments[3]), call.arguments[4],
                       static_cast<uint32_t>(call.arguments[5]));
}

void Nodes::wake(uint64_t address, uint32_t count) {
  if (const Queue queue = queue_of(address); queue != Queue::kNone) wake_in(queue, address, count);
}

}  // namespace multigrain::guest
