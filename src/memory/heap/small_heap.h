// This is a node's half of the shared heap: blocks smaller than a page. It only keeps books: it has no lock, no message
// and no clock, and does not access the shared region itself (a free list through shared memory would cost coherence
// misses).
//
// A node gets superblocks of 64 KiB (at least four pages) from the manager, with the placement that the blocks should
// have. A superblock holds blocks of one size class: multiples of 16 bytes up to 128, then four classes a doubling. An
// empty superblock keeps its placement and may change its class. Superblocks belong to the node that got them for ever,
// and only that node knows their blocks: nodes that free other nodes' blocks ask the owner.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/node_set.h"
#include "memory/heap/extents.h"
#include "memory/heap/heap_image.h"
#include "memory/sparse_table.h"

namespace multigrain {

// This is a block that was handed out.
struct SmallBlock {
  uint64_t offset = 0;          // from the region's start to its first byte
  bool needs_clearing = false;  // a program may have written to it before
};

class SmallHeap {
 public:
  explicit SmallHeap(const HeapGeometry& geometry);

  // Returns the smallest class whose blocks hold `size` bytes (at least 1) at the alignment (a power of two), or
  // nullopt if the block should have pages of its own.
  [[nodiscard]] std::optional<unsigned> class_for(uint64_t size, uint64_t alignment) const;
  // Returns the bytes of a block of the class.
  [[nodiscard]] uint32_t class_size(unsigned size_class) const { return class_sizes_[size_class]; }

  // Returns a block of the class, or nullopt if there is no superblock for it: call add_superblocks(), then try again.
  // Small blocks have no blocked placement; the caller asks for an interleaved one instead.
  std::optional<SmallBlock> allocate(unsigned size_class, const Placement& placement);

  // This is how many pages to ask the manager for: a number of superblocks that grows with the heap, and the least that
  // helps.
  struct PageRequest {
    uint64_t pages = 0, minimum = 0;
  };
  [[nodiscard]] PageRequest next_request(const Placement& placement) const;
  // Takes pages that next_request() asked for. Their number is any multiple of its minimum.
  void add_superblocks(PageId first, uint64_t pages, const Placement& placement);

  // Returns the size of the block in use that begins at `offset`, or nullopt if none does.
  [[nodiscard]] std::optional<uint32_t> size_of(uint64_t offset) const;
  // Takes the block back. Returns false, and changes nothing, if size_of() returns nullopt.
  bool free(uint64_t offset);

  // Returns all that these books hold.
  [[nodiscard]] SmallImage image() const;
  // Takes the books of another run with the same geometry. This node has no superblocks yet. Errors: it has; the books
  // contradict themselves. After an error the object is of no use.
  Status restore(const SmallImage& image);

 private:
  static constexpr unsigned kGranule = 16;
  static constexpr unsigned kMaxClasses = 48;
  static constexpr unsigned kKindsOfGrain = 2 + NodeSet::kCapacity;
  static constexpr unsigned kKinds = Placement::kGrains * kKindsOfGrain;
  static constexpr uint64_t kMinSuperblockBytes = 65536;
  static constexpr uint32_t kMaxSuperblocksAtOnce = 64;

  // Lists consist of numbers + 1, so that zeroed memory is an empty list.
  using Link = uint32_t;

  struct Superblock {
    uint64_t offset;         // from the region's start to its first byte
    uint32_t touched_bytes;  // from here on no byte was ever handed out
    uint32_t used;           // blocks in use
    uint32_t first_free;     // the first word that may have a free block
    // A superblock is in the list of its kind and class, or in that of the kind's empty ones. Full ones are in none.
    Link next, previous;
    uint32_t kind;
    uint8_t size_class;  // meaningful while used > 0
  };
  struct Lists {
    std::array<Link, kMaxClasses> partial;
    Link empty;
    uint32_t superblocks;  // got so far
  };

  static unsigned kind_of(const Placement& placement);
  [[nodiscard]] uint32_t blocks_in(const Superblock& superblock) const {
    return superblock_bytes_ / class_sizes_[superblock.size_class];
  }
  // This is the superblock, and the block's number in it, if a block in use begins at the offset.
  struct Found {
    uint32_t superblock = 0, block = 0;
  };
  [[nodiscard]] std::optional<Found> find(uint64_t offset) const;
  [[nodiscard]] uint64_t& bitmap_word(uint32_t superblock, uint32_t word) const {
    return bitmaps_[uint64_t{superblock} * bitmap_words_ + word];
  }
  void push(Link& head, uint32_t superblock);
  void remove(Link& head, uint32_t superblock);

  const HeapGeometry geometry_;
  const uint32_t superblock_bytes_;
  const uint32_t bitmap_words_;  // for each superblock; set bits are blocks in use
  unsigned classes_ = 0;
  std::array<uint32_t, kMaxClasses> class_sizes_{};
  uint32_t superblock_count_ = 0;
  SparseTable<Superblock> superblocks_;
  SparseTable<uint64_t> bitmaps_;
  SparseTable<Link> superblock_of_page_;
  SparseTable<Lists> lists_;
};

}  // namespace multigrain
