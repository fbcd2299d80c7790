#include "threads/shared_stack.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "base/spin_lock.h"
#include "runtime/interpose/threads.h"
#include "threads/abi.h"
#include "threads/sharing.h"

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

namespace multigrain::threads {
namespace {

// Stacks of threads that have ended serve those that begin. Other code of an ending thread may still use its stack, so
// it stays mapped. A free stack has the address of the next one at its top.
class Stacks {
 public:
  void* take(size_t bytes) {
    const LockGuard hold(lock_);
    void* const stack = free_;
    if (stack != nullptr) free_ = *link_of(stack, bytes);
    return stack;
  }
  void give_back(void* stack, size_t bytes) {
    const LockGuard hold(lock_);
    *link_of(stack, bytes) = free_;
    free_ = stack;
  }

 private:
  static void** link_of(void* stack, size_t bytes) {
    return reinterpret_cast<void**>(static_cast<std::byte*>(stack) + bytes) - 1;
  }
  SpinLock lock_;
  void* free_ MG_GUARDED_BY(lock_) = nullptr;
};

constinit Stacks private_stacks;
constinit thread_local void* own_private_stack = nullptr;

void begin_stack() {
  void* stack = private_stacks.take(kBytes);
  if (stack == nullptr) {
    stack = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) die(1, "no memory for a thread's second stack");
  }
  own_private_stack = stack;
  __safestack_unsafe_stack_ptr = static_cast<std::byte*>(stack) + kBytes;
}

// A link in shared memory would be written when other nodes may no longer answer, and a spin lock would be held meanwhile.
// So the addresses of free shared stacks are in a table.
constexpr size_t kTable = 4096;
constinit SpinLock table_lock;
constinit std::array<void*, kTable> free_shared{};  // guarded by table_lock
constinit size_t free_count = 0;                    // guarded by table_lock
constinit thread_local void* own_shared_stack = nullptr;

size_t shared_bytes() {
  constexpr size_t kDefault = size_t{8} << 20;
  constexpr size_t kLeast = size_t{1} << 20;
  constexpr size_t kMost = size_t{64} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kDefault;
  return std::clamp<size_t>(limit.rlim_cur, kLeast, kMost) & ~size_t{4095};
}

void end_stack() {
  if (own_private_stack != nullptr) private_stacks.give_back(std::exchange(own_private_stack, nullptr), kBytes);
  if (own_shared_stack == nullptr) return;
  const LockGuard hold(table_lock);
  if (free_count < kTable) free_shared[free_count++] = own_shared_stack;
  own_shared_stack = nullptr;
}

[[gnu::constructor]] void begin_stacks_of_threads() {
  set_first_thread_hooks(&begin_stack, &end_stack);
}

}  // namespace

bool use_shared_stack() {
  if (!is_sharing() || own_shared_stack != nullptr) return true;
  static const size_t bytes = shared_bytes();
  {
    const LockGuard hold(table_lock);
    if (free_count != 0) own_shared_stack = free_shared[--free_count];
  }
  if (own_shared_stack == nullptr) own_shared_stack = allocate_shared(bytes);
  if (own_shared_stack == nullptr) return false;
  __safestack_unsafe_stack_ptr = static_cast<std::byte*>(own_shared_stack) + bytes;
  return true;
}

}  // namespace multigrain::threads
