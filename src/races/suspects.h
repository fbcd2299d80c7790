// Which pages are worth watching: a judge finds that out from the accesses that it is told of, and tells the nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "races/sections.h"

namespace multigrain::races {

// How closely a node watches a page.
enum class Level : uint8_t {
  kNot,        // one owner alone has used it, or none has written it: only accesses that fault anyway are seen
  kShared,     // several owners have used it, and one has written it: some accesses of each section are seen
  kContended,  // concurrent sections have used it, and one has written it: many accesses of each section are seen
};

class Suspects {
 public:
  // Has room for so many pages, a power of two. Of two pages that fall on one entry the later one stays.
  explicit Suspects(size_t pages) : pages_(pages) {}

  // Notes that a section has accessed the page. Returns the level that the page has from now on if this has raised it,
  // or kNot.
  Level note(PageId page, SectionId section, bool is_write, const SectionTable& sections);

 private:
  struct Use {
    uint16_t owner_plus_one = 0;
    uint64_t read = 0;     // the latest section that has read or written the page
    uint64_t written = 0;  // the latest section that has written it; 0: none
  };
  struct Entry {
    uint64_t page_plus_one = 0;
    Level level = Level::kNot;
    std::array<Use, 4> uses;  // of the owners that have used the page last
    uint8_t next = 0;         // the entry of `uses` that makes room for another owner's
  };
  std::vector<Entry> pages_;
};

}  // namespace multigrain::races
