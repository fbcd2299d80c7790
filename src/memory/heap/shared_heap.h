// This is the shared heap of one node: mg_alloc, mg_free and mg_home_of call it, and the protocol asks it for homes.
//
// Node 0 is the manager of the address space (address_space.h); each node cuts its own superblocks into small blocks
// (small_heap.h); every node has a replica of the extents (extents.h). This file adds locks and messages:
//
//   allocate, small   takes nothing but a lock, except when the node needs more superblocks
//   allocate, large   takes a round trip to the manager. If a new extent is needed, the manager answers when every node
//                     has acknowledged it, so that any thread that gets the pointer by proper synchronisation can look
//                     its home up
//   free              is done where the block's extent says: on this node, on the node that owns the superblock, or by
//                     the manager; the caller learns whether there was such a block
//   home of a page    is a look-up. For a first-touch page not seen before, it takes remote atomics on a table at the
//                     page's arbiter (home_claims.h), and the answer is kept. A message is needed only where that table
//                     is full
//
// The heap never touches the shared region. So the caller has to see to two things:
//  * Blocks must be zero when a program gets them. When needs_clearing says so, the caller clears Allocation::size
//    bytes, or, of a large block, the pages that for_each_touched() names, with ordinary stores, so that the protocol
//    sees them. (Fresh address space is zero by itself and stays untouched; so do the untouched parts of a used block.)
//  * free() of a block must come after a release of the node's writes to it. A diff made later would overwrite what the
//    block's next user has written.
//
// Any number of threads may call all functions at once. Only find, home_of, claim_home and ask_home are
// async-signal-safe and may be called from the fault handler. None may be called with a lock of the runtime held,
// except find and home_of.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

#include "base/error.h"
#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "memory/heap/address_space.h"
#include "memory/heap/extents.h"
#include "memory/heap/home_claims.h"
#include "memory/heap/small_heap.h"
#include "memory/region.h"
#include "memory/sparse_table.h"
#include "memory/two_level_table.h"

namespace multigrain {

namespace message_range {
inline constexpr MessageType kHeap = 0x60;
inline constexpr MessageType kHeapEnd = 0x70;
}  // namespace message_range

// These are the messages, and what their words hold. `extra` is the caller's call, which the reply names again.
namespace heap_message {
enum : MessageType {
  // To node 0. flags: home policy, grain; small: its node; word: pages, alignment in pages, 0. Or, for pages that the
  // node cuts into small blocks, word: pages wanted, pages at least, 1. The block size is in the third word from bit 32
  // on.
  kAllocate = message_range::kHeap,
  // From node 0. flags, small: as above; extra: owner; word: first page, pages, index in the table with the block size
  // as above.
  kExtent,
  kExtentKnown,  // to node 0. word: how many extents the sender has
  kFree,         // word: offset of the block
  kSizeOf,       // word: offset of the block
  kTouched,      // word: pages [first, first + count); the reply names the first run with memory
  kHome,         // to the arbiter of a page for which its table has no room. flags: 1 to claim it; word: page
  kReply,        // flags: 1 if granted; small: needs clearing; word: first page, pages | 0, block size | home
  kEnd
};
}  // namespace heap_message

struct Allocation {
  void* address = nullptr;
  bool needs_clearing = false;
  size_t size = 0;  // usable bytes, at least the size asked for
};

// This error has the errno value that the C interface reports: ENOMEM (the region is used up) or EINVAL.
struct HeapError : Error {
  int code = 0;
};

class SharedHeap {
 public:
  // Registers the heap's message handlers. `base` is where the region lies on every node; all nodes give the same
  // region. `frames` is this node's part of the region, which says which pages have memory; without it all pages count
  // as touched. `claims` says where every node keeps the claims of first-touch pages. Start-up only; node 0's heap
  // exists before any node allocates.
  SharedHeap(Fabric& fabric, const WaitPolicy& policy, std::byte* base, uint64_t region_size, size_t page_size,
             const Region* frames = nullptr, const HomeClaims::TableLocation& claims = {});
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // Returns a block of `size` bytes whose address is a multiple of `alignment`: a power of two up to the region's size,
  // or 0, which stands for 16, and for the page size if the block has a page or more. Blocks of a page and more, and
  // blocks aligned to a page and more, share no page with another block. Small blocks with the blocked policy are
  // interleaved, as they have only one page. Waits for other nodes. Errors: EINVAL for the alignment or the node;
  // ENOMEM if there is no room.
  tl::expected<Allocation, HeapError> allocate(size_t size, size_t alignment, const Placement& placement);

