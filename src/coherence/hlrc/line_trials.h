// Finds out by trial whether lines keep pages coherent for less where LineHistory says that they would not. A diff says what has
// changed, and LineHistory takes it that another node wants all of that. If nodes write different parts of a page, and read little
// of each other's, it is wrong by the whole difference: by lines nothing would move.
//
// So one page of a zone moves to lines, though its diffs speak against it, when it has cost more by pages than a move does. From
// then on this node compares what its misses of the lines of that page cost with what another page of the zone, the reference, costs
// by pages in the same time. If lines cost clearly less, pages of the zone move as well when they have cost as much as a
// move. If not, a page must have cost four times as much before the zone has its next trial. A page does not move back; so of the pages of a zone
// kMostTrials are worse off, at most, for each node that writes there, whatever the program does.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/ids.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

// One node keeps this for its own diffs. The caller sees to it that no two threads use it at the same time.
class LineTrials {
 public:
  enum class Advice : uint8_t {
    kStay,  // by pages
    kTry,   // the page is to move, to find out what it costs by lines
    kMove,  // a trial has shown that it costs less by lines
  };

  // `pages` are the pages of the region. Errors: a table that cannot be reserved. Start-up only.
  static Result<LineTrials> create(uint64_t pages) {
    auto zones = SparseTable<Zone>::create(pages / kPagesOfZone + 1, "trials of pages by lines");
    if (!zones) return tl::unexpected(zones.error());
    LineTrials trials;
    trials.zones_ = std::move(*zones);
    return trials;
  }
  // Makes an object that must not be asked.
  LineTrials() = default;

  // The page, which is kept by pages and is not about to move, has been compared with its twin for the `changes`th time in which
  // something had changed. `change` is what each of these costs by pages, `move` what it costs to move a page, both in the unit of
  // `cost_by_lines(page)`, which says what misses of lines of the page have cost this node so far. `is_by_lines(page)` says
  // whether a page has moved.
  template <typename CostByLines, typename IsByLines>
  Advice compared(PageId page, uint32_t changes, uint32_t change, uint32_t move, const CostByLines& cost_by_lines,
                  const IsByLines& is_by_lines) {
    const uint32_t worth_a_move = (move + change - 1) / change;
    if (changes < worth_a_move) return Advice::kStay;
    Zone& zone = zones_[page.value / kPagesOfZone];
    const PageId tried(page.value - page.value % kPagesOfZone + zone.tried);
    switch (zone.state) {
      case State::kNone:
        if (zone.trials == kMostTrials || changes < worth_a_move << 2 * zone.trials) return Advice::kStay;
        zone.tried = static_cast<uint8_t>(page.value % kPagesOfZone);
        zone.state = State::kWaits;
        return Advice::kTry;
      case State::kWaits:
        if (is_by_lines(tried)) begin(zone, page, cost_by_lines(tried));
        return Advice::kStay;
      case State::kRuns:
        if (page.value % kPagesOfZone != zone.reference) {
          // The reference may have gone out of use.
          if (++zone.others == kPatience) begin(zone, page, cost_by_lines(tried));
          return Advice::kStay;
        }
        if (++zone.changes < kChangesOfTrial) return Advice::kStay;
        return end(zone, cost_by_lines(tried) - zone.before, zone.changes * change);
      case State::kLines:
        return Advice::kMove;
    }
    return Advice::kStay;
  }

 private:
  static constexpr uint64_t kPagesOfZone = 128;
  static constexpr uint8_t kMostTrials = 3;
  // So many changes of the reference are one trial; so many of other pages meanwhile say that it is not changed any more.
  static constexpr uint16_t kChangesOfTrial = 8;
  static constexpr uint16_t kPatience = 4 * kChangesOfTrial * kPagesOfZone;

  enum class State : uint8_t {
    kNone,   // no trial is under way
    kWaits,  // a page is to be tried, and has not moved yet
    kRuns,
    kLines,  // pages of the zone cost less by lines
  };
  struct Zone {
    State state = State::kNone;
    uint8_t trials = 0;  // in vain
    uint8_t tried = 0;   // pages of the zone
    uint8_t reference = 0;
    uint16_t changes = 0;  // of the reference, since the trial began
    uint16_t others = 0;   // changes of other pages
    uint32_t before = 0;   // what the page that is tried had cost by lines
  };

  static void begin(Zone& zone, PageId reference, uint32_t cost) {
    zone.state = State::kRuns;
    zone.reference = static_cast<uint8_t>(reference.value % kPagesOfZone);
    zone.changes = 0;
    zone.others = 0;
    zone.before = cost;
  }
  // Differences of less than a fourth say nothing.
  static Advice end(Zone& zone, uint32_t by_lines, uint32_t by_pages) {
    if (uint64_t{by_lines} * 4 < uint64_t{by_pages} * 3) {
      zone.state = State::kLines;
      return Advice::kMove;
    }
    zone.state = State::kNone;
    ++zone.trials;
    return Advice::kStay;
  }

  SparseTable<Zone> zones_;
};

}  // namespace multigrain::hlrc
