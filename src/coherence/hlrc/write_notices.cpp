#include "coherence/hlrc/write_notices.h"

#include <algorithm>

namespace multigrain::hlrc {

std::optional<RingPiece> pieces_of_ring(uint64_t begin, uint64_t end, uint64_t capacity) {
  const uint64_t entries = end - begin;
  if (entries > capacity) return std::nullopt;
  const uint64_t slot = begin % capacity;
  const uint64_t length = std::min(entries, capacity - slot);
  return RingPiece{slot, length, entries - length};
}

NoticesRead read_notices(std::span<const uint64_t> entries, uint64_t begin, uint64_t capacity, uint64_t pages,
                         std::span<NoticeRun> runs) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto run = LogEntry::decode(entries[i], begin + i, capacity);
    if (!run) return NoticesRead::kOverwritten;
    if (run->end() > pages) return NoticesRead::kOutside;
    runs[i] = *run;
  }
  return NoticesRead::kAll;
}

std::span<const NoticeRun> join_runs(std::span<NoticeRun> runs) {
  if (runs.empty()) return runs;
  std::sort(runs.begin(), runs.end(), [](const NoticeRun& a, const NoticeRun& b) { return a.first < b.first; });
  size_t last = 0;  // the last joined run; these come first
  for (const NoticeRun next : runs.subspan(1)) {
    NoticeRun& joined = runs[last];
    if (next.first.value <= joined.end())
      joined.count = std::max(joined.end(), next.end()) - joined.first.value;
    else
      runs[++last] = next;
  }
  return runs.first(last + 1);
}

uint64_t pages_of(std::span<const NoticeRun> runs) {
  uint64_t pages = 0;
  for (const NoticeRun& run : runs) pages += run.count;
  return pages;
}

}  // namespace multigrain::hlrc
