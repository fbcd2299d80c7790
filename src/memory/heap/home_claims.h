// Who was first to claim a first-touch page: a table at the page's arbiter, which is node (page mod nodes), in words
// that it exports. Nodes claim and look up by remote atomics alone, so the arbiter's processors have nothing to do with
// it ([GeNIMA], III.B).
//
// Each page may be at a few consecutive places. An entry is never changed once it is there, and a page takes the first
// of its places that is empty, so all who look come to the same: its entry, an empty place, or that all its places are
// taken by other pages, for ever. For such pages there is no room in the table; the heap asks their arbiter by message.
//
// The pages of one arbiter that follow each other have places that follow each other, so a table without collisions
// holds kHomeCount pages of each arbiter, and memory is used for those that were claimed.
//
// Threads and signals: as Fabric.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "fabric/fabric.h"
#include "memory/heap/words.h"

namespace multigrain {

class HomeClaims {
 public:
  // Where the table lies in each node's kWords segment. Zero at the start.
  struct TableLocation {
    uint64_t offset = words::kHomes;
    uint64_t entries = words::kHomeCount;  // 0: no page has room
  };
  HomeClaims(Fabric& fabric, const TableLocation& location) : fabric_(fabric), location_(location) {}

  struct Answer {
    bool has_room = true;        // else nothing is known here
    std::optional<NodeId> home;  // of a page that was claimed
  };
  // Makes this node the page's home unless another is. One remote atomic, mostly. Ends the run if the table holds what
  // no node would write.
  Answer claim(PageId page);
  // The page's home, if anybody has claimed it. One get.
  Answer look_up(PageId page);

  // Places that a page may have.
  static constexpr unsigned kTries = 8;

 private:
  // 0: empty.
  static constexpr unsigned kPageShift = 8;
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
