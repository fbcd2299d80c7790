#include "coherence/hlrc/notice_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/steps.h"
#include "coherence/hlrc/words.h"

namespace multigrain::hlrc {
namespace {

constexpr uint64_t word_of(uint64_t slot) {
  return words::kNotices + slot * sizeof(uint64_t);
}

}  // namespace

Result<std::unique_ptr<NoticeReader>> NoticeReader::create(Fabric& fabric, uint64_t pages) {
  std::unique_ptr<NoticeReader> reader(new NoticeReader(fabric, pages));
  const uint64_t entries = words::kNoticeCount * fabric.nodes();
  auto words = SparseTable<uint64_t>::create(entries, "write notices");
  if (!words) return tl::unexpected(words.error());
  reader->entries_ = std::move(*words);
  auto runs = SparseTable<NoticeRun>::create(entries, "runs of pages in write notices");
  if (!runs) return tl::unexpected(runs.error());
  reader->runs_ = std::move(*runs);
  auto gets = SparseTable<Get>::create(fabric.nodes(), "reads of write notices");
  if (!gets) return tl::unexpected(gets.error());
  reader->gets_ = std::move(*gets);
  return reader;
}

// --- Timestamps

Completion NoticeReader::start_early(NodeId node, const Known& known, Timestamp& timestamp) const {
  if (!reads_early()) return {};
  Timestamp::Entries& early = timestamp.early_[node.value];
  MULTIGRAIN_STEP(&known[node.value]);
  early.begin = known[node.value].load(std::memory_order_acquire);
  const uint64_t slot = early.begin % words::kNoticeCount;
  early.count = std::min<uint64_t>(Timestamp::Entries::kMost, words::kNoticeCount - slot);
  return fabric_.start_get(node, SegmentId::kWords, word_of(slot),
                           std::as_writable_bytes(std::span(early.words.data(), early.count)));
}

void NoticeReader::read_timestamp(NodeId releaser, const Known& known, Timestamp& timestamp) const {
  const Completion time = fabric_.start_get(releaser, SegmentId::kWords, words::kVector,
                                            std::as_writable_bytes(std::span(timestamp.time_.data(), fabric_.nodes())));
  const Completion entries = start_early(releaser, known, timestamp);
  fabric_.wait(time);
  fabric_.wait(entries);
}

void NoticeReader::read_all_timestamps(const Known& known, Timestamp& timestamp) const {
  std::array<Completion, kTogether> times;
  std::array<Completion, kTogether> entries;
  const auto nodes = static_cast<uint16_t>(fabric_.nodes());
  for (uint16_t first = 0; first < nodes; first += kTogether) {
    const auto end = std::min<uint16_t>(first + kTogether, nodes);
    for (uint16_t n = first; n < end; ++n) {
      if (n == fabric_.self().value) continue;
      times[n - first] = fabric_.start_get(NodeId(n), SegmentId::kWords, words::kVector + n * sizeof(uint64_t),
                                           std::as_writable_bytes(std::span(&timestamp.time_[n], 1)));
      entries[n - first] = start_early(NodeId(n), known, timestamp);
    }
    for (uint16_t n = first; n < end; ++n) {
      if (n == fabric_.self().value) continue;
      fabric_.wait(times[n - first]);
      fabric_.wait(entries[n - first]);
    }
  }
}

// --- Notices

// Takes entries [begin, end) from those that were read early, if these have all of them. They were read before it was
// known how far the log goes, so if an entry is not among them, that only means that it was appended later.
bool NoticeReader::take_early(const Timestamp::Entries& early, uint64_t begin, uint64_t end) {
  if (begin < early.begin || end > early.begin + early.count) return false;
  const std::span<const uint64_t> entries(early.words.data() + (begin - early.begin), end - begin);
  if (read_notices(entries, begin, words::kNoticeCount, pages_, {&runs_[runs_read_], entries.size()}) !=
      NoticesRead::kAll)
    return false;
  runs_read_ += entries.size();
  return true;
}

NoticeReader::Get NoticeReader::start_get(NodeId node, const RingPiece& piece, uint64_t to) {
  const auto start = [&](uint64_t slot, uint64_t at, uint64_t length) {
    return fabric_.start_get(node, SegmentId::kWords, word_of(slot),
                             std::as_writable_bytes(std::span(&entries_[at], length)));
  };
  Get get;
  get.entries = {&entries_[to], piece.length + piece.rest};
  get.completions[0] = start(piece.slot, to, piece.length);
  if (piece.rest != 0) get.completions[1] = start(0, to + piece.length, piece.rest);
  return get;
}

// Reads all logs at once, so that an acquire takes one round trip, however many nodes have new notices.
std::optional<std::span<const NoticeRun>> NoticeReader::read(const Timestamp& timestamp, const Known& known,
                                                             NodeSet news) {
  runs_read_ = 0;
  bool overwritten = false;
  uint64_t to = 0;
  news.for_each([&](NodeId node) {
    const uint64_t begin = known[node.value].load(std::memory_order_relaxed);
    const uint64_t end = timestamp.time_[node.value];
    gets_[node.value] = {};
    if (reads_early() && take_early(timestamp.early_[node.value], begin, end)) return;
    const std::optional<RingPiece> piece = pieces_of_ring(begin, end, words::kNoticeCount);
    if (!piece) {
      overwritten = true;
      return;
    }
    gets_[node.value] = start_get(node, *piece, to);
    to += end - begin;
  });
  news.for_each([&](NodeId node) {
    const Get& get = gets_[node.value];
    if (get.entries.empty()) return;
    for (const Completion completion : get.completions) fabric_.wait(completion);
    switch (read_notices(get.entries, known[node.value].load(std::memory_order_relaxed), words::kNoticeCount, pages_,
                         {&runs_[runs_read_], get.entries.size()})) {
      case NoticesRead::kAll:
        runs_read_ += get.entries.size();
        return;
      case NoticesRead::kOverwritten:
        overwritten = true;
        return;
      case NoticesRead::kOutside:
        panic("a write notice about pages outside the region, from node", node.value);
    }
  });
  if (overwritten) return std::nullopt;
  if (runs_read_ == 0) return std::span<const NoticeRun>{};
  return join_runs({&runs_[0], runs_read_});
}

}  // namespace multigrain::hlrc
