#include "fabric/shm/windows.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace multigrain {

Status FrameWindows::open(std::span<const int> fds, uint64_t region_bytes) {
  if (region_bytes == 0 || region_bytes % 4096 != 0)
    return fail("the region must be a multiple of 4096 bytes, not {}", region_bytes);
  for (size_t node = 0; node < fds.size(); ++node) {
    struct stat status{};
    if (fstat(fds[node], &status) != 0)
      return fail_errno(errno, fmt::format("descriptor {} is not the frames of node {}", fds[node], node));
    if (static_cast<uint64_t>(status.st_size) < region_bytes)
      return fail("the frames of node {} (descriptor {}) have {} bytes; the region has {}", node, fds[node],
                  status.st_size, region_bytes);
    fds_[node] = fds[node];
  }
  return open_table(fds.size(), region_bytes);
}

Status FrameWindows::open(int fd, std::span<const uint64_t> starts, uint64_t bytes) {
  for (size_t node = 0; node < starts.size(); ++node) {
    fds_[node] = fd;
    starts_[node] = starts[node];
  }
  return open_table(starts.size(), bytes);
}

Status FrameWindows::open_table(size_t nodes, uint64_t region_bytes) {
  const uint64_t windows = (region_bytes + kWindowBytes - 1) / kWindowBytes;
  void* memory = mmap(nullptr, nodes * windows * sizeof(*table_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "cannot reserve the table of frame windows");
  table_ = static_cast<std::atomic<std::byte*>*>(memory);
  nodes_ = nodes;
  region_bytes_ = region_bytes;
  windows_ = windows;
  return {};
}

FrameWindows::~FrameWindows() {
  if (table_ == nullptr) return;
  for (size_t node = 0; node < nodes_; ++node) {
    uint64_t left = mapped_[node].load(std::memory_order_relaxed);
    for (uint64_t window = 0; left != 0 && window < windows_; ++window) {
      std::byte* base = table_[node * windows_ + window].load(std::memory_order_relaxed);
      if (base == nullptr) continue;
      munmap(base, window_bytes(window));
      --left;
    }
  }
  munmap(table_, nodes_ * windows_ * sizeof(*table_));
}

std::byte* FrameWindows::at(NodeId node, uint64_t offset, uint64_t& run) {
  const uint64_t window = offset / kWindowBytes;
  std::byte* base = table_[node.value * windows_ + window].load(std::memory_order_acquire);
  if (base == nullptr) base = map_window(node, window);
  run = window_bytes(window) - offset % kWindowBytes;
  return base + offset % kWindowBytes;
}

uint64_t FrameWindows::window_bytes(uint64_t window) const {
  const uint64_t rest = region_bytes_ - window * kWindowBytes;
  return rest < kWindowBytes ? rest : kWindowBytes;
}

std::byte* FrameWindows::map_window(NodeId node, uint64_t window) {
  const int saved = errno;
  const uint64_t bytes = window_bytes(window);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fds_[node.value],
                      static_cast<off_t>(starts_[node.value] + window * kWindowBytes));
  if (memory == MAP_FAILED)
    panic("cannot map a window onto the frames of node (and window, errno)", node.value, window,
          static_cast<uint64_t>(errno));
  std::byte* mine = static_cast<std::byte*>(memory);
  std::byte* theirs = nullptr;
  if (table_[node.value * windows_ + window].compare_exchange_strong(theirs, mine, std::memory_order_acq_rel)) {
    mapped_[node.value].fetch_add(1, std::memory_order_relaxed);
  } else {
    munmap(memory, bytes);
    mine = theirs;
  }
  errno = saved;
  return mine;
}

}  // namespace multigrain
