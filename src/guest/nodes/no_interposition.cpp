// Implements what the runtime asks of src/runtime/interpose, for a process where nothing is put in front of the C
// library: the guest has a library of its own, which knows nothing of the host.
#include <csignal>

#include "runtime/interpose/handlers.h"
#include "runtime/interpose/signals.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/interpose/thread_sync.h"
#include "runtime/interpose/threads.h"

namespace multigrain {

int real_sigaction(int signal, const struct sigaction* action, struct sigaction* before) {
  return sigaction(signal, action, before);
}
bool forward_to_user_handler(int, siginfo_t*, void*) {
  return false;
}
void set_thread_hooks(void (*)(), void (*)()) {}
void set_handler_hooks(void (*)(), void (*)(bool)) {}
void serve_thread_sync(const ThreadSync*) {}
void set_shared_copies(void (*)(const void*, size_t, void*), void (*)(void*, size_t, const void*)) {}
void set_shared_region(const void*, size_t) {}
void add_shared_part(const void*, size_t) {}
void forget_shared_parts() {}
void refuse_thread_sync(void (*)(const char*, const void*, const char*)) {}
void count_threads() {}
unsigned long counted_threads() {
  return 0;
}
int create_real_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) {
  return pthread_create(thread, attributes, function, argument);
}

}  // namespace multigrain
