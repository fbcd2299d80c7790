// Which node is home of a page: the one thing about the heap that every node must know, and know alike.
//
// The shared region is carved, from its start upwards, into extents: runs of pages with one placement. Node 0 makes
// them; every node holds a replica of the list and has it before the pointer to any block inside can reach it. Extents
// are never changed or removed, so the home of a page is a function of its number alone and never changes. That is where the
// page is placed: under hlrc its home may move from there (docs/internals/hlrc.md), and the heap need not know.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/config.h"
#include "base/ids.h"
#include "memory/sparse_table.h"

namespace multigrain {

// Where the homes of an allocation's pages are to be, and what keeps them coherent. `node` is used with
// HomePolicy::kNode alone; `block_size` with Grain::kLine: how many bytes move together, from the start of each page on,
// and so does what is left at the page's end (0: a line).
struct Placement {
  HomePolicy policy = HomePolicy::kInterleaved;
  NodeId node{};
  Grain grain = Grain::kPage;
  uint32_t block_size = 0;

  // Memory of different grains, and of different block sizes, is never mixed. A small number for each.
  static constexpr uint32_t kBlockUnit = 32;
  static constexpr unsigned kGrains = 2 + Config::kMaxPageSize / kBlockUnit;
  [[nodiscard]] unsigned grain_number() const { return grain == Grain::kPage ? 0 : 1 + block_size / kBlockUnit; }

  bool operator==(const Placement&) const = default;
};

// The region as the heap sees it. `base` is a multiple of the page size, and so is `size`.
struct HeapGeometry {
  uint64_t base = 0;     // address of page 0
  uint64_t size = 0;     // bytes
  size_t page_size = 0;  // bytes, a power of two
  unsigned nodes = 1;

  [[nodiscard]] uint64_t pages() const { return size / page_size; }
};

struct Extent {
  static constexpr uint16_t kNoOwner = 0xffff;

  PageId first;
  uint64_t pages = 0;
  Placement placement;
  // The node that cuts this extent into small blocks, or kNoOwner for an extent of large blocks.
  uint16_t owner = kNoOwner;

  [[nodiscard]] bool has_owner() const { return owner != kNoOwner; }
  [[nodiscard]] bool contains(PageId page) const {
    return page.value >= first.value && page.value - first.value < pages;
  }
  bool operator==(const Extent&) const = default;
};

// A table of the heap, all zero. Tables are outside of the malloc heap, which node 0's overwrites on other nodes when
// it spawns processors there. Ends the run with the reason if the system refuses the address space: there is no running
// without it. Start-up only.
template <typename T>
SparseTable<T> make_table(uint64_t count, const char* what) {
  Result<SparseTable<T>> table = SparseTable<T>::create(count, what);
  if (!table) die(1, table.error().message.c_str());
  return std::move(*table);
}

// The home of a page of the extent, or nothing for a first-touch extent: that home is settled page by page.
//
// Interleaved homes count pages from the start of the region, not of the block, so that a free block can be split or
// joined with its neighbour without any page changing its home.
std::optional<NodeId> home_in(const Extent& extent, PageId page, unsigned nodes);

// The extents in ascending order of address. One thread at a time appends; any number look up meanwhile, without a lock
// and from signal handlers.
class ExtentTable {
 public:
  // Room for extents until a 16 TiB region is full, even if each is only 4 MiB.
  static constexpr uint64_t kDefaultCapacity = uint64_t{1} << 22;

  explicit ExtentTable(uint64_t capacity = kDefaultCapacity) : extents_(make_table<Extent>(capacity, "extents")) {}

  [[nodiscard]] uint64_t capacity() const { return extents_.count(); }
  [[nodiscard]] uint64_t count() const { return count_.load(std::memory_order_acquire); }
  // `index` is below a count() that the caller has seen.
  [[nodiscard]] const Extent& at(uint64_t index) const { return extents_[index]; }

  // Publishes an extent. It lies above all earlier ones and the table is not full; otherwise the run ends.
  void append(const Extent& extent);

  // The extent that holds the page, if any. Async-signal-safe.
  [[nodiscard]] std::optional<Extent> find(PageId page) const;

 private:
  SparseTable<Extent> extents_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace multigrain
