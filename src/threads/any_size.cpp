// Atomic operations on objects of any size and alignment, in place of the compiler's library (libatomic), whose locks are
// one process's.
#include <cstring>
#include <memory>

#include "instrument/runtime/memory_functions.h"
#include "runtime/interpose/syscalls.h"
#include "threads/abi.h"
#include "threads/atomics.h"

namespace multigrain::threads {
namespace {

// A private copy of an operand, which may be anywhere: what a check would have to bring is not waited for under a lock.
class Operand {
 public:
  explicit Operand(size_t size) : size_(size) {
    if (size > sizeof small_) large_ = std::make_unique<std::byte[]>(size);
  }
  Operand(const void* from, size_t size) : Operand(size) {
    if (in_shared_region(from))
      copy_from_shared(data(), from, size);
    else
      std::memcpy(data(), from, size);
  }
  std::byte* data() { return large_ != nullptr ? large_.get() : small_; }
  void copy_to(void* to) {
    if (in_shared_region(to))
      copy_to_shared(to, data(), size_);
    else
      std::memcpy(to, data(), size_);
  }

 private:
  const size_t size_;
  alignas(16) std::byte small_[64];
  std::unique_ptr<std::byte[]> large_;
};

// Tells whether the operation needs a lock of Multigrain's: the library knows no instruction for such an object, and
// takes a lock of its own process, so pages under sc are no exception. Objects with an instruction are operated on by
// it elsewhere, so they are here, too.
bool needs_lock(Reach reach, const void* object, size_t size) {
  const bool has_instruction = size <= 16 && (size & (size - 1)) == 0 && checks::address_of(object) % size == 0;
  if (reach == Reach::kPages) return Node::get()->config().nodes > 1 && !has_instruction;
  return reach == Reach::kLocked;
}

// Calls `operation` under the object's lock. Returns false, and calls nothing, if the object has moved to lines meanwhile: then the
// caller begins anew.
template <typename Operation>
bool perform_under_lock(const void* object, Operation&& operation) {
  const LockedObject lock(object);
  if (lock.has_moved()) return false;
  operation();
  return true;
}

}  // namespace
}  // namespace multigrain::threads

using multigrain::KeepErrno;
using namespace multigrain::threads;

void __multigrain_threads_atomic_load(size_t size, const void* object, void* value, int order,
                                      void (*real)(size_t, const void*, void*, int)) {
  const Reach reach = reach_of(object);
  if (reach != Reach::kPrivate) meet_others();
  if (reach == Reach::kLines) return __multigrain_atomic_load(size, object, value, order, real);
  if (size == 0 || !needs_lock(reach, object, size)) return real(size, object, value, order);
  const KeepErrno keep;
  Operand loaded(size);
  if (!perform_under_lock(object, [&] { std::memcpy(loaded.data(), object, size); }))
    return __multigrain_threads_atomic_load(size, object, value, order, real);
  loaded.copy_to(value);
  looked_at(object, 0, false);
}

void __multigrain_threads_atomic_store(size_t size, void* object, const void* value, int order,
                                       void (*real)(size_t, void*, const void*, int)) {
  const Reach reach = reach_of(object);
  if (reach != Reach::kPrivate) meet_others();
  if (reach == Reach::kLines) return __multigrain_atomic_store(size, object, value, order, real);
  if (size == 0 || !needs_lock(reach, object, size)) return real(size, object, value, order);
  const KeepErrno keep;
  Operand stored(value, size);
  if (!perform_under_lock(object, [&] { std::memcpy(object, stored.data(), size); }))
    __multigrain_threads_atomic_store(size, object, value, order, real);
}

void __multigrain_threads_atomic_exchange(size_t size, void* object, const void* value, void* old_value, int order,
                                          void (*real)(size_t, void*, const void*, void*, int)) {
  const Reach reach = reach_of(object);
  if (reach != Reach::kPrivate) meet_others();
  if (reach == Reach::kLines) return __multigrain_atomic_exchange(size, object, value, old_value, order, real);
  if (size == 0 || !needs_lock(reach, object, size)) return real(size, object, value, old_value, order);
  const KeepErrno keep;
  Operand stored(value, size), was(size);
  const auto exchange = [&] {
    std::memcpy(was.data(), object, size);
    std::memcpy(object, stored.data(), size);
  };
  if (!perform_under_lock(object, exchange))
    return __multigrain_threads_atomic_exchange(size, object, value, old_value, order, real);
  was.copy_to(old_value);
}

bool __multigrain_threads_atomic_compare_exchange(size_t size, void* object, void* expected, const void* desired,
                                                  int success, int failure,
                                                  bool (*real)(size_t, void*, void*, const void*, int, int)) {
  const Reach reach = reach_of(object);
  if (reach != Reach::kPrivate) meet_others();
  if (reach == Reach::kLines)
    return __multigrain_atomic_compare_exchange(size, object, expected, desired, success, failure, real);
  if (size == 0 || !needs_lock(reach, object, size)) return real(size, object, expected, desired, success, failure);
  const KeepErrno keep;
  Operand wanted(expected, size), stored(desired, size);
  bool equal = false;
  const auto compare_exchange = [&] {
    equal = std::memcmp(object, wanted.data(), size) == 0;
    if (equal)
      std::memcpy(object, stored.data(), size);
    else
      std::memcpy(wanted.data(), object, size);
  };
  if (!perform_under_lock(object, compare_exchange))
    return __multigrain_threads_atomic_compare_exchange(size, object, expected, desired, success, failure, real);
  if (!equal) wanted.copy_to(expected);
  looked_at(object, 0, equal);
  return equal;
}
