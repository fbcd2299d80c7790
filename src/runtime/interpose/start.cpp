// Stands in front of the C library's __libc_start_main, which a program's first instructions call with its main().
#include "runtime/start.h"

#include <atomic>

#include "runtime/interpose/real.h"

namespace multigrain {
namespace {

std::atomic<MainFunction> g_program_main{nullptr};

void (*g_loader_fini)() = nullptr;

// Stands in the place of the loader's function, which exit() calls last: that runs the destructors of the libraries.
void before_loader_fini() {
  stop_node();
  if (g_loader_fini != nullptr) g_loader_fini();
}

int main_of_node(int argc, char** argv, char** envp) {
  return run_node(argc, argv, envp, g_program_main.load(std::memory_order_relaxed));
}

}  // namespace

MG_WRAPPER(int, __libc_start_main, MainFunction program_main, int argc, char** argv, void (*init)(), void (*fini)(),
           void (*loader_fini)(), void* stack_end) {
  g_program_main.store(program_main, std::memory_order_relaxed);
  g_loader_fini = loader_fini;
  return MG_REAL(__libc_start_main)(main_of_node, argc, argv, init, fini, before_loader_fini, stack_end);
}

}  // namespace multigrain
