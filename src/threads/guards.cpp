// Static variables of functions with initialisers, in C++. The compiler guards each with a variable, which has 8 bytes,
// and calls three functions of the C++ library, which wait for each other by futexes of one process. The pass makes calls
// of the functions here out of them. Where all nodes share the globals (mg_share_globals()), each variable is initialised
// once, by one thread of all nodes, and every other thread sees what its initialiser has written.
//
// A guard is changed under a Multigrain lock. Its first byte is 1 when the variable is initialised, as the Itanium ABI
// prescribes; its second byte is 1 while a thread initialises it, as in libstdc++; its last 4 say which thread that is.
// In code that looks at the first byte before it calls (the pass makes that a call, too) it is not enough that the byte
// is 1: its page may have come without the variable's, by way of another variable in it. So a node believes a guard that
// it has seen under the lock, which makes everything visible that the initialiser wrote, and remembers such guards.
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "base/keep_errno.h"
#include "instrument/runtime/installed_protocol.h"
#include "threads/abi.h"
#include "threads/atomics.h"
#include "threads/made_object.h"

namespace multigrain::threads {
namespace {

struct Guard {
  uint8_t is_initialised;
  uint8_t is_being_initialised;
  uint16_t unused;
  uint32_t thread;
};
static_assert(sizeof(Guard) == 8);

// The node in the upper bits and the thread's number in the system, which has 22, in the lower ones.
uint32_t this_thread_of(const Node& node) {
  return uint32_t{node.config().node.value} << 22 | static_cast<uint32_t>(gettid());
}

// Returns whether other nodes have the guard, too.
bool is_shared(const void* guard) {
  const Reach reach = reach_of(guard);
  return reach != Reach::kPrivate && Node::get()->config().nodes > 1;
}

// A guard's value, and the lock under which it is changed, held as long as this lives.
class HeldGuard {
 public:
  explicit HeldGuard(void* guard) : held_(guard), guard_(guard) { read(); }
  [[nodiscard]] const Guard& value() const { return value_; }
  void set(const Guard& value) {
    value_ = value;
    std::memcpy(guard_, &value_, sizeof value_);
  }
  void wait() {
    held_.wait();
    read();
  }
  void wake_all() { held_.wake_all(); }

 private:
  void read() { std::memcpy(&value_, guard_, sizeof value_); }

  const HeldObject held_;
  void* const guard_;
  Guard value_{};
};

}  // namespace
}  // namespace multigrain::threads

using multigrain::KeepErrno;
using multigrain::Node;
using namespace multigrain::threads;

int __multigrain_threads_guard_acquire(void* guard, int (*real)(void*)) {
  if (!is_shared(guard)) return real(guard);
  const KeepErrno keep;
  HeldGuard held(guard);
  const uint32_t self = this_thread_of(*Node::get());
  while (held.value().is_initialised == 0 && held.value().is_being_initialised != 0) {
    if (held.value().thread == self)
      multigrain::die(
          1,
          "the initialiser of a function's static variable has called the function again; the variable's guard is at",
          reinterpret_cast<uint64_t>(guard));
    held.wait();
  }
  if (held.value().is_initialised != 0) {
    know_done(guard);
    return 0;
  }
  held.set({.is_initialised = 0, .is_being_initialised = 1, .unused = 0, .thread = self});
  return 1;
}

void __multigrain_threads_guard_release(void* guard, void (*real)(void*)) {
  if (!is_shared(guard)) {
    // Another thread of the node goes on, and must see what the initialiser has written.
    if (multigrain::LineProtocol* const lines = multigrain::line_protocol()) lines->fence();
    return real(guard);
  }
  const KeepErrno keep;
  HeldGuard held(guard);
  held.set({.is_initialised = 1, .is_being_initialised = 0, .unused = 0, .thread = 0});
  know_done(guard);
  held.wake_all();
}

// The initialiser has thrown: the next thread tries it again.
void __multigrain_threads_guard_abort(void* guard, void (*real)(void*)) {
  if (!is_shared(guard)) return real(guard);
  const KeepErrno keep;
  HeldGuard held(guard);
  held.set({});
  held.wake_all();
}

uint8_t __multigrain_threads_load_guard(const void* guard) {
  const auto* const first = static_cast<const uint8_t*>(guard);
  if (!is_shared(guard)) return __atomic_load_n(first, __ATOMIC_ACQUIRE);
  if (is_known_done(guard)) [[likely]]
    return 1;
  const KeepErrno keep;
  const HeldGuard held(const_cast<void*>(guard));
  if (held.value().is_initialised != 0) know_done(guard);
  return held.value().is_initialised;
}
