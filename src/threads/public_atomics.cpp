// The atomic operations of the public interface (multigrain/atomic.h): those that the pass makes of C11's atomics
// (atomics.cpp), for a program that calls them by name, and waits for a change of an object.
//
// Waiting. In a run of several nodes a waiter compares under the lock that the address chooses, and sleeps on the
// condition of that lock (made_object.h). A notifier has made its change before it takes the lock. So either the waiter
// sees the change, or it sleeps when the notifier wakes. The object's value is read by an atomic operation, which may
// take one of the other locks, those of atomics: no thread takes them in the other order. In a run of one node there are
// none of these locks; then a counter that the address chooses says that something was notified.
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/keep_errno.h"
#include "fabric/wait.h"
#include "instrument/runtime/memory_access.h"
#include "multigrain/atomic.h"
#include "runtime/node.h"
#include "threads/abi.h"
#include "threads/made_object.h"

namespace multigrain::threads {
namespace {

mg_atomic_operation operation_of(mg_atomic_change change, size_t size) {
  switch (change) {
    case MG_ATOMIC_SET:
      return MG_ATOMIC_EXCHANGE;
    case MG_ATOMIC_PLUS:
      return MG_ATOMIC_ADD;
    case MG_ATOMIC_MINUS:
      return MG_ATOMIC_SUB;
    case MG_ATOMIC_BITAND:
      return MG_ATOMIC_AND;
    case MG_ATOMIC_BITOR:
      return MG_ATOMIC_OR;
    case MG_ATOMIC_BITXOR:
      return MG_ATOMIC_XOR;
    case MG_ATOMIC_SMALLEST:
      return MG_ATOMIC_UMIN;
    case MG_ATOMIC_GREATEST:
      return MG_ATOMIC_UMAX;
    case MG_ATOMIC_SIGNED_SMALLEST:
      return MG_ATOMIC_MIN;
    case MG_ATOMIC_SIGNED_GREATEST:
      return MG_ATOMIC_MAX;
    case MG_ATOMIC_FLOAT_PLUS:
    case MG_ATOMIC_FLOAT_MINUS:
      if (size != sizeof(float) && size != sizeof(double))
        die(1, "mg_atomic_update: there is no floating-point number of this size; bytes:", size);
      return change == MG_ATOMIC_FLOAT_PLUS ? MG_ATOMIC_FADD : MG_ATOMIC_FSUB;
  }
  die(1, "mg_atomic_update: there is no such change:", static_cast<uint64_t>(change));
}

bool has_value(const void* object, size_t size, const void* value) {
  const auto is = [value](auto found) { return std::memcmp(&found, value, sizeof found) == 0; };
  switch (size) {
    case 1:
      return is(__multigrain_threads_load_1(object));
    case 2:
      return is(__multigrain_threads_load_2(object));
    case 4:
      return is(__multigrain_threads_load_4(object));
    case 8:
      return is(__multigrain_threads_load_8(object));
    case 16:
      return is(__multigrain_threads_load_16(object));
    default:
      die(1, "mg_atomic_wait: an object has 1, 2, 4, 8 or 16 bytes, and not:", size);
  }
}

// In a run of one node: what was notified. Objects may share a counter, whose waiters look in vain then.
constinit std::array<EventCount, 64> notified{};
EventCount& notified_at(const void* object) {
  constexpr uint64_t kMix = 0x9e37'79b9'7f4a'7c15;
  static_assert(notified.size() == 1u << 6);
  return notified[reinterpret_cast<uintptr_t>(object) * kMix >> 58];
}

void wait(const void* object, size_t size, const void* old_value) {
  Node* const node = Node::get();
  if (node == nullptr)
    die(1, "mg_atomic_wait: the runtime does not run; the object is at", reinterpret_cast<uint64_t>(object));
  if (node->config().nodes > 1) {
    const HeldObject held(object);
    while (has_value(object, size, old_value)) held.wait();
    return;
  }
  checks::begin_access();
  node->sync().let_go_deferred();
  wait_until(node->fabric(), node->wait(), notified_at(object), [&] { return !has_value(object, size, old_value); });
}

void notify(const void* object) {
  Node* const node = Node::get();
  if (node == nullptr) return;
  if (node->config().nodes > 1)
    HeldObject(object).wake_all();
  else
    notified_at(object).notify();
}

}  // namespace
}  // namespace multigrain::threads

using multigrain::KeepErrno;
using namespace multigrain::threads;

#define MG_DEFINE_PUBLIC_ATOMICS(N, T)                                                \
  T mg_atomic_load_##N(const void* object) {                                          \
    return __multigrain_threads_load_##N(object);                                     \
  }                                                                                   \
  void mg_atomic_store_##N(void* object, T value) {                                   \
    __multigrain_threads_store_##N(object, value);                                    \
  }                                                                                   \
  T mg_atomic_update_##N(void* object, T operand, mg_atomic_change change) {          \
    return __multigrain_threads_update_##N(object, operand, operation_of(change, N)); \
  }                                                                                   \
  T mg_atomic_compare_exchange_##N(void* object, T expected, T desired) {             \
    return __multigrain_threads_compare_exchange_##N(object, expected, desired);      \
  }

MG_DEFINE_PUBLIC_ATOMICS(1, uint8_t)
MG_DEFINE_PUBLIC_ATOMICS(2, uint16_t)
MG_DEFINE_PUBLIC_ATOMICS(4, uint32_t)
MG_DEFINE_PUBLIC_ATOMICS(8, uint64_t)
MG_DEFINE_PUBLIC_ATOMICS(16, mg_atomic_16)

void mg_atomic_wait(const void* object, size_t size, const void* old_value) {
  const KeepErrno keep;
  wait(object, size, old_value);
}

void mg_atomic_notify(const void* object) {
  const KeepErrno keep;
  notify(object);
}
