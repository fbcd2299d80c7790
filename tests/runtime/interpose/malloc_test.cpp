// These test the malloc family as programs see it, in whichever of the three heaps MULTIGRAIN_NODES and MULTIGRAIN_NODE
// choose.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memory/layout.h"
#include "run_node_of_tests.h"
#include "runtime/private/private_heap.h"

namespace multigrain {
namespace {

// Hides from the compiler that it knows what malloc does, or that a size is absurd.
template <typename T>
T opaque(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

bool in_private_heap(const void* p) {
  return reinterpret_cast<uintptr_t>(p) - layout::kPrivateHeapBase < layout::kPrivateHeapSize;
}
bool in_boot_heap(const void* p) {
  return reinterpret_cast<uintptr_t>(p) - layout::kBootHeapBase < layout::kBootHeapSize;
}

bool several_nodes() {
  const char* nodes = std::getenv("MULTIGRAIN_NODES");
  return nodes != nullptr && std::atoi(nodes) > 1;
}
bool is_node_0() {
  return several_nodes() && std::atoi(std::getenv("MULTIGRAIN_NODE")) == 0;
}

// A constructor allocates this, before anything of the runtime is started.
auto* const g_early = new std::string("allocated before main, and longer than a short string");

TEST(Malloc, TheEnvironmentChoosesTheHeap) {
  EXPECT_EQ(private_heap_active(), several_nodes());
  const auto block = std::make_unique<char[]>(100);
  for (const void* p : {static_cast<const void*>(block.get()), static_cast<const void*>(g_early),
                        static_cast<const void*>(g_early->data())}) {
    EXPECT_EQ(in_private_heap(p), is_node_0());
    EXPECT_EQ(in_boot_heap(p), several_nodes() && !is_node_0());
  }
}

TEST(Malloc, BootHeapScopeIsForThisThreadOnly) {
  const BootHeapScope outer;
  {
    const BootHeapScope inner;
  }
  void* boot = opaque(std::malloc(100));
  EXPECT_EQ(in_boot_heap(boot), several_nodes());
  std::thread([] {
    void* other = opaque(std::malloc(100));
    EXPECT_EQ(in_private_heap(other), is_node_0());
    std::free(other);
  }).join();
  // A block stays in its heap, whichever thread reallocates it.
  std::thread([&] { boot = opaque(std::realloc(boot, 100'000)); }).join();
  EXPECT_EQ(in_boot_heap(boot), several_nodes());
  std::free(boot);
}

TEST(Malloc, SmallCasesAreTheCLibrarys) {
  void* a = opaque(std::malloc(0));
  void* b = opaque(std::malloc(0));
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
  std::free(a);
  std::free(b);
  std::free(nullptr);
  EXPECT_EQ(::malloc_usable_size(nullptr), 0u);
  void* fresh = opaque(std::realloc(nullptr, 50));
  ASSERT_NE(fresh, nullptr);
  EXPECT_GE(::malloc_usable_size(fresh), 50u);
  EXPECT_EQ(opaque(std::realloc(fresh, 0)), nullptr);

  auto* zeroed = static_cast<char*>(opaque(std::calloc(100, 7)));
  EXPECT_EQ(std::string(zeroed, 700), std::string(700, '\0'));
  std::strcpy(zeroed, "kept");
  zeroed = static_cast<char*>(opaque(::reallocarray(zeroed, 1000, 1000)));
  ASSERT_NE(zeroed, nullptr);
  EXPECT_STREQ(zeroed, "kept");
  std::free(zeroed);
}

TEST(Malloc, ImpossibleSizesAreErrors) {
  const size_t huge = opaque(~size_t{0});
  for (void* (*call)(size_t) :
       {+[](size_t n) { return std::malloc(n); }, +[](size_t n) { return std::calloc(n, 2); },
        +[](size_t n) { return std::calloc(1, n); }, +[](size_t n) { return std::realloc(nullptr, n); },
        +[](size_t n) { return ::reallocarray(nullptr, n, 2); }, +[](size_t n) { return ::valloc(n); },
        +[](size_t n) { return ::pvalloc(n); }, +[](size_t n) { return ::memalign(64, n); }}) {
    errno = 0;
    EXPECT_EQ(call(huge), nullptr);
    EXPECT_EQ(errno, ENOMEM);
  }
  auto* block = static_cast<char*>(opaque(std::malloc(10)));
  block[0] = 'x';
  // The call goes through a pointer, because compilers assume that realloc always takes the block.
  void* (*volatile reallocate)(void*, size_t) = std::realloc;
  EXPECT_EQ(reallocate(block, huge), nullptr);
  EXPECT_EQ(block[0], 'x');
  errno = 4711;
  std::free(block);
  EXPECT_EQ(errno, 4711);
}

TEST(Malloc, AlignedForms) {
  void* out = nullptr;
  EXPECT_EQ(::posix_memalign(&out, opaque(size_t{3}), 10), EINVAL);
  EXPECT_EQ(::posix_memalign(&out, opaque(size_t{4}), 10), EINVAL);
  EXPECT_EQ(::posix_memalign(&out, 64, opaque(~size_t{0} - 64)), ENOMEM);
  EXPECT_EQ(out, nullptr);
  for (const size_t alignment : {size_t{8}, size_t{64}, size_t{4096}, size_t{1} << 20}) {
    ASSERT_EQ(::posix_memalign(&out, alignment, 1000), 0);
    void* blocks[] = {out, std::aligned_alloc(alignment, alignment), ::memalign(alignment, 3)};
    for (void* block : blocks) {
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
      std::free(block);
    }
  }
  for (void* block : {::valloc(10), ::pvalloc(10)}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0u);
    std::free(block);
  }
  struct alignas(256) Wide {
    char bytes[256];
  };
  const auto wide = std::make_unique<Wide>();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(wide.get()) % 256, 0u);
}

TEST(Malloc, AChildOfForkGoesOnWhileThreadsAllocate) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) std::free(opaque(std::malloc(500)));
  });
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::string text;
      for (int j = 0; j < 2000; ++j) text += std::to_string(j);
      ::_exit(text.size() > 2000 && g_early->size() > 20 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}

TEST(Malloc, APointerFromElsewhereIsNamed) {
  if (!several_nodes()) GTEST_SKIP() << "the C library's heap says so itself";
  int local = 0;
  EXPECT_DEATH(std::free(opaque(static_cast<void*>(&local))), "a pointer that malloc did not return");
}

TEST(Start, RunNodeStandsInForMain) {
  EXPECT_EQ(g_start_seen.calls, 1);
  EXPECT_GE(g_start_seen.argc, 1);
  EXPECT_STREQ(g_start_seen.argv[0], program_invocation_name);
  EXPECT_EQ(g_start_seen.envp, environ);
}

}  // namespace
}  // namespace multigrain
