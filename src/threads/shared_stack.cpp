// The second stack of every thread, where code that was compiled with -fmultigrain-threads has the local variables whose
// addresses other threads may get (src/threads/pass/shared_stack.h). This is private memory of the node so far.
#include <sys/mman.h>

#include <array>
#include <cstddef>

#include "base/error.h"
#include "base/mutex.h"
#include "base/spin_lock.h"
#include "runtime/interpose/threads.h"
#include "threads/abi.h"

namespace {

constexpr size_t kBytes = size_t{1} << 20;

// Constructors of the program run before anything can be set up, so the main thread's stack is there from the start.
alignas(64) constinit std::array<std::byte, kBytes> main_stack{};

}  // namespace

// A thread other than the main one has the right value before it runs the program's code.
extern "C" {
[[gnu::visibility("default"),
  gnu::tls_model("initial-exec")]] constinit thread_local void* __safestack_unsafe_stack_ptr =
    main_stack.data() + kBytes;
}

namespace multigrain {
namespace {

// Stacks of threads that have ended serve those that begin. Other code of an ending thread may still use its stack, so
// it stays mapped. A free stack has the address of the next one at its top.
constinit SpinLock free_lock;
void* free_stack = nullptr;  // guarded by free_lock
thread_local constinit void* own_stack = nullptr;

void** link_of(void* stack) {
  return reinterpret_cast<void**>(static_cast<std::byte*>(stack) + kBytes) - 1;
}

void begin_stack() {
  void* stack = nullptr;
  {
    const LockGuard hold(free_lock);
    stack = free_stack;
    if (stack != nullptr) free_stack = *link_of(stack);
  }
  if (stack == nullptr) {
    stack = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) die(1, "no memory for a thread's second stack");
  }
  own_stack = stack;
  __safestack_unsafe_stack_ptr = static_cast<std::byte*>(stack) + kBytes;
}

void end_stack() {
  if (own_stack == nullptr) return;
  const LockGuard hold(free_lock);
  *link_of(own_stack) = free_stack;
  free_stack = own_stack;
  own_stack = nullptr;
}

[[gnu::constructor]] void begin_stacks_of_threads() {
  set_first_thread_hooks(&begin_stack, &end_stack);
}

}  // namespace
}  // namespace multigrain
