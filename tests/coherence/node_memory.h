// This is the memory of a node whose driver is explored: its region, its words, its line table. All nodes are in one
// process, and access each other's memory by a SimNetwork.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/error.h"
#include "fabric/fabric.h"
#include "fabric/words.h"
#include "memory/line_table.h"
#include "memory/region.h"
#include "node_places.h"
#include "support/sim_fabric.h"

namespace multigrain::node_memory {

// Describes a network whose nodes have the memory that is exported to it.
inline SimNetwork::Options network_of(unsigned nodes) {
  SimNetwork::Options options;
  options.nodes = nodes;
  options.frames_bytes = options.words_bytes = options.lines_bytes = 0;
  return options;
}

// This is the memory of one node.
class ExploredMemory {
 public:
  static constexpr uint64_t kRegionSize = uint64_t{1} << 20;

  explicit ExploredMemory(unsigned node) : region_(make_region(node)) {
    void* const at =
        mmap(nullptr, words::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) panic("no memory for the words of a node:", node);
    words_ = static_cast<std::byte*>(at);
  }
  ~ExploredMemory() { munmap(words_, words::kBytes); }
  ExploredMemory(const ExploredMemory&) = delete;
  ExploredMemory& operator=(const ExploredMemory&) = delete;

  [[nodiscard]] const Region& region() const { return region_; }
  [[nodiscard]] Region& region() { return region_; }
  [[nodiscard]] std::span<std::byte> frames() const { return {region_.alias(PageId(0)), kRegionSize}; }
  [[nodiscard]] std::span<std::byte> words() const { return {words_, words::kBytes}; }

  // From this call on, the other nodes of the network access the frames and the words.
  void export_to(SimNetwork& network, NodeId node) const {
    network.export_segment(node, SegmentId::kFrames, frames());
    network.export_segment(node, SegmentId::kWords, words());
  }

 private:
  static Region make_region(unsigned node) {
    auto region = Region::create(kRegionSize, kPage, -1, region_of_node(node));
    if (!region) panic("no region for a node:", node);
    return std::move(*region);
  }

  Region region_;
  std::byte* words_ = nullptr;
};

// Makes the line table of such a node.
inline LineTable explored_line_table(unsigned node, unsigned line_shift) {
  auto table = LineTable::map(ExploredMemory::kRegionSize, line_shift, -1, 0, line_table_of_node(node));
  if (!table) panic("no line table for a node:", node);
  return std::move(*table);
}

}  // namespace multigrain::node_memory
