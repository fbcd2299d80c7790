#include "fabric/shm/peer_mappings.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace multigrain {

Status PeerMappings::open(std::span<const int> fds, uint64_t region_bytes) {
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

Status PeerMappings::open(int fd, std::span<const uint64_t> starts, uint64_t bytes) {
  for (size_t node = 0; node < starts.size(); ++node) {
    fds_[node] = fd;
    starts_[node] = starts[node];
  }
  return open_table(starts.size(), bytes);
}

Status PeerMappings::open_table(size_t nodes, uint64_t region_bytes) {
  const uint64_t mappings = (region_bytes + kMappingBytes - 1) / kMappingBytes;
  void* memory = mmap(nullptr, nodes * mappings * sizeof(*table_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "cannot reserve the table of mappings of frames");
  table_ = static_cast<std::atomic<std::byte*>*>(memory);
  nodes_ = nodes;
  region_bytes_ = region_bytes;
  mappings_ = mappings;
  return {};
}

template <typename Act>
void PeerMappings::for_each_mapping(Act&& act) const {
  for (size_t node = 0; node < nodes_; ++node) {
    uint64_t left = mapped_[node].load(std::memory_order_relaxed);
    for (uint64_t mapping = 0; left != 0 && mapping < mappings_; ++mapping) {
      std::byte* base = table_[node * mappings_ + mapping].load(std::memory_order_acquire);
      if (base == nullptr) continue;
      act(base, mapping_bytes(mapping));
      --left;
    }
  }
}

PeerMappings::~PeerMappings() {
  if (table_ == nullptr) return;
  for_each_mapping([](std::byte* base, uint64_t bytes) { munmap(base, bytes); });
  munmap(table_, nodes_ * mappings_ * sizeof(*table_));
}

void PeerMappings::unmap_pages() const {
  // Advice: where the kernel does not take it, the end of the process takes longer.
  for_each_mapping([](std::byte* base, uint64_t bytes) { (void)madvise(base, bytes, MADV_DONTNEED); });
}

std::byte* PeerMappings::at(NodeId node, uint64_t offset, uint64_t& run) {
  const uint64_t mapping = offset / kMappingBytes;
  std::byte* base = table_[node.value * mappings_ + mapping].load(std::memory_order_acquire);
  if (base == nullptr) base = map_new(node, mapping);
  run = mapping_bytes(mapping) - offset % kMappingBytes;
  return base + offset % kMappingBytes;
}

uint64_t PeerMappings::mapping_bytes(uint64_t mapping) const {
  const uint64_t rest = region_bytes_ - mapping * kMappingBytes;
  return rest < kMappingBytes ? rest : kMappingBytes;
}

std::byte* PeerMappings::map_new(NodeId node, uint64_t mapping) {
  const int saved = errno;
  const uint64_t bytes = mapping_bytes(mapping);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fds_[node.value],
                      static_cast<off_t>(starts_[node.value] + mapping * kMappingBytes));
  if (memory == MAP_FAILED)
    panic("cannot map the frames of node (and the number of the mapping, errno)", node.value, mapping,
          static_cast<uint64_t>(errno));
  std::byte* mine = static_cast<std::byte*>(memory);
  std::byte* theirs = nullptr;
  if (table_[node.value * mappings_ + mapping].compare_exchange_strong(theirs, mine, std::memory_order_acq_rel)) {
    mapped_[node.value].fetch_add(1, std::memory_order_relaxed);
  } else {
    munmap(memory, bytes);
    mine = theirs;
  }
  errno = saved;
  return mine;
}

}  // namespace multigrain
