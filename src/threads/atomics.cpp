// Atomic operations on objects that one instruction can load, store or exchange.
#include "threads/atomics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "count/counting.h"
#include "threads/abi.h"

namespace multigrain::threads {
namespace {

// Without a size of their own the compiler would call libatomic for 16 bytes. Every processor on which this library
// runs has the instruction (instrument/runtime/trampolines.cpp).
template <typename T>
T exchange_if(T* at, T expected, T desired) {
  return __sync_val_compare_and_swap(at, expected, desired);
}

template <typename Number, typename T>
T apply_to_numbers(T old, T operand, mg_atomic_operation operation) {
  const auto left = std::bit_cast<Number>(old), right = std::bit_cast<Number>(operand);
  switch (operation) {
    case MG_ATOMIC_FADD:
      return std::bit_cast<T>(left + right);
    case MG_ATOMIC_FSUB:
      return std::bit_cast<T>(left - right);
    case MG_ATOMIC_FMAX:
      return std::bit_cast<T>(std::fmax(left, right));
    default:
      return std::bit_cast<T>(std::fmin(left, right));
  }
}

// Signed numbers of 16 bytes are compared by their upper halves first.
template <typename T>
bool less_as_signed(T left, T right) {
  constexpr T kSign = static_cast<T>(T{1} << (sizeof(T) * 8 - 1));
  return static_cast<T>(left ^ kSign) < static_cast<T>(right ^ kSign);
}

// What atomicrmw of LLVM computes.
template <typename T>
T apply(T old, T operand, mg_atomic_operation operation) {
  switch (operation) {
    case MG_ATOMIC_EXCHANGE:
      return operand;
    case MG_ATOMIC_ADD:
      return static_cast<T>(old + operand);
    case MG_ATOMIC_SUB:
      return static_cast<T>(old - operand);
    case MG_ATOMIC_AND:
      return static_cast<T>(old & operand);
    case MG_ATOMIC_NAND:
      return static_cast<T>(~(old & operand));
    case MG_ATOMIC_OR:
      return static_cast<T>(old | operand);
    case MG_ATOMIC_XOR:
      return static_cast<T>(old ^ operand);
    case MG_ATOMIC_MAX:
      return less_as_signed(old, operand) ? operand : old;
    case MG_ATOMIC_MIN:
      return less_as_signed(operand, old) ? operand : old;
    case MG_ATOMIC_UMAX:
      return std::max(old, operand);
    case MG_ATOMIC_UMIN:
      return std::min(old, operand);
    case MG_ATOMIC_INC_WRAP:
      return old >= operand ? T{0} : static_cast<T>(old + 1);
    case MG_ATOMIC_DEC_WRAP:
      return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
    case MG_ATOMIC_FADD:
    case MG_ATOMIC_FSUB:
    case MG_ATOMIC_FMAX:
    case MG_ATOMIC_FMIN:
      break;
  }
  if constexpr (sizeof(T) == sizeof(float)) return apply_to_numbers<float>(old, operand, operation);
  if constexpr (sizeof(T) == sizeof(double)) return apply_to_numbers<double>(old, operand, operation);
  return old;  // the pass makes no such call
}

// Each operation can be made by an instruction, atomically, which returns what was there; and it says what the object
// holds afterwards, for a thread that has the object to itself.

template <typename T>
struct Load {
  static constexpr bool kWrites = false;
  T by_instruction(T* at) const {
    if constexpr (sizeof(T) == 16)
      return exchange_if(at, T{0}, T{0});
    else
      return __atomic_load_n(at, __ATOMIC_SEQ_CST);
  }
  T after(T old) const { return old; }
};

template <typename T>
struct Store {
  static constexpr bool kWrites = true;
  T value;
  T by_instruction(T* at) const {
    if constexpr (sizeof(T) == 16) {
      T old = *at;
      for (T found; (found = exchange_if(at, old, value)) != old; old = found) {
      }
      return old;
    } else {
      return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    }
  }
  T after(T) const { return value; }
};

template <typename T>
struct Update {
  static constexpr bool kWrites = true;
  T operand;
  mg_atomic_operation operation;
  T by_instruction(T* at) const {
    if constexpr (sizeof(T) != 16) {
      if (operation == MG_ATOMIC_EXCHANGE) return __atomic_exchange_n(at, operand, __ATOMIC_SEQ_CST);
      if (operation == MG_ATOMIC_ADD) return __atomic_fetch_add(at, operand, __ATOMIC_SEQ_CST);
      if (operation == MG_ATOMIC_SUB) return __atomic_fetch_sub(at, operand, __ATOMIC_SEQ_CST);
    }
    T old = *at;
    for (T found; (found = exchange_if(at, old, after(old))) != old; old = found) {
    }
    return old;
  }
  T after(T old) const { return apply(old, operand, operation); }
};

template <typename T>
struct CompareExchange {
  static constexpr bool kWrites = true;
  T expected;
  T desired;
  T by_instruction(T* at) const { return exchange_if(at, expected, desired); }
  T after(T old) const { return old == expected ? desired : old; }
};

// Returns what was there; nothing, and nothing is done, if the object has moved to lines meanwhile.
template <typename T, typename Operation>
std::optional<T> perform_under_lock(T* object, const Operation& operation) {
  const LockedObject lock(object);
  if (lock.has_moved()) return std::nullopt;
  // A thread that reads the object without the lock, as a race, sees one value or the other.
  const T old = *static_cast<volatile T*>(object);
  const T fresh = operation.after(old);
  if (fresh != old) *static_cast<volatile T*>(object) = fresh;
  return old;
}

// Returns a number by which values are told apart, mostly.
template <typename T>
uint64_t number_of(T value) {
  if constexpr (sizeof(T) == 16) return static_cast<uint64_t>(value) ^ static_cast<uint64_t>(value >> 64);
  return static_cast<uint64_t>(value);
}

template <typename T, typename Operation>
T perform_where_others_are(Reach reach, T* object, const Operation& operation, const void* caller) {
  const KeepErrno keep;
  meet_others();
  T old{};
  if (const auto found = reach == Reach::kLocked ? perform_under_lock(object, operation) : std::nullopt) {
    old = *found;
  } else if (reach == Reach::kPages) {
    old = operation.by_instruction(object);
    counting::report(object, sizeof(T), operation.kWrites, caller);
  } else {
    const ExclusiveLines lines(object, sizeof(T));
    old = operation.by_instruction(object);
  }
  looked_at(object, number_of(old), operation.after(old) != old);
  return old;
}

template <typename T, typename Operation>
T perform(void* object, const Operation& operation, const void* caller) {
  auto* const at = static_cast<T*>(object);
  const Reach reach = reach_of(object);
  if (reach == Reach::kPrivate) [[likely]]
    return operation.by_instruction(at);
  return perform_where_others_are(reach, at, operation, caller);
}

}  // namespace
}  // namespace multigrain::threads

