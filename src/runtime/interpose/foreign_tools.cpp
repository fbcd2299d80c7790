#include "runtime/interpose/foreign_tools.h"

#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/stack_text.h"
#include "runtime/private/loaded_objects.h"

// Functions of the runtimes of sanitizers: null if the program has none.
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __hwasan_init();
[[gnu::weak]] void __lsan_init();
[[gnu::weak]] void __msan_init();
[[gnu::weak]] void __tsan_init();
}

namespace multigrain {
namespace {

// Node 0 prints the sentence. The other nodes give it time to, or the launcher would report their ends.
[[noreturn]] void refuse(const char* sentence) {
  const char* const node = std::getenv("MULTIGRAIN_NODE");
  if (node != nullptr && std::strtoul(node, nullptr, 10) != 0) {
    const timespec a_second{1, 0};
    ::syscall(SYS_nanosleep, &a_second, nullptr);
    ::syscall(SYS_exit_group, 2);
  }
  StackText line;
  line.text("multigrain: cannot start: ").text(sentence).text("\n");
  const char* const text = line.c_str();
  ::syscall(SYS_write, STDERR_FILENO, text, std::strlen(text));
  ::syscall(SYS_exit_group, 2);
  __builtin_unreachable();
}

[[maybe_unused]] bool has_several_nodes() {
  const char* const nodes = std::getenv("MULTIGRAIN_NODES");
  return nodes != nullptr && std::strtoul(nodes, nullptr, 10) > 1;
}

// GCC's runtime is a library that steps aside for definitions before its own; clang's calls them before they are ready.
[[maybe_unused]] bool is_gccs(void (*function)()) {
  auto address = reinterpret_cast<uintptr_t>(function);
  return dl_iterate_phdr(
             [](dl_phdr_info* object, size_t, void* wanted) {
               if (!holds(*object, *static_cast<uintptr_t*>(wanted))) return 0;
               return object->dlpi_name != nullptr && std::strstr(object->dlpi_name, "/libasan.so") != nullptr ? 1 : 2;
             },
             &address) == 1;
}

}  // namespace

void refuse_foreign_tools() {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  if (preloaded != nullptr && std::strstr(preloaded, "vgpreload_") != nullptr)
    refuse(
        "Valgrind keeps a record of every byte of address space, and Multigrain reserves terabytes of it: the two do not "
        "work together; for errors in private memory build with gcc -fsanitize=address and run on one node, for the rest "
        "see docs/user/debugging.md");
#if !defined(MULTIGRAIN_NO_MALLOC)
  if (&__tsan_init != nullptr || &__msan_init != nullptr || &__hwasan_init != nullptr)
    refuse(
        "the program was built with a sanitizer (-fsanitize=thread, memory or hwaddress) whose shadow memory lies where "
        "shared memory is to be; build it without (docs/user/debugging.md)");
  if (&__asan_init != nullptr && !is_gccs(&__asan_init))
    refuse(
        "the program was built with clang's -fsanitize=address, whose runtime calls the C library before Multigrain is "
        "ready to stand in front of it; build it with gcc and run it on one node (docs/user/debugging.md)");
  if ((&__asan_init != nullptr || &__lsan_init != nullptr) && has_several_nodes())
    refuse(
        "a program that was built with -fsanitize=address or leak runs on one node only: the sanitizer's malloc cannot be "
        "copied to other nodes; use mgrun --nodes 1, with --procs-per-node as you like (docs/user/debugging.md)");
#endif
}

namespace {

// This runs before the library's other constructors, which reserve memory.
[[gnu::constructor(101)]] void refuse_at_load() {
  refuse_foreign_tools();
}

}  // namespace
}  // namespace multigrain
