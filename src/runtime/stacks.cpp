#include "runtime/stacks.h"

#include <pthread.h>
#include <unistd.h>

#include "runtime/private/private_heap.h"
#include "runtime/processors.h"
#include "runtime/program_stacks.h"

// The loader says here where the frames of main()'s thread begin. Beyond are the arguments and the environment, which
// every node has.
extern "C" void* __libc_stack_end;

namespace multigrain {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local Stack t_stack;

}  // namespace

Stack stack_of_this_thread() {
  if (const auto processor = Processors::place_of_this_thread(); processor && program_stacks::exist()) {
    const Stack stack = program_stacks::of_processor(*processor);
    if (stack.contains(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)))) return stack;
  }
  if (getpid() == gettid())
    return {reinterpret_cast<uintptr_t>(__builtin_frame_address(0)), reinterpret_cast<uintptr_t>(__libc_stack_end)};
  if (t_stack.end == 0) {
    const BootHeapScope boot;
    pthread_attr_t attributes;
    void* base = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
    pthread_attr_getstack(&attributes, &base, &size);
    pthread_attr_destroy(&attributes);
    t_stack = {reinterpret_cast<uintptr_t>(base), reinterpret_cast<uintptr_t>(base) + size};
  }
  return t_stack;
}

}  // namespace multigrain
