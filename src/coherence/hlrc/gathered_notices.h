// On a large machine write notices are gathered along the tree of a barrier of all processors, where otherwise every node
// would read the log and the list of every other one (docs/internals/hlrc.md, "Large machines").
//
// What a node hands on is a *block*: of its subtree, or of all nodes, how far each node that has written in this episode has
// published, and the pages that they have named, with the node that alone has named them. A node exports two: the one that it
// has gathered, which its parent reads, and the one of all nodes, which its children read. Each is written again in the next
// episode, when no node can be reading it any more (G3 of transitions.h), whichever tree that one's barrier has.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/node_set.h"
#include "coherence/hlrc/named_runs.h"
#include "coherence/hlrc/vector_time.h"
#include "coherence/hlrc/write_notices.h"
#include "fabric/fabric.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

class GatheredNotices {
 public:
  // The two blocks are words of every node's kWords segment, at these offsets, and each has room for so many.
  struct Places {
    uint64_t up = 0;
    uint64_t down = 0;
    uint64_t words = 0;
  };
  // What this node has named in the episode: runs in ascending order, or nullopt if there were more than it has room for;
  // and how far it has published.
  struct Own {
    std::optional<std::span<const NoticeRun>> runs;
    uint64_t position = 0;
  };
  // `pages` is how many pages the region has. Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<GatheredNotices>> create(Fabric& fabric, uint64_t pages, const Places& places);

  // One thread at a time calls these.

  // All of this node's processors, and these children in the tree with all below them, have arrived. Reads what the
  // children have gathered, and makes the block of this subtree, which the parent may read when this returns. Waits.
  void gather(const Own& own, std::span<const NodeId> children);
  // All nodes have arrived, and `parent` has the block of all of them; the root is its own parent. Reads that block, and, if
  // this node `spreads` it, makes it what its children may read when this returns. Waits.
  void learn(NodeId parent, bool spreads);

  // --- The block of all nodes, from learn() to forget().

  // Returns false if some node has named more than there is room for, which every node finds.
  [[nodiscard]] bool has_all() const { return block(0)[0] != kTooMany; }
  // How many nodes have named any page.
  [[nodiscard]] uint64_t writers() const { return block(0)[1]; }
  // Returns the positions up to which those nodes have published; 0 for all others.
  [[nodiscard]] const VectorTime& time() const { return time_; }
  // Visits all pages that were named, as visit(run, node), as for_each_named_run() does.
  template <typename Visit>
  void for_each_run(Visit&& visit) const {
    for (const uint64_t word : runs_in(0)) {
      const NamedRun named = NamedRun::decode(word);
      visit(named.run, named.by);
    }
  }
  // Returns the pages that others than `self` have named, in ascending order, but for those that a node alone has named
  // that is not in `news`. Valid until the next call.
  [[nodiscard]] std::span<const NoticeRun> notices_for(NodeId self, const NodeSet& news);
  void forget();

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  // A block begins with the number of its runs and of its writers; then come the writers, and then the runs.
  static constexpr uint64_t kHead = 2;
  static constexpr uint64_t kTooMany = UINT64_MAX;
  // So many words of a block are read before its length is known.
  static constexpr uint64_t kEarly = 32;
  static constexpr unsigned kNodeShift = 48;  // of a writer's word, whose low bits are its position

  GatheredNotices(Fabric& fabric, uint64_t pages, const Places& places)
      : fabric_(fabric), pages_(pages), places_(places) {}

  // Block 0 is the one that this node makes or learns; the others are those of its children, as they were read.
  [[nodiscard]] uint64_t* block(uint64_t number) const { return &blocks_[number * places_.words]; }
  [[nodiscard]] uint64_t length_of(uint64_t number) const;
  [[nodiscard]] std::span<const uint64_t> writers_in(uint64_t number) const;
  [[nodiscard]] std::span<const uint64_t> runs_in(uint64_t number) const;
  void read(std::span<const NodeId> nodes, uint64_t place, uint64_t first_block);
  [[nodiscard]] Completion start_get(NodeId node, uint64_t place, uint64_t number, uint64_t from, uint64_t end);
  void check(NodeId from, uint64_t number) const;
  [[nodiscard]] bool add_writers(const Own& own, size_t children);
  [[nodiscard]] bool add_runs(const Own& own, size_t children);
  bool append(uint64_t word);
  void publish(uint64_t place);

  Fabric& fabric_;
  const uint64_t pages_;
  const Places places_;

  SparseTable<uint64_t> blocks_;
  uint64_t size_ = 0;                           // words of block 0
  SparseTable<uint64_t> own_;                   // this node's runs, encoded
  SparseTable<NoticeRun> runs_;                 // those that notices_for() returns
  std::array<Completion, kMostNodes> reads_{};  // of the children's blocks: their beginnings, then their rests
  std::array<std::span<const uint64_t>, kMostNodes> lists_{};
  VectorTime time_{};
};

}  // namespace multigrain::hlrc
