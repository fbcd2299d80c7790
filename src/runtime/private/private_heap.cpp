#include "runtime/private/private_heap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "checkpoint/files.h"
#include "memory/layout.h"
#include "runtime/private/heap_engine.h"
#include "runtime/private/runtimes.h"

// These names reach the C library's own allocator from an interposed malloc without dlsym, which may itself allocate.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace multigrain {
namespace {

enum class Mode : uint8_t { kUndecided, kCLibrary, kPrivate, kBoot };

constinit HeapEngine g_private(layout::kPrivateHeapBase, layout::kPrivateHeapSize);
constinit HeapEngine g_boot(layout::kBootHeapBase, layout::kBootHeapSize);
constinit std::atomic<Mode> g_mode{Mode::kUndecided};
[[gnu::tls_model("initial-exec")]] thread_local unsigned t_boot_scopes = 0;
constinit std::atomic<size_t> g_incoming_bytes{0};
constinit std::atomic<bool> g_takes_copies{false};

// Returns the number after "NAME=" if `entry` is that variable and has a number; otherwise `otherwise`.
long variable(const char* entry, const char* name_and_equals, long otherwise) {
  const size_t length = std::strlen(name_and_equals);
  if (std::strncmp(entry, name_and_equals, length) != 0) return otherwise;
  long value = 0;
  const char* digit = entry + length;
  for (; *digit >= '0' && *digit <= '9' && value < 1'000'000; ++digit) value = value * 10 + (*digit - '0');
  return digit == entry + length ? otherwise : value;
}

struct Choice {
  long nodes = 1;
  long node = 0;
  long interpreter = 0;
  bool has_checkpoints = false;
  char restart[PATH_MAX] = "";
  void see(const char* entry) {
    constexpr std::string_view kRestart = "MULTIGRAIN_RESTART=";
    constexpr std::string_view kCheckpoint = "MULTIGRAIN_CHECKPOINT=";
    const std::string_view whole(entry);
    if (whole.starts_with(kRestart)) {
      const std::string_view folder = whole.substr(kRestart.size(), sizeof restart - 1);
      restart[folder.copy(restart, folder.size())] = '\0';
    }
    has_checkpoints |= restart[0] != '\0' || (whole.starts_with(kCheckpoint) && whole.size() > kCheckpoint.size());
    nodes = variable(entry, "MULTIGRAIN_NODES=", nodes);
    node = variable(entry, "MULTIGRAIN_NODE=", node);
    interpreter = variable(entry, "MULTIGRAIN_INTERPRETER=", interpreter);
  }
};

// Reads the environment for a malloc that comes before the C library has set `environ` (the loader's, mostly). It makes
// bare system calls, because nothing else works yet.
void see_initial_environment(Choice& choice) {
  const long fd = ::syscall(SYS_openat, AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  // Entries may be longer than the buffer; only the start of such an entry matters, so its rest is dropped.
  char chunk[512];
  char entry[PATH_MAX + 32];
  size_t length = 0;
  long got;
  while ((got = ::syscall(SYS_read, fd, chunk, sizeof chunk)) > 0) {
    for (long i = 0; i < got; ++i) {
      if (length < sizeof entry - 1) entry[length++] = chunk[i];
      if (chunk[i] != '\0') continue;
      entry[length] = '\0';
      choice.see(entry);
      length = 0;
    }
  }
  ::syscall(SYS_close, fd);
}

// Returns whether the checkpoint from which the run goes on has the private heap. Whether it can be used is seen later. Makes
// bare system calls.
bool is_in_checkpoint(const char* folder) {
  const long directory = ::syscall(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  const long head = ::syscall(SYS_openat, directory, checkpoint::kHeadName, O_RDONLY | O_CLOEXEC);
  ::syscall(SYS_close, directory);
  if (head < 0) return false;
  uint64_t root = 0;
  const long got = ::syscall(SYS_pread64, head, &root, sizeof root, checkpoint::kRootInHead);
  ::syscall(SYS_close, head);
  return got == sizeof root && root == 0;
}

Mode decide() {
  const int saved = errno;
  Choice choice;
  // A program with more rights than its caller (setuid) obeys no variable of the caller's: it is one node.
  if (getauxval(AT_SECURE) == 0) {
    if (environ != nullptr) {
      for (char** entry = environ; *entry != nullptr; ++entry) choice.see(*entry);
    } else {
      see_initial_environment(choice);
    }
  }
  errno = saved;
  // Messages may need the number before the runtime has started.
  set_panic_node(static_cast<unsigned>(choice.node));
  const bool is_alone = choice.nodes <= 1 && !choice.has_checkpoints;
  const bool is_first = choice.node == 0 && !(choice.restart[0] != '\0' && is_in_checkpoint(choice.restart));
  const Mode mode = is_alone || choice.interpreter != 0 ? Mode::kCLibrary : is_first ? Mode::kPrivate : Mode::kBoot;
  // Another thread would decide alike, but a copy may have arrived meanwhile.
  Mode expected = Mode::kUndecided;
  return g_mode.compare_exchange_strong(expected, mode) ? mode : expected;
}

Mode mode() {
  const Mode now = g_mode.load(std::memory_order_acquire);
  return now == Mode::kUndecided ? decide() : now;
}

HeapEngine& engine(Mode mode) {
  return mode == Mode::kBoot || t_boot_scopes != 0 ? g_boot : g_private;
}

HeapEngine* owner_of(const void* block) {
  if (g_private.contains(block)) return &g_private;
  if (g_boot.contains(block)) return &g_boot;
  return nullptr;
}

void* or_out_of_memory(void* block) {
  if (block == nullptr) [[unlikely]]
    errno = ENOMEM;
  return block;
}

// A child of fork has one thread, and the locks must be as that thread knows them. So one function takes them and
// another gives them back, which Clang's analysis cannot follow.
void before_fork() MG_NO_THREAD_SAFETY_ANALYSIS {
  g_private.lock_all();
  g_boot.lock_all();
}
void after_fork() MG_NO_THREAD_SAFETY_ANALYSIS {
  g_boot.unlock_all();
  g_private.unlock_all();
}

[[gnu::constructor]] void watch_forks() {
  if (private_heap_active() && ::pthread_atfork(before_fork, after_fork, after_fork) != 0)
    die(1, "no memory for the fork handlers");
}

}  // namespace

#if defined(MULTIGRAIN_NO_MALLOC)
bool private_heap_active() {
  return false;
}
#else
bool private_heap_active() {
  return mode() != Mode::kCLibrary;
}
#endif

void heap_of_forked_node() {
  g_mode.store(Mode::kUndecided, std::memory_order_release);
  decide();
}

bool in_private_heap(uintptr_t address, size_t length) {
  return g_private.has(address, length);
}

bool takes_heap_copies() {
  return g_takes_copies.load(std::memory_order_relaxed);
}

void BootHeapScope::enter() {
  ++t_boot_scopes;
}
void BootHeapScope::leave() {
  --t_boot_scopes;
}
bool in_boot_heap_scope() {
  return t_boot_scopes != 0;
}
BootHeapScope::BootHeapScope() {
  enter();
}
BootHeapScope::~BootHeapScope() {
  leave();
}

HeapFreeze::HeapFreeze() {
  g_private.lock_all();
}
HeapFreeze::~HeapFreeze() {
  g_private.unlock_all();
}
std::span<const std::byte> HeapFreeze::image() const {
  return g_private.image();
}

void receive_heap_begin(size_t image_bytes) {
  if (mode() == Mode::kCLibrary) panic("a heap image arrived, but this process's malloc is not Multigrain's");
  g_mode.store(Mode::kBoot, std::memory_order_release);
  g_takes_copies.store(true, std::memory_order_relaxed);
  g_incoming_bytes.store(image_bytes, std::memory_order_relaxed);
  if (!g_private.begin_adoption(image_bytes)) panic("cannot make room for node 0's heap; bytes:", image_bytes);
}

void receive_heap_bytes(uint64_t offset, std::span<const std::byte> bytes) {
  const size_t limit = g_incoming_bytes.load(std::memory_order_relaxed);
  if (offset > limit || bytes.size() > limit - offset)
    panic("a piece of node 0's heap lies outside the announced image; offset, bytes:", offset, bytes.size());
  std::memcpy(g_private.image_target() + offset, bytes.data(), bytes.size());
}

void receive_heap_end() {
  if (!g_private.finish_adoption()) panic("what node 0 sent is no image of its heap");
  g_mode.store(Mode::kPrivate, std::memory_order_release);
}

void settle_c_library() {
  BootHeapScope boot;
  // The buffers are static, and the library would have chosen the same kind of buffering.
  static char in[BUFSIZ];
  static char out[BUFSIZ];
  std::setvbuf(stdin, in, ::isatty(STDIN_FILENO) != 0 ? _IOLBF : _IOFBF, sizeof in);
  std::setvbuf(stdout, out, ::isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF, sizeof out);
  ::tzset();
}

namespace heap {

void* allocate(size_t size) {
  const Mode now = mode();
  if (now == Mode::kCLibrary) return __libc_malloc(size);
  return or_out_of_memory(engine(now).allocate(size));
}

void* allocate_zeroed(size_t count, size_t size) {
  const Mode now = mode();
  if (now == Mode::kCLibrary) return __libc_calloc(count, size);
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return or_out_of_memory(nullptr);
  return or_out_of_memory(engine(now).allocate_zeroed(bytes));
}

void* allocate_aligned(size_t alignment, size_t size) {
  const Mode now = mode();
  if (now == Mode::kCLibrary) return __libc_memalign(alignment, size);
  return or_out_of_memory(engine(now).allocate_aligned(alignment, size));
}

void release(void* block) {
  if (block == nullptr) return;
  if (mode() == Mode::kCLibrary) return __libc_free(block);
  HeapEngine* owner = owner_of(block);
  if (owner == nullptr) [[unlikely]]
    panic("free() or realloc() of a pointer that malloc did not return; address:", reinterpret_cast<uintptr_t>(block));
  const int saved = errno;
  owner->release(block);
  errno = saved;
}

void* reallocate(void* block, size_t size) {
  const Mode now = mode();
  if (now == Mode::kCLibrary) return __libc_realloc(block, size);
  if (block == nullptr) return or_out_of_memory(engine(now).allocate(size));
  if (size == 0) {  // the C library does so
    release(block);
    return nullptr;
  }
  HeapEngine* owner = owner_of(block);
  if (owner == nullptr) [[unlikely]]
    panic("free() or realloc() of a pointer that malloc did not return; address:", reinterpret_cast<uintptr_t>(block));
  return or_out_of_memory(owner->reallocate(block, size));
}

size_t usable_size(void* block) {
  if (block == nullptr) return 0;
  if (HeapEngine* owner = owner_of(block)) return owner->usable_size(block);
  using Function = size_t (*)(void*);
  static const auto c_library = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "malloc_usable_size"));
  return c_library(block);
}

}  // namespace heap
}  // namespace multigrain
