#include "status/node_status.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/quantity.h"

namespace multigrain {
namespace {

NodeStatus* g_status = nullptr;

size_t slot_of(uint64_t key) {
  return (key * 0x9e3779b97f4a7c15u) >> (64 - 15);
}
static_assert(NodeStatus::kOrigins == 1u << 15);

// Makes `change` to the key's entry, which is cleared first if it was another key's.
template <typename Change>
void change_origin(uint64_t key, Change&& change) {
  if (g_status == nullptr || key == 0) return;
  Origin& origin = g_status->origin[slot_of(key)];
  uint64_t before = origin.key.load(std::memory_order_relaxed);
  // Another thread that writes the entry at this moment keeps it; what this thread would write is forgotten.
  if (before == Origin::kBusy || !origin.key.compare_exchange_strong(before, Origin::kBusy, std::memory_order_acquire))
    return;
  if (before != key) {
    origin.size.store(0, std::memory_order_relaxed);
    origin.made.store(0, std::memory_order_relaxed);
    origin.freed.store(0, std::memory_order_relaxed);
  }
  change(origin);
  origin.when.store(ticks(), std::memory_order_relaxed);
  origin.key.store(key, std::memory_order_release);
}

}  // namespace

constinit thread_local ProcessorStatus* t_processor_status = nullptr;

Result<int> create_node_status() {
  const int fd = memfd_create("multigrain-status", MFD_CLOEXEC);
  if (fd < 0) return fail_errno(errno, "cannot create the memory in which a node says what it does");
  if (ftruncate(fd, sizeof(NodeStatus)) == 0) return fd;
  const int code = errno;
  close(fd);
  return fail_errno(code, "cannot create the memory in which a node says what it does");
}

Result<NodeStatus*> map_node_status(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || info.st_size != static_cast<off_t>(sizeof(NodeStatus)))
    return fail("descriptor {} is not where a node of this version says what it does", fd);
  void* const memory = mmap(nullptr, sizeof(NodeStatus), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "cannot map the memory in which a node says what it does");
  return static_cast<NodeStatus*>(memory);
}

void unmap_node_status(NodeStatus* status) {
  munmap(status, sizeof(NodeStatus));
}

Status open_node_status() {
  void* memory = nullptr;
  bool launched = false;
  if (const char* const text = std::getenv(kStatusVariable)) {
    const auto fd = parse_whole(text, 1u << 20);
    if (!fd) return fail("{}: '{}' is no descriptor", kStatusVariable, text);
    const auto mapped = map_node_status(static_cast<int>(*fd));
    if (!mapped) return tl::unexpected<Error>(mapped.error());
    close(static_cast<int>(*fd));
    memory = *mapped;
    launched = true;
  } else {
    memory =
        mmap(nullptr, sizeof(NodeStatus), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return fail_errno(errno, "cannot map the memory in which a node says what it does");
  }
  madvise(memory, offsetof(NodeStatus, profile), MADV_DONTFORK);
  madvise(memory, sizeof(NodeStatus), MADV_DONTDUMP);
  g_status = static_cast<NodeStatus*>(memory);
  g_status->launched = launched ? 1 : 0;
  // A script may run one program after the other, in the same memory.
  g_status->leaves = 0;
  g_status->run_over = 0;
  g_status->pid = static_cast<uint32_t>(getpid());
  dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* base) {
        *static_cast<uint64_t*>(base) = program->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &g_status->program_base);
  [[maybe_unused]] const ssize_t length = readlink("/proc/self/exe", g_status->program, sizeof g_status->program - 1);
  return {};
}

NodeStatus* node_status() {
  return g_status;
}

void forget_node_status() {
  g_status = nullptr;
  t_processor_status = nullptr;
  costs::forget();
}

void become_processor(ProcessorStatus& status) {
  status.thread.store(static_cast<uint32_t>(gettid()), std::memory_order_relaxed);
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* low = nullptr;
    size_t size = 0;
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
      status.stack_low.store(reinterpret_cast<uint64_t>(low), std::memory_order_relaxed);
      status.stack_high.store(reinterpret_cast<uint64_t>(low) + size, std::memory_order_relaxed);
    }
    pthread_attr_destroy(&attributes);
  }
  t_processor_status = &status;
}

bool note_let_go_slowly(ProcessorStatus& status, uint64_t lock) {
  const uint32_t held = status.held.load(std::memory_order_relaxed);
  const uint32_t known = std::min(held, ProcessorStatus::kMaxHeld);
  for (uint32_t i = known; i-- != 0;) {
    if (status.locks[i].lock.load(std::memory_order_relaxed) != lock) continue;
    for (uint32_t j = i + 1; j < known; ++j) {
      status.locks[j - 1].lock.store(status.locks[j].lock.load(std::memory_order_relaxed), std::memory_order_relaxed);
      status.locks[j - 1].site.store(status.locks[j].site.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    // If there are more locks than there is room for, one that was beyond the room moves into it. It is not known
    // which one that is, so it is 0.
    if (held > known) {
      status.locks[known - 1].lock.store(0, std::memory_order_relaxed);
      status.locks[known - 1].site.store(0, std::memory_order_relaxed);
    }
    status.held.store(held - 1, std::memory_order_release);
    return true;
  }
  // The lock is beyond the room, or in the place of a lock that is not known.
  for (uint32_t i = 0; i < known; ++i) {
    if (status.locks[i].lock.load(std::memory_order_relaxed) != 0) continue;
    status.held.store(held - 1, std::memory_order_release);
    return true;
  }
  if (held == known) return false;
  status.held.store(held - 1, std::memory_order_release);
  return true;
}

void note_made(uint64_t key, uint64_t size, const void* site) {
  change_origin(key, [&](Origin& origin) {
    origin.size.store(size, std::memory_order_relaxed);
    origin.made.store(reinterpret_cast<uint64_t>(site), std::memory_order_relaxed);
    origin.freed.store(0, std::memory_order_relaxed);
  });
}

uint64_t note_freed(uint64_t key, uint64_t site) {
  uint64_t before = 0;
  change_origin(key, [&](Origin& origin) { before = origin.freed.exchange(site, std::memory_order_relaxed); });
  return before;
}

}  // namespace multigrain
