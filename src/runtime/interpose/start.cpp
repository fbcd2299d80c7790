// Stands in front of the C library's __libc_start_main, which a program's first instructions call with its main().
#include "runtime/start.h"

#include <atomic>

#include "runtime/interpose/real.h"

namespace multigrain {
namespace {

std::atomic<MainFunction> g_program_main{nullptr};

int main_of_node(int argc, char** argv, char** envp) {
  return run_node(argc, argv, envp, g_program_main.load(std::memory_order_relaxed));
}

}  // namespace

MG_WRAPPER(int, __libc_start_main, MainFunction program_main, int argc, char** argv, void (*init)(), void (*fini)(),
           void (*loader_fini)(), void* stack_end) {
  g_program_main.store(program_main, std::memory_order_relaxed);
  return MG_REAL(__libc_start_main)(main_of_node, argc, argv, init, fini, loader_fini, stack_end);
}

}  // namespace multigrain
