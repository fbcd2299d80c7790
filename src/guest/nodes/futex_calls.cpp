// The futexes of a guest on several nodes: most are served by the engine of src/sync/futex, by address. The words in shared mappings of
// files are the system's, for calls that do not say that they are private: the nodes map the same file on the same machine,
// and so may a process that knows nothing of nodes, such as a child of the guest's, with a lock in that memory.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "guest/calls.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/nodes/nodes.h"

namespace multigrain::guest {
namespace {

constexpr long kSecond = 1'000'000'000;

// A wait of a thread that is away was interrupted, by the host's own signal: what is to become of the call, since that signal
// knows nothing of SA_RESTART. -EAGAIN: there is nothing for the guest.
long interrupted_away(ThreadBlock& thread, bool has_deadline) {
  if (thread.pending_signal == 0) return -EAGAIN;
  const bool restarts = !has_deadline && (thread.actions->action(thread.pending_signal).flags & SA_RESTART) != 0;
  return restarts ? kRestart : -EINTR;
}

// The guest's memory and sleep, for the futexes of the engine.
class FutexCaller final : public Futexes::Caller {
 public:
  explicit FutexCaller(ThreadBlock& thread) : thread_(thread) {}

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
    const long result = pass_call(SYS_futex, arguments, thread_);
    return result == -EINTR && thread_.away != nullptr ? interrupted_away(thread_, deadline != nullptr) : result;
  }

 private:
  ThreadBlock& thread_;
};

bool has_two_words(int command) {
  return command == FUTEX_REQUEUE || command == FUTEX_CMP_REQUEUE || command == FUTEX_WAKE_OP;
}

bool is_wait(int command) {
  return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

// Whether the system can carry the operation out although it knows the guest's threads by other numbers.
bool is_without_owner(int command) {
  return is_wait(command) || has_two_words(command) || command == FUTEX_WAKE || command == FUTEX_WAKE_BITSET;
}

timespec from_now(const timespec& timeout) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += timeout.tv_nsec;
  until.tv_sec += until.tv_nsec / kSecond;
  until.tv_nsec %= kSecond;
  // So far away that it is no deadline.
  if (__builtin_add_overflow(until.tv_sec, timeout.tv_sec, &until.tv_sec)) until.tv_sec = INT64_MAX;
  return until;
}

}  // namespace

// The words may not be mapped on this node, or no longer: they are read first, and again if the system could not.
long Nodes::system_futex(const Call& call, bool has_timeout, const timespec& timeout) {
  const int command = call.integer(1) & FUTEX_CMD_MASK;
  uint64_t arguments[6];
  std::ranges::copy(call.arguments, arguments);
  timespec deadline = timeout;
  if (has_timeout) arguments[3] = reinterpret_cast<uint64_t>(&deadline);
  const bool is_valid = timeout.tv_sec >= 0 && timeout.tv_nsec >= 0 && timeout.tv_nsec < kSecond;
  if (has_timeout && call.integer(1) == FUTEX_WAIT && is_valid) {
    // The same with a deadline, which stays when the wait is made again.
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

long Nodes::futex(Call& call) {
  const int command = call.integer(1) & FUTEX_CMD_MASK;
  timespec timeout{};
  const bool has_timeout = is_wait(command) && call.arguments[3] != 0;
  if (has_timeout && !read_guest(call.arguments[3], timeout)) return -EFAULT;
  if ((call.integer(1) & FUTEX_PRIVATE_FLAG) == 0 && is_without_owner(command) &&
      call.arguments[0] % sizeof(uint32_t) == 0) {
    // Reading it has the area mapped, if this is not the home.
    uint32_t ignored = 0;
    if (load_guarded(reinterpret_cast<const void*>(call.arguments[0]), ignored) &&
        of_files_.has_shared(call.arguments[0]))
      return system_futex(call, has_timeout, timeout);
  }
  FutexCaller caller(call.thread);
  return futexes_.call(caller, call.arguments[0], call.integer(1), static_cast<uint32_t>(call.arguments[2]),
                       has_timeout ? &timeout : nullptr, static_cast<uint32_t>(call.arguments[3]), call.arguments[4],
                       static_cast<uint32_t>(call.arguments[5]));
}

void Nodes::wake(uint64_t address, uint32_t count) {
  if (of_files_.has_shared(address))
    syscall(SYS_futex, address, FUTEX_WAKE, count, nullptr, nullptr, 0);
  else
    futexes_.wake(address, count);
}

}  // namespace multigrain::guest
