// Mappings of other nodes' frames or line tables: parts of a peer's memfd, a gigabyte each, which are mapped when they
// are first accessed.
//
// Mapping 64 regions of 16 TiB would take eight times the address space that a process has. Programs share far less
// than that, so mappings appear on demand, in the path of the access itself, which may be the fault handler: mmap is a
// bare system call, and the table is filled by compare-and-swap (the thread that comes second unmaps its own mapping).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/ids.h"
#include "base/node_set.h"

namespace multigrain {

class PeerMappings {
 public:
  static constexpr uint64_t kMappingBytes = uint64_t{1} << 30;

  PeerMappings() = default;
  PeerMappings(const PeerMappings&) = delete;
  PeerMappings& operator=(const PeerMappings&) = delete;
  ~PeerMappings();

  // `fds`: the frames memfd of each node, at least `region_bytes` (a multiple of 4096) long; they must stay open.
  // Errors: a descriptor that is no such file; no address space for the table.
  Status open(std::span<const int> fds, uint64_t region_bytes);
  // Does the same for memory of all nodes in one file: node i's `bytes` bytes begin at starts[i], a multiple of 4096.
  // The file is long enough.
  Status open(int fd, std::span<const uint64_t> starts, uint64_t bytes);

  // Returns where the byte at `offset` of the node's memory is mapped here; `run` receives how many bytes the mapping
  // has from there on. The caller has checked `offset`. This is async-signal-safe. It ends the run if the kernel
  // refuses the mapping.
  std::byte* at(NodeId node, uint64_t offset, uint64_t& run);

  // Empties the page tables of all mappings, which the kernel would do at the end of the process. What is accessed again is
  // mapped again. One system call a mapping.
  void unmap_pages() const;

 private:
  // Calls `act` with the first byte and the length of each mapping.
  template <typename Act>
  void for_each_mapping(Act&& act) const;
  std::byte* map_new(NodeId node, uint64_t mapping);
  [[nodiscard]] uint64_t mapping_bytes(uint64_t mapping) const;

  Status open_table(size_t nodes, uint64_t bytes);

  std::array<int, NodeSet::kCapacity> fds_{};
  std::array<uint64_t, NodeSet::kCapacity> starts_{};  // begin of each node's part of its file
  size_t nodes_ = 0;
  uint64_t region_bytes_ = 0;
  uint64_t mappings_ = 0;                     // number of mappings a node
  std::atomic<std::byte*>* table_ = nullptr;  // [node][mapping]; from mmap, so that unused parts take no memory
  std::array<std::atomic<uint64_t>, NodeSet::kCapacity> mapped_{};  // number made of each node's, for the destructor
};

}  // namespace multigrain
