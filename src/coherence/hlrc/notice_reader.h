// This finds out what an acquire must invalidate: it reads the releaser's vector timestamp, and then the new part of
// the log of each node whose notices the releaser knows further than this node.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "coherence/hlrc/vector_time.h"
#include "coherence/hlrc/write_notices.h"
#include "fabric/fabric.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

class NoticeReader {
 public:
  // These are the positions up to which this node has applied each node's notices; for the node itself, what it has
  // published.
  using Known = std::array<std::atomic<uint64_t>, kMostNodes>;

  // On a machine of more nodes, nothing is read before it is known how much.
  static constexpr unsigned kMostEarly = 64;

  // `pages` is how many pages the region has.
  static Result<std::unique_ptr<NoticeReader>> create(Fabric& fabric, uint64_t pages);

  // This is a timestamp that was read: the releaser's, or what every node has published. With it come the entries of
  // logs that were read before their number was known. Mostly these are all that are needed, and the acquire takes one
  // round trip instead of two.
  class Timestamp {
   public:
    // Of a machine of so many nodes: no node has published anything.
    explicit Timestamp(unsigned nodes) { std::fill_n(time_.begin(), nodes, 0); }
    [[nodiscard]] const VectorTime& time() const { return time_; }

   private:
    friend class NoticeReader;
    struct Entries {
      static constexpr size_t kMost = 24;
      uint64_t begin = 0;  // position
      uint64_t count = 0;
      std::array<uint64_t, kMost> words;
    };
    VectorTime time_;
    std::array<Entries, kMostEarly> early_;
  };
  // Any number of threads may call these at the same time.
  void read_timestamp(NodeId releaser, const Known& known, Timestamp& timestamp) const;
  void read_all_timestamps(const Known& known, Timestamp& timestamp) const;

  // Reads the notices of the nodes `news` from `known` up to `timestamp`. Returns runs of pages in ascending order,
  // which are valid until the next call, or nullopt if some notices were overwritten, so that any page may have
  // changed. One thread at a time.
  std::optional<std::span<const NoticeRun>> read(const Timestamp& timestamp, const Known& known, NodeSet news);

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  // These gets read the new part of a node's log.
  struct Get {
    std::span<const uint64_t> entries;
    std::array<Completion, 2> completions;
  };

  NoticeReader(Fabric& fabric, uint64_t pages) : fabric_(fabric), pages_(pages) {}
  // Timestamps are read from so many nodes at the same time.
  static constexpr uint16_t kTogether = 64;
  [[nodiscard]] bool reads_early() const { return fabric_.nodes() <= kMostEarly; }
  Completion start_early(NodeId node, const Known& known, Timestamp& timestamp) const;
  bool take_early(const Timestamp::Entries& early, uint64_t begin, uint64_t end);
  Get start_get(NodeId node, const RingPiece& piece, uint64_t to);

  Fabric& fabric_;
  const uint64_t pages_;
  SparseTable<uint64_t> entries_;
  SparseTable<NoticeRun> runs_;
  SparseTable<Get> gets_;  // of each node
  uint64_t runs_read_ = 0;
};

}  // namespace multigrain::hlrc
