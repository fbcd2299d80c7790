// The parts that one node writes, checkpoint after checkpoint. It knows which pages its parts have, and a hash of each, so that the
// next part has only the pages that differ.
//
// What differs is found by the pages' contents. They have to be read at each checkpoint: hashing them takes less time than
// reading them does, no protocol need note what is written, and pages that were written with the values that they had are not
// saved again. A hash has 128 bits, so that two contents of a page have the same one by chance never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "checkpoint/files.h"

namespace multigrain::checkpoint {

// Used by one thread at a time, in ordinary code.
class NodeParts {
 public:
  // A chain ends when it would have more parts, or when its parts have so many times as many pages as there are in memory.
  static constexpr size_t kMostParts = 32;
  static constexpr uint64_t kMostCopies = 2;

  // `in_folder` is what the folder's head says of the node: these parts stay until another checkpoint is there.
  NodeParts(std::string folder, NodeId node, const std::vector<Part>& in_folder);

  // Begins the part of a checkpoint. Errors: see PartWriter. The calls for one part are these in this order.
  Status begin(uint64_t number, const SpaceImage& space, const SmallImage& small,
               std::span<const std::byte> program = {});
  // Each page that the checkpoint has to have, in ascending order: those of private memory (kPrivatePage) come last. Pages of zeros
  // may be left out.
  void add(PageId page, std::span<const std::byte> bytes);
  struct Written {
    Part part;
    uint64_t before = 0;  // the number of the part that it adds to; 0: it begins a chain
  };
  // Errors: those of PartWriter::finish().
  Result<Written> finish();
  // Says what has become of the checkpoint, also if this node's part could not be written; removes the node's parts that no
  // head names.
  void end(bool is_there);

 private:
  struct Entry {
    uint64_t page;
    uint64_t hash[2];
  };

  const std::string folder_;
  const NodeId node_;
  std::vector<uint64_t> numbers_;  // of the parts that the folder's head names
  // These are of the chain of this run, if it has one. What it holds is as of its last part.
  bool has_chain_ = false;
  std::vector<Entry> entries_;  // in ascending order
  uint64_t stored_pages_ = 0;   // of all parts
  // The last whole part was not written. One that adds to the chain needs less room, so that is tried.
  bool failed_to_begin_ = false;

  // The part that is being written.
  std::optional<PartWriter> writer_;
  uint64_t number_ = 0;
  uint64_t before_ = 0;
  std::vector<Entry> new_entries_;
  size_t passed_ = 0;  // of entries_: how many are known to be in the new ones, or absent
  uint64_t written_pages_ = 0;
};

}  // namespace multigrain::checkpoint
