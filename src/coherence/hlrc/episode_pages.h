// An episode is what lies between two barriers of all processors. This collects pages that each node names in it: those
// that it has written, or those that it wants to move to lines. At such a barrier every node reads the lists of all
// other nodes, so all nodes find the same pages (barriers.cpp).
//
// A node puts its pages into words that it exports before it arrives at the barrier, in one of two places, by turns. It
// uses the same place again when it arrives at the barrier after the next. By then all nodes have left the barrier before
// that, and have read what was there.
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

class EpisodePages {
 public:
  // The two places are words of every node's kWords segment, one behind the other: each is so long, and has room for so many
  // runs and for their number.
  struct Place {
    uint64_t first = 0;
    uint64_t bytes = 0;
    uint64_t runs = 0;
  };
  // `pages` is how many pages the region has.
  static Result<std::unique_ptr<EpisodePages>> create(Fabric& fabric, uint64_t pages, const Place& place);

  // --- The node's own list. One thread at a time.

  // Names the page in this episode.
  void add(PageId page);
  // Has every node find that there is no list, at the barrier that ends this episode.
  void refuse() { is_too_much_ = true; }
  // Makes the list what the other nodes read at the barrier that ends this episode.
  void publish(uint64_t episode);
  // Returns the list instead: runs in ascending order, or nullopt if there are more than there is room for. Valid until the
  // list is changed.
  [[nodiscard]] std::optional<std::span<const NoticeRun>> own();

  // --- The lists of all nodes. At the barrier, one thread, before any of the node's processors leaves it.

  // start() begins to read what the other nodes have published, and finish() waits until that is read. Then lists() has
  // the runs of every node, or nullopt if some node has named more runs than there is room for, which every node finds.
  void start(uint64_t episode);
  void finish(uint64_t episode);
  [[nodiscard]] std::optional<std::span<const std::span<const NoticeRun>>> lists() const;
  // Empties the node's list, because the next episode begins.
  void forget();

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  // So many words of a list, its length included, are read before the length is known.
  static constexpr uint64_t kEarly = 32;
  static constexpr uint64_t kTooMany = UINT64_MAX;

  EpisodePages(Fabric& fabric, uint64_t pages, const Place& place) : fabric_(fabric), pages_(pages), place_(place) {}
  [[nodiscard]] static uint64_t encode(NoticeRun run) { return (run.count - 1) << 32 | run.first.value; }
  [[nodiscard]] static NoticeRun decode(uint64_t word) { return {PageId(word & 0xffffffffu), (word >> 32) + 1}; }
  [[nodiscard]] uint64_t word_at(uint64_t episode, uint64_t index) const;
  [[nodiscard]] Completion start_get(NodeId node, uint64_t episode, uint64_t from, uint64_t words);
  [[nodiscard]] uint64_t* words_of(NodeId node) const;
  [[nodiscard]] NoticeRun* runs_of(NodeId node) const;
  void decode_list(NodeId node);

  Fabric& fabric_;
  const uint64_t pages_;
  const Place place_;

  SparseTable<NoticeRun> own_;  // twice what is published, so joining is rare
  uint64_t size_ = 0;
  bool is_too_much_ = false;

  SparseTable<uint64_t> words_;                 // each node's list, as it was read
  SparseTable<NoticeRun> runs_;                 // the same, decoded
  std::array<Completion, kMostNodes> reads_{};  // of each node's list: its beginning, then its rest
  std::array<std::span<const NoticeRun>, kMostNodes> lists_{};
  bool has_all_ = false;
};

}  // namespace multigrain::hlrc
