// Learns how long runs should be: how many lines a thread wants that misses the first of them. Both drivers of line protocols ask it
// (docs/internals/dszoom.md, "Runs").
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "coherence/recent_share.h"
#include "memory/sparse_table.h"

namespace multigrain {

// A thread remembers where its last runs ended. If it misses the line there next, then the run should have been longer; if
// it has forgotten the run before that happens, then not. From that the node keeps, for each zone of memory, for loads and for stores,
// how often a run of 1, 2, 3, ... units went on. Objects of one kind, and rows of one matrix, are allocated together, so a zone
// tells of a line that has never been here what it will be used with. Now and then one unit is brought where more are
// likely: otherwise a zone that is used differently from now on would never be known as such.
//
// A unit is what a protocol moves at a time: a line (dszoom), or a block (shasta). All this is a hint: threads change a zone at the
// same time and lose each other's changes. A zone has 64 bytes for 4,096 lines.
class RunHistory {
 public:
  // This many units are how long a run may be, the miss's own included.
  struct Length {
    uint32_t likely = 1;                                       // more likely than not, the thread wants so many
    uint32_t possible = std::numeric_limits<uint32_t>::max();  // it hardly ever wants more
  };

  // `lines` are the lines of the region, `threads` the threads that may ask. Start-up only.
  static Result<RunHistory> create(uint64_t lines, uint64_t threads) {
    auto zones = SparseTable<Zone>::create((lines >> kZoneShift) + 1, "zones of memory with runs of lines");
    if (!zones) return tl::unexpected(zones.error());
    auto recent = SparseTable<Recent>::create(threads, "recent runs of lines");
    if (!recent) return tl::unexpected(recent.error());
    RunHistory history;
    history.zones_ = std::move(*zones);
    history.recent_ = std::move(*recent);
    return history;
  }
  // Makes a history that must not be asked.
  RunHistory() = default;

  // The thread misses `line`, to load or to store. came() must follow. Async-signal-safe, as all here is.
  Length length_at(uint64_t thread, uint64_t line, bool stores) {
    Recent& recent = recent_[thread];
    Zone& zone = zone_of(line);
    Run& run = recent.run_before(line);
    recent.going_on = 0;
    if (run.length != 0 && run.end == line && run.stores == stores) {
      recent.going_on = run.length;
      if (run.length <= kLongest) zone_of(line - 1).after(run.length, stores).was(true);
      run = {};
    } else if (++recent.misses % kMissesBetweenDoubts == 0) {
      return {.likely = 1, .possible = 1};
    }
    Length length{.likely = 1, .possible = 1};
    const auto goes_on_after = [&](uint32_t units) { return zone.after(recent.going_on + units, stores).value(); };
    // A unit that comes in vain costs more than one that is missed later: the node that it was taken from may miss it.
    while (recent.going_on + length.likely <= kLongest && goes_on_after(length.likely) > RecentShare::kTwoThirds)
      ++length.likely;
    while (recent.going_on + length.possible <= kLongest && goes_on_after(length.possible) >= RecentShare::kFourth)
      ++length.possible;
    if (recent.going_on + length.possible > kLongest) length.possible = std::numeric_limits<uint32_t>::max();
    return length;
  }
  // The miss of length_at() was answered by `units`; the line behind them is `end`. `may_go_on`: that line could have come
  // with them.
  void came(uint64_t thread, uint64_t end, uint32_t units, bool stores, bool may_go_on) {
    Recent& recent = recent_[thread];
    Run& run = recent.run_before(end);
    if (run.length != 0 && run.length <= kLongest) zone_of(run.end - 1).after(run.length, run.stores).was(false);
    run = {};
    if (may_go_on) run = {.end = end, .length = std::min(recent.going_on + units, kLongest + 1), .stores = stores};
  }

 private:
  // Of longer runs nothing is known but that they are long.
  static constexpr uint32_t kLongest = 31;
  static constexpr unsigned kZoneShift = 12;
  static constexpr uint32_t kMissesBetweenDoubts = 16;

  // For loads and for stores, how often a run of so many units went on.
  struct Zone {
    std::array<std::array<RecentShare, kLongest + 1>, 2> went_on;

    [[nodiscard]] RecentShare& after(uint32_t units, bool stores) { return went_on[stores ? 1 : 0][units]; }
  };
  struct Run {
    uint64_t end;     // the line behind it
    uint32_t length;  // units; 0: there is no run here
    bool stores;
  };
  // What one thread remembers.
  struct Recent {
    static constexpr unsigned kRunsShift = 8;
    std::array<Run, size_t{1} << kRunsShift> runs;
    uint32_t going_on;  // units of the run that the last miss continued; 0: it began one
    uint32_t misses;

    Run& run_before(uint64_t line) { return runs[line * 0x9e3779b97f4a7c15u >> (64 - kRunsShift)]; }
  };

  Zone& zone_of(uint64_t line) { return zones_[line >> kZoneShift]; }

  SparseTable<Zone> zones_;
  SparseTable<Recent> recent_;
};

}  // namespace multigrain