  // Gives a block back, whichever node allocated it. The caller has released its writes to it. Waits for other nodes.
  // Errors: EINVAL if the pointer is not the start of a block in use: a foreign pointer, or a block freed before.
  tl::expected<void, HeapError> free(const void* block);

  // Returns whether the block is a small one of this node's, which only this node will use again. Never waits.
  [[nodiscard]] bool reuses(const void* block) const;

  // Returns the usable size of a block in use, whichever node allocated it. Waits for other nodes. Errors: as for free.
  tl::expected<size_t, HeapError> usable_size(const void* block);

  // Visits, as visit(first byte, bytes), every page of a large block in use that may hold something, because its frame
  // has memory at its home. Waits for other nodes; visit may fault. Pages may be visited twice.
  template <typename Visit>
  void for_each_touched(void* block, size_t size, Visit&& visit) {
    const PageId begin((reinterpret_cast<uint64_t>(block) - geometry_.base) / geometry_.page_size);
    const uint64_t end = begin.value + (size + geometry_.page_size - 1) / geometry_.page_size;
    for (unsigned n = 0; n < geometry_.nodes; ++n) {
      const NodeId node(static_cast<uint16_t>(n));
      for (uint64_t next = begin.value; next < end;) {
        const auto run = next_touched(node, PageId(next), end - next);
        if (!run) break;
        next = run->first.value + run->count;
        for (uint64_t page = run->first.value; page < next; ++page) {
          const auto home = home_of(PageId(page));
          if (!home || *home == node) visit(base_ + page * geometry_.page_size, geometry_.page_size);
        }
      }
    }
  }

  // Returns the extent that holds the page; nullopt if no block can be there. A page of an extent need not belong to a
  // block.
  [[nodiscard]] std::optional<Extent> find(PageId page) const { return extents_.find(page); }

  // Returns the home of the page; nullopt if it is in no extent, or if it is a first-touch page whose home this node
  // has not learnt. Never waits.
  [[nodiscard]] std::optional<NodeId> home_of(PageId page) const;

  // Returns the home of the page. This node becomes the home of a first-touch page that has none yet. nullopt only if
  // the page is in no extent. The fault path calls this; it is a remote operation the first time. Several threads may
  // claim one page at once.
  std::optional<NodeId> claim_home(PageId page);

  // Returns the home of the page, without making one; nullopt if the page is in no extent, or is a first-touch page
  // that no node has claimed. It is a remote operation the first time, as above.
  std::optional<NodeId> ask_home(PageId page);

  // These are for checkpoints, and are called by ordinary code while no thread of any node is in another function here. They return
  // this node's books: the manager's, on node 0 alone, and those of the node's small blocks.
  [[nodiscard]] SpaceImage space_image();
  [[nodiscard]] SmallImage small_image();
  // Takes the manager's books of another run, on node 0 alone, and returns when every node knows the extents. Errors: as for
  // AddressSpace::restore().
  Status restore(const SpaceImage& image);
  // Takes this node's small blocks of another run, once it knows the extents. Errors: as for SmallHeap::restore().
  Status restore(const SmallImage& image);

 private:
  static constexpr NodeId kManager{0};
  // A node can have this many calls under way; more callers wait for one to end.
  static constexpr uint32_t kCalls = 1024;

