// This says which node is home of a page: the one fact about the heap that every node must know, and know alike.
//
// The shared region is carved, from its start upwards, into extents: runs of pages with one placement. Node 0 makes
// them. Every node holds a replica of the list, and has an extent before a pointer to any block inside can reach the
// node. Extents are never changed or removed, so the home of a page is a function of its number alone and never
// changes. That is where the page is placed: under hlrc its home may move from there (docs/internals/hlrc.md), and the
// heap need not know.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/config.h"
#include "base/ids.h"
#include "memory/sparse_table.h"

namespace multigrain {

// A placement says where the homes of an allocation's pages should be, and whether pages or lines keep them coherent.
// `node` is used with HomePolicy::kNode alone. `block_size` is used with Grain::kLine: so many bytes move together,
// from the start of each page on, and so does what is left at the page's end (0: a line).
struct Placement {
  HomePolicy policy = HomePolicy::kInterleaved;
  NodeId node{};
  Grain grain = Grain::kPage;
  uint32_t block_size = 0;
  // With Grain::kPage: the memory may be kept coherent by lines from some time on.
  bool may_move_to_lines = false;
  // With Grain::kPage, under the protocol placement.
  Pin pin = Pin::kNone;

  // Memory of different grains, block sizes and pins is never mixed. Each has a small number.
  static constexpr uint32_t kBlockUnit = 32;
  static constexpr unsigned kGrains = 5 + Config::kMaxPageSize / kBlockUnit;
  [[nodiscard]] unsigned grain_number() const {
    if (grain == Grain::kPage) return pin != Pin::kNone ? 1 + static_cast<unsigned>(pin) : may_move_to_lines ? 1 : 0;
    return 4 + block_size / kBlockUnit;
  }

  bool operator==(const Placement&) const = default;
};

// This is the region as the heap sees it. `base` is a multiple of the page size, and so is `size`.
struct HeapGeometry {
  uint64_t base = 0;     // the address of page 0
  uint64_t size = 0;     // in bytes
  size_t page_size = 0;  // in bytes, a power of two
  unsigned nodes = 1;

  [[nodiscard]] uint64_t pages() const { return size / page_size; }
};

struct Extent {
  static constexpr uint16_t kNoOwner = 0xffff;

  PageId first;
  uint64_t pages = 0;
  Placement placement;
  // This is the node that cuts the extent into small blocks, or kNoOwner for an extent of large blocks.
  uint16_t owner = kNoOwner;

  [[nodiscard]] bool has_owner() const { return owner != kNoOwner; }
  [[nodiscard]] bool contains(PageId page) const {
    return page.value >= first.value && page.value - first.value < pages;
  }
  bool operator==(const Extent&) const = default;
};

// Makes a table of the heap, all zero. Tables are outside of the malloc heap, because node 0's malloc heap overwrites
// that of other nodes when it spawns processors there. Ends the run with the reason if the system refuses the address
// space, because the heap cannot work without it. Start-up only.
template <typename T, typename Table = SparseTable<T>>
Table make_table(uint64_t count, const char* what) {
  Result<Table> table = Table::create(count, what);
  if (!table) die(1, table.error().message.c_str());
  return std::move(*table);
}

// Returns the home of a page of the extent; nullopt for a first-touch extent, where homes are settled page by page.
//
// Interleaved homes count pages from the start of the region, not of the block, so that a free block can be split or
// joined with its neighbour without any page changing its home.
std::optional<NodeId> home_in(const Extent& extent, PageId page, unsigned nodes);

// These are the extents in ascending order of address. One thread at a time appends. Any number of threads look up
// meanwhile, without a lock, and also in signal handlers.
class ExtentTable {
 public:
  // There is room for extents until a 16 TiB region is full, even if each is only 4 MiB.
  static constexpr uint64_t kDefaultCapacity = uint64_t{1} << 22;

  explicit ExtentTable(uint64_t capacity = kDefaultCapacity) : extents_(make_table<Extent>(capacity, "extents")) {}

  [[nodiscard]] uint64_t capacity() const { return extents_.count(); }
  [[nodiscard]] uint64_t count() const { return count_.load(std::memory_order_acquire); }
  // Pre: `index` is below a count() that the caller has seen.
  [[nodiscard]] const Extent& at(uint64_t index) const { return extents_[index]; }

  // Publishes an extent. It must lie above all earlier ones, and the table must not be full; otherwise the run ends.
  void append(const Extent& extent);

  // Returns the extent that holds the page, if any. Async-signal-safe.
  [[nodiscard]] std::optional<Extent> find(PageId page) const;

 private:
  SparseTable<Extent> extents_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace multigrain