using multigrain::KeepErrno;
using multigrain::Node;
using namespace multigrain::threads;

#define MG_DEFINE_ATOMICS(N, T)                                                                    \
  T __multigrain_threads_load_##N(const void* object) {                                            \
    return perform<T>(const_cast<void*>(object), Load<T>{}, __builtin_return_address(0));          \
  }                                                                                                \
  void __multigrain_threads_store_##N(void* object, T value) {                                     \
    perform<T>(object, Store<T>{value}, __builtin_return_address(0));                              \
  }                                                                                                \
  T __multigrain_threads_update_##N(void* object, T operand, mg_atomic_operation operation) {      \
    return perform<T>(object, Update<T>{operand, operation}, __builtin_return_address(0));         \
  }                                                                                                \
  T __multigrain_threads_compare_exchange_##N(void* object, T expected, T desired) {               \
    return perform<T>(object, CompareExchange<T>{expected, desired}, __builtin_return_address(0)); \
  }

MG_DEFINE_ATOMICS(1, uint8_t)
MG_DEFINE_ATOMICS(2, uint16_t)
MG_DEFINE_ATOMICS(4, uint32_t)
MG_DEFINE_ATOMICS(8, uint64_t)
MG_DEFINE_ATOMICS(16, mg_uint128)

namespace {

// Calls `synchronise` for the node if there are others. A loop that waits for a plain store may have nothing but a fence.
template <typename Synchronise>
void at_fence(Synchronise&& synchronise) {
  Node* const node = Node::get();
  if (node == nullptr || node->config().nodes == 1) return;
  const KeepErrno keep;
  multigrain::checks::begin_access();
  meet_others();
  synchronise(*node);
}

}  // namespace

void __multigrain_threads_release_fence(void) {
  at_fence([](Node& node) { node.release(); });
}

void __multigrain_threads_acquire_fence(void) {
  at_fence([](Node& node) { node.acquire_all(); });
}