  struct Answer {
    bool granted = false;
    bool needs_clearing = false;
    uint64_t first = 0, second = 0;
  };
  enum CallState : uint32_t { kIdle = 0, kWaiting, kAnswered };
  struct Call {
    std::atomic<uint32_t> state;
    NodeId to;
    Answer answer;
    EventCount event;
  };
  // The manager has served such a request, but some node may not know its extent yet.
  struct Unanswered {
    NodeId to;
    uint32_t call = 0;
    Answer answer;
    uint64_t extents = 0;  // answered when all nodes know so many extents
  };

  [[nodiscard]] NodeId self() const { return fabric_.self(); }
  [[nodiscard]] bool contains(const void* address) const;
  static HeapError not_a_block(const void* block);

  // The size classes are constant, so looking one up needs no lock.
  [[nodiscard]] std::optional<unsigned> class_for(uint64_t size,
                                                  uint64_t alignment) const MG_NO_THREAD_SAFETY_ANALYSIS {
    return small_.class_for(size, alignment);
  }
  tl::expected<Allocation, HeapError> allocate_small(unsigned size_class, size_t size, const Placement& placement);
  tl::expected<Allocation, HeapError> allocate_pages(size_t size, uint64_t alignment_pages, const Placement& placement);
  Answer ask_manager(MessageHeader request, const Placement& placement);
  std::optional<uint64_t> find_block(const void* block, MessageType what);

  // A node does these for other nodes and for itself. Each takes the lock that it needs and never waits.
  std::optional<uint64_t> serve_block(const Extent& extent, uint64_t offset, MessageType what);
  std::optional<NodeId> serve_home(PageId page, NodeId asker, bool claim);
  void serve_allocate(NodeId from, const MessageHeader& request);
  void serve_extent(const Message& message);
  void serve_extent_known(const Message& message);

  static void on_message(void* heap, const Message& message);
  void reply(NodeId to, uint32_t call, const Answer& answer);
  void finish(uint32_t call, NodeId from, const Answer& answer);

  std::optional<Region::Run> resident_here(PageId first, uint64_t count) const;
  std::optional<Region::Run> next_touched(NodeId node, PageId first, uint64_t count);

  uint32_t begin_call(NodeId to);
  Answer end_call(PollingScope& polling, uint32_t call);
  Answer call(NodeId to, MessageHeader request);
  std::optional<NodeId> learn_home(PageId page, bool claim);
  void announce_new_extents() MG_REQUIRES(manager_lock_);
  void answer_waiting() MG_REQUIRES(manager_lock_);

  Fabric& fabric_;
  const WaitPolicy policy_;
  std::byte* const base_;
  const Region* const frames_;
  const HeapGeometry geometry_;
  ExtentTable extents_;

  SpinLock small_lock_;
  SmallHeap small_ MG_GUARDED_BY(small_lock_);

  HomeClaims claims_;
  // For each first-touch page: home + 1, or 0 while unknown. This is a cache, except on the arbiter of a page for which
  // `claims_` has no room: there it decides.
  using Home = uint16_t;
  static_assert(NodeSet::kCapacity <= UINT16_MAX);
  using Homes = TwoLevelTable<std::atomic<Home>, 64>;
  Homes first_touch_;

  SparseTable<Call> calls_;
  EventCount call_ended_;
  std::atomic<uint32_t> without_call_{0};

  // These are the manager's, and are used on node 0 alone.
  SpinLock manager_lock_;
  std::optional<AddressSpace> space_ MG_GUARDED_BY(manager_lock_);
  // This counts the extents that were sent to all nodes, and those that each node has acknowledged.
  uint64_t announced_ MG_GUARDED_BY(manager_lock_) = 0;
  std::array<uint64_t, NodeSet::kCapacity> known_by_ MG_GUARDED_BY(manager_lock_){};
  // This is a ring, in the order of `extents`.
  SparseTable<Unanswered> unanswered_ MG_GUARDED_BY(manager_lock_);
  uint64_t first_unanswered_ MG_GUARDED_BY(manager_lock_) = 0;
  uint64_t end_unanswered_ MG_GUARDED_BY(manager_lock_) = 0;
};

}  // namespace multigrain
