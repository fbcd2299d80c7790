// This is the manager's half of the shared heap, which knows which pages are in use. It only keeps books: it has no
// lock, no message and no clock, and does not access the shared region itself.
//
// Pages are handed out in runs. Every placement has its own free runs, because the home of a page never changes:
//
//   interleaved, first touch, node k   a freed run joins its free neighbours and can be split at will
//   blocked                            a freed run is a whole extent and serves only a request of the same page count
//
// New address space is taken from the end of what is used (the break). Requests much smaller than a chunk share an
// extent, so that most allocations need no new extent and hence no message to all nodes. A first-touch run that is
// reused keeps the homes that its pages got from their first users.
//
// The records of runs are boundary tags ([Knuth], section 2.5) in a table indexed by
// page number: the tag of a run's first page describes it, that of its last page points to the first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/node_set.h"
#include "memory/heap/extents.h"
#include "memory/heap/heap_image.h"
#include "memory/sparse_table.h"

namespace multigrain {

// These are pages that were handed out.
struct PageRun {
  PageId first;
  uint64_t pages = 0;
  bool needs_clearing = false;  // a program may have written to them before
};

class AddressSpace {
 public:
  // Extents that this makes are appended to `extents`. No other object appends to them, and they outlive this object.
  AddressSpace(const HeapGeometry& geometry, ExtentTable& extents);

  // Returns `pages` (at least 1) adjacent pages whose address is a multiple of `alignment_pages` (a power of two)
  // pages; nullopt if the region has no room for them.
  std::optional<PageRun> allocate(uint64_t pages, uint64_t alignment_pages, const Placement& placement);

  // Returns pages that `owner` will cut into small blocks: a new extent of `wanted` pages, or of `minimum` if there is
  // no room for so many. They are never given back.
  std::optional<PageRun> allocate_for_owner(uint64_t wanted, uint64_t minimum, const Placement& placement,
                                            NodeId owner);

  // Returns the number of pages of the run that begins at `first`; nullopt if allocate() returned no such run or it was
  // freed.
  [[nodiscard]] std::optional<uint64_t> pages_of(PageId first) const;

  // Takes the run back. Returns false, and changes nothing, if pages_of() returns nullopt.
  bool free(PageId first);

  // Returns all that these books hold. What was never handed out of the newest chunks becomes free runs, here, too.
  [[nodiscard]] SpaceImage image();
  // Takes the books of another run with the same geometry, and appends its extents. Nothing has been allocated here. Errors: something
  // has; the books contradict themselves. After an error the object is of no use.
  Status restore(const SpaceImage& image);

 private:
  // Free runs are kept by placement and by the logarithm of their size.
  static constexpr unsigned kKindsOfGrain = 3 + NodeSet::kCapacity;
  static constexpr unsigned kKinds = Placement::kGrains * kKindsOfGrain;
  static constexpr unsigned kBuckets = 48;
  static constexpr uint64_t kNone = ~uint64_t{0};
  // A search looks at this many runs of a bucket before it prefers new address space.
  static constexpr unsigned kQuickSearch = 32;
  static constexpr uint64_t kMaxChunkBytes = uint64_t{16} << 20;

  enum class State : uint8_t { kNothing = 0, kFree, kAllocated };
  struct Tag {
    uint64_t pages;           // the pages of the run that begins here
    uint64_t next, previous;  // free runs of one bucket
    uint64_t first;           // where the free run that ends here begins
    uint32_t kind;
    State state;
    bool dirty;
  };
  // This is the rest of the newest chunk, which was never handed out and is in no free list.
  struct Tail {
    uint64_t next = 0, end = 0;
  };

  static unsigned kind_of(const Placement& placement);
  static bool is_blocked(unsigned kind);
  [[nodiscard]] uint64_t align(uint64_t page, uint64_t alignment_pages) const;
  std::optional<PageRun> take_new_extent(uint64_t pages, uint64_t alignment_pages, const Placement& placement,
                                         uint16_t owner);
  std::optional<PageRun> take_from_tail(unsigned kind, uint64_t pages, uint64_t alignment_pages);
  std::optional<PageRun> take_free(unsigned kind, uint64_t pages, uint64_t alignment_pages, unsigned limit);
  void mark_allocated(unsigned kind, uint64_t first, uint64_t pages);
  void retire_tail(unsigned kind);
  void join_clean_and_dirty(unsigned kind);
  void add_free(unsigned kind, uint64_t first, uint64_t pages, bool dirty);
  void link(unsigned kind, uint64_t first, uint64_t pages, bool dirty);
  void unlink(uint64_t first);

  const HeapGeometry geometry_;
  const uint64_t chunk_pages_;
  ExtentTable& extents_;
  uint64_t break_ = 0;  // pages from here on belong to no extent
  SparseTable<Tag> tags_;
  // This has the first free run + 1 of each bucket, or 0 if there is none.
  SparseTable<std::array<uint64_t, kBuckets>> heads_;
  SparseTable<Tail> tails_;
};

}  // namespace multigrain
