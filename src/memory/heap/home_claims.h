// This finds out which node was first to claim a first-touch page, by a table at the page's arbiter, which is node
// (page mod nodes), in words that it exports. Nodes claim and look up by remote atomics alone, so the arbiter's
// processors have nothing to do with it ([GeNIMA], III.B).
//
// Each page may be at a few consecutive places. An entry is never changed once it is there, and a page takes the first
// of its places that is empty. So all nodes that look find the same: the page's entry, an empty place, or that all its
// places are taken by other pages, for ever. For such pages there is no room in the table; the heap asks their arbiter
// by message.
//
// The pages of one arbiter that follow each other have places that follow each other, so a table without collisions
// holds kHomeCount pages of each arbiter, and memory is used only for pages that were claimed.
//
// For threads and signals the same holds as for Fabric.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "fabric/fabric.h"
#include "memory/heap/words.h"

namespace multigrain {

class HomeClaims {
 public:
  // This is the table's place in each node's kWords segment, which must be zero at the start.
  struct TableLocation {
    uint64_t offset = words::kHomes;
    uint64_t entries = words::kHomeCount;  // 0: no page has room
  };
  HomeClaims(Fabric& fabric, const TableLocation& location) : fabric_(fabric), location_(location) {}

  struct Answer {
    bool has_room = true;        // otherwise nothing is known here
    std::optional<NodeId> home;  // the home of a page that was claimed
  };
  // Makes this node the page's home unless another node is. Mostly this takes one remote atomic. Ends the run if the
  // table holds an entry that no node would write.
  Answer claim(PageId page);
  // Returns the page's home, if any node has claimed it. One get.
  Answer look_up(PageId page);

  // A page may have this many places.
  static constexpr unsigned kTries = 8;

 private:
  // Returns an entry of the table. 0 means that the place is empty.
  static constexpr unsigned kPageShift = 11;
  [[nodiscard]] static constexpr uint64_t entry(PageId page, NodeId home) {
    return page.value << kPageShift | (home.value + 1u);
  }
  [[nodiscard]] NodeId arbiter(PageId page) const {
    return NodeId(static_cast<uint16_t>(page.value % fabric_.nodes()));
  }
  [[nodiscard]] uint64_t at(PageId page, unsigned which) const {
    return location_.offset + (page.value / fabric_.nodes() + which) % location_.entries * sizeof(uint64_t);
  }
  [[nodiscard]] NodeId home_in(uint64_t entry, PageId page) const;

  Fabric& fabric_;
  const TableLocation location_;
};

}  // namespace multigrain
