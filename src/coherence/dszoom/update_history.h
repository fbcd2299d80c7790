// Learns where a node stores to lines soon after it has loaded them: counters under locks, lists, bodies that are moved. Such a line
// goes from node to node (in the literature: it is migratory), and each of them takes it twice, for reading and then, by an upgrade, for
// writing. Where the node knows that beforehand, its load brings the right to store along (docs/internals/dszoom.md, "Loads that bring
// the right to store").
#pragma once

#include <array>
#include <cstdint>

#include "base/error.h"
#include "coherence/recent_share.h"
#include "memory/sparse_table.h"

namespace multigrain::dszoom {

// A thread remembers the last lines that came for its loads. A line was updated if the thread wanted the right to store to it while
// it remembered it, which is known when it forgets it. What is stored to much later was not: until then another node may read it,
// and would have to bring it back. From that the node keeps, for each zone of memory, how often lines were updated. Objects of one kind
// are allocated together, so a zone tells of a line that has never been here. What is known of a line by itself tells
// less: lines are missed too seldom. Of a line that comes with the right to store no miss shows whether it was stored to. So
// now and then a line comes for reading alone, and shows how its zone is used now.
//
// All this is a hint: threads change a zone at the same time and lose each other's changes. A zone has a byte for 4,096 lines.
class UpdateHistory {
 public:
  // `lines` are the lines of the region, `threads` the threads that may ask. Start-up only.
  static Result<UpdateHistory> create(uint64_t lines, uint64_t threads) {
    auto zones =
        SparseTable<RecentShare>::create((lines >> kZoneShift) + 1, "zones of memory with lines that are updated");
    if (!zones) return tl::unexpected(zones.error());
    auto recent = SparseTable<Recent>::create(threads, "recent lines that came for loads");
    if (!recent) return tl::unexpected(recent.error());
    UpdateHistory history;
    history.zones_ = std::move(*zones);
    history.recent_ = std::move(*recent);
    return history;
  }
  // Makes a history that must not be asked.
  UpdateHistory() = default;

  // Returns whether a store is likely to come soon behind a load of the line. Async-signal-safe, as all here is.
  [[nodiscard]] bool is_updated(uint64_t line) const { return zone_of(line).value() > RecentShare::kTwoThirds; }
  // The thread misses the line, to load. Returns whether it should come with the right to store.
  [[nodiscard]] bool loads(uint64_t thread, uint64_t line) {
    return is_updated(line) && ++recent_[thread].updates % kUpdatesBetweenDoubts != 0;
  }
  // The line, which the thread has missed, came for reading.
  void came_for_reading(uint64_t thread, uint64_t line) {
    Recent& recent = recent_[thread];
    Load& oldest = recent.loads[recent.next++ % kRemembered];
    if (oldest.line_plus_one != 0) zone_of(oldest.line_plus_one - 1).was(oldest.was_updated);
    oldest = {.line_plus_one = line + 1, .was_updated = false};
  }
  // The thread has asked for the right to store to the line, which was here, and got it.
  void was_upgraded(uint64_t thread, uint64_t line) {
    for (Load& remembered : recent_[thread].loads)
      if (remembered.line_plus_one == line + 1) remembered.was_updated = true;
  }

 private:
  static constexpr unsigned kZoneShift = 12;
  static constexpr uint32_t kRemembered = 8;
  static constexpr uint32_t kUpdatesBetweenDoubts = 16;

  // What one thread remembers.
  struct Load {
    uint64_t line_plus_one;  // 0: none
    bool was_updated;
  };
  struct Recent {
    std::array<Load, kRemembered> loads;
    uint32_t next;
    uint32_t updates;  // lines that came with the right to store, for loads
  };

  // How often lines of the zone were updated.
  [[nodiscard]] RecentShare& zone_of(uint64_t line) const { return zones_[line >> kZoneShift]; }

  SparseTable<RecentShare> zones_;
  SparseTable<Recent> recent_;
};

}  // namespace multigrain::dszoom
