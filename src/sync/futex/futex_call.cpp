// The system call futex(): checks its arguments as Linux does, and in the same order (kernel/futex/syscalls.c).
#include <linux/futex.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "sync/futex/futexes.h"

namespace multigrain {
namespace {

constexpr long kSecond = 1'000'000'000;
// The addresses of a program end here.
constexpr uint64_t kAddressEnd = (uint64_t{1} << 47) - 4096;
constexpr uint32_t kAllBits = FUTEX_BITSET_MATCH_ANY;

// Returns 0, or the error that the address of a word deserves.
long check_word(uint64_t address) {
  if (address % sizeof(uint32_t) != 0) return -EINVAL;
  return address >= kAddressEnd ? -EFAULT : 0;
}

// Linux wakes a waiter before it looks how many it should wake.
uint32_t at_least_one(uint32_t count) {
  return static_cast<uint32_t>(std::max(1, static_cast<int>(count)));
}

// Returns `bits` of `value` from `first` on, as a signed number.
int field(uint32_t value, unsigned first, unsigned bits) {
  return static_cast<int>(value << (32 - first - bits)) >> (32 - bits);
}

// Returns the time that is `timeout` from now.
timespec from_now(const timespec& timeout) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  // The system's clocks end at 2^63 ns, so a deadline that far away is as good as none.
  const time_t seconds =
      std::min<time_t>(timeout.tv_sec, std::numeric_limits<int64_t>::max() / kSecond - now.tv_sec - 2);
  const long nanoseconds = timeout.tv_nsec + now.tv_nsec;
  return {seconds + now.tv_sec + nanoseconds / kSecond, nanoseconds % kSecond};
}

}  // namespace

bool Futexes::has_timeout(int operation) {
  switch (operation & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_WAIT_REQUEUE_PI:
      return true;
    default:
      return false;
  }
}

long Futexes::call(Caller& caller, uint64_t address, int operation, uint32_t value, const timespec* timeout,
                   uint32_t second_value, uint64_t second_address, uint32_t third_value) {
  const int command = operation & FUTEX_CMD_MASK;
  const bool is_realtime = (operation & FUTEX_CLOCK_REALTIME) != 0;
  if (!has_timeout(operation)) timeout = nullptr;
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= kSecond))
    return -EINVAL;
  if (is_realtime && command != FUTEX_WAIT_BITSET) return -ENOSYS;
  switch (command) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: {
      const uint32_t bitset = command == FUTEX_WAIT ? kAllBits : third_value;
      if (bitset == 0) return -EINVAL;
      if (const long wrong = check_word(address); wrong != 0) return wrong;
      timespec until{};
      Deadline deadline{timeout, is_realtime};
      if (command == FUTEX_WAIT && timeout != nullptr) {
        until = from_now(*timeout);
        deadline.at = &until;
      }
      return wait(caller, address, value, bitset, deadline);
    }
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET: {
      const uint32_t bitset = command == FUTEX_WAKE ? kAllBits : third_value;
      if (bitset == 0) return -EINVAL;
      if (const long wrong = check_word(address); wrong != 0) return wrong;
      return wake(address, at_least_one(value), bitset);
    }
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE: {
      if (static_cast<int>(value) < 0 || static_cast<int>(second_value) < 0) return -EINVAL;
      if (const long wrong = check_word(address); wrong != 0) return wrong;
      if (const long wrong = check_word(second_address); wrong != 0) return wrong;
      return requeue(caller, {address, value, second_address, second_value},
                     command == FUTEX_REQUEUE ? nullptr : &third_value);
    }
    case FUTEX_WAKE_OP: {
      if (const long wrong = check_word(address); wrong != 0) return wrong;
      if (const long wrong = check_word(second_address); wrong != 0) return wrong;
      return wake_op(caller, {address, at_least_one(value), second_address, at_least_one(second_value)}, third_value);
    }
    default:
      return -ENOSYS;
  }
}

long Futexes::wake(uint64_t address, uint32_t count) {
  if (const long wrong = check_word(address); wrong != 0) return wrong;
  return wake(address, at_least_one(count), kAllBits);
}

bool Futexes::apply_operation(uint32_t operation, uint32_t before, uint32_t& after) {
  int argument = field(operation, 12, 12);
  if ((operation >> 28 & FUTEX_OP_OPARG_SHIFT) != 0) argument = static_cast<int>(1u << (argument & 31));
  const auto operand = static_cast<uint32_t>(argument);
  switch (operation >> 28 & 7) {
    case FUTEX_OP_SET:
      after = operand;
      return true;
    case FUTEX_OP_ADD:
      after = before + operand;
      return true;
    case FUTEX_OP_OR:
      after = before | operand;
      return true;
    case FUTEX_OP_ANDN:
      after = before & ~operand;
      return true;
    case FUTEX_OP_XOR:
      after = before ^ operand;
      return true;
    default:
      return false;
  }
}

bool Futexes::compare(uint32_t operation, uint32_t before, bool& holds) {
  const int argument = field(operation, 0, 12);
  const int value = static_cast<int>(before);
  switch (operation >> 24 & 15) {
    case FUTEX_OP_CMP_EQ:
      holds = value == argument;
      return true;
    case FUTEX_OP_CMP_NE:
      holds = value != argument;
      return true;
    case FUTEX_OP_CMP_LT:
      holds = value < argument;
      return true;
    case FUTEX_OP_CMP_LE:
      holds = value <= argument;
      return true;
    case FUTEX_OP_CMP_GT:
      holds = value > argument;
      return true;
    case FUTEX_OP_CMP_GE:
      holds = value >= argument;
      return true;
    default:
      return false;
  }
}

}  // namespace multigrain
