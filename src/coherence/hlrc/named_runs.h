// Runs of pages that nodes have named, and who has: what is worked out at a barrier from the lists of several nodes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "coherence/hlrc/log_entry.h"
#include "coherence/hlrc/vector_time.h"

namespace multigrain::hlrc {

// A run of pages with the node that alone has named them; nullopt: several nodes have. It takes a word.
struct NamedRun {
  static constexpr uint64_t kMostPages = uint64_t{1} << 16;

  NoticeRun run;  // of at most kMostPages
  std::optional<NodeId> by;

  [[nodiscard]] static uint64_t encode(const NamedRun& named) {
    return (named.by ? uint64_t{named.by->value} + 1 : 0) << 48 | (named.run.count - 1) << 32 | named.run.first.value;
  }
  [[nodiscard]] static NamedRun decode(uint64_t word) {
    const auto by_plus_one = static_cast<uint16_t>(word >> 48);
    return {run_of(word),
            by_plus_one == 0 ? std::nullopt : std::optional(NodeId(static_cast<uint16_t>(by_plus_one - 1)))};
  }
  [[nodiscard]] static NoticeRun run_of(uint64_t word) {
    return {PageId(word & 0xffffffffu), (word >> 32 & (kMostPages - 1)) + 1};
  }
  bool operator==(const NamedRun&) const = default;
};

// Visits, as visit(run, having, list, index), the pages that are in any of at most kMostNodes lists, in ascending order, in runs
// of pages that are in the same elements: so many lists have them, and one of these is list number `list`, by its element `index`.
// `run_of` returns the run of an element; those of a list are in ascending order and do not overlap.
template <typename Element, typename RunOf, typename Visit>
void for_each_stretch(std::span<const std::span<const Element>> lists, RunOf&& run_of, Visit&& visit) {
  std::array<size_t, kMostNodes> next;
  std::fill_n(next.begin(), lists.size(), 0);
  uint64_t from = 0;  // all pages before it have been visited
  while (true) {
    // A list that has any page between `from` and `end` has all of them.
    uint64_t end = UINT64_MAX;
    unsigned having = 0;
    size_t list = 0;
    uint64_t nearest = UINT64_MAX;
    for (size_t n = 0; n < lists.size(); ++n) {
      while (next[n] < lists[n].size() && run_of(lists[n][next[n]]).end() <= from) ++next[n];
      if (next[n] == lists[n].size()) continue;
      const NoticeRun run = run_of(lists[n][next[n]]);
      if (run.first.value > from) {
        nearest = std::min(nearest, run.first.value);
        continue;
      }
      ++having;
      list = n;
      end = std::min(end, run.end());
    }
    end = std::min(end, nearest);
    if (end == UINT64_MAX) return;
    if (having != 0) visit(NoticeRun{PageId(from), end - from}, having, list, next[list]);
    from = end;
  }
}

// Visits, as visit(run, node), the pages that are in any of the runs, in ascending order: with the node whose runs alone
// have them, or with nullopt. `lists` has the runs of each node, in ascending order; the runs of a node do not overlap.
template <typename Visit>
void for_each_named_run(std::span<const std::span<const NoticeRun>> lists, Visit&& visit) {
  for_each_stretch(
      lists, [](const NoticeRun& run) { return run; },
      [&](const NoticeRun& run, unsigned having, size_t list, size_t) {
        visit(run, having == 1 ? std::optional(NodeId(static_cast<uint16_t>(list))) : std::nullopt);
      });
}

}  // namespace multigrain::hlrc
