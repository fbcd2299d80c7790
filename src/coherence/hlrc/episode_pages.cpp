#include "coherence/hlrc/episode_pages.h"

#include <algorithm>

#include "base/error.h"

namespace multigrain::hlrc {

Result<std::unique_ptr<EpisodePages>> EpisodePages::create(Fabric& fabric, uint64_t pages, const Place& place) {
  std::unique_ptr<EpisodePages> writes(new EpisodePages(fabric, pages, place));
  auto own = SparseTable<NoticeRun>::create(2 * place.runs, "pages named in an episode");
  if (!own) return tl::unexpected(own.error());
  writes->own_ = std::move(*own);
  auto words = SparseTable<uint64_t>::create(fabric.nodes() * (place.runs + 1), "pages named by nodes");
  if (!words) return tl::unexpected(words.error());
  writes->words_ = std::move(*words);
  auto runs = SparseTable<NoticeRun>::create(fabric.nodes() * place.runs, "runs of pages named by nodes");
  if (!runs) return tl::unexpected(runs.error());
  writes->runs_ = std::move(*runs);
  return writes;
}

uint64_t EpisodePages::word_at(uint64_t episode, uint64_t index) const {
  return place_.first + episode % 2 * place_.bytes + index * sizeof(uint64_t);
}

// --- The node's own list

void EpisodePages::add(PageId page) {
  if (is_too_much_) return;
  if (size_ != 0) {
    NoticeRun& last = own_[size_ - 1];
    if (page.value >= last.first.value && page.value < last.end()) return;
    if (page.value == last.end()) {
      ++last.count;
      return;
    }
  }
  if (size_ == own_.count()) {
    size_ = join_runs({&own_[0], size_}).size();
    // If joining leaves more than half, the table would soon be full again, and runs would be joined again and again.
    is_too_much_ = size_ > place_.runs;
    if (is_too_much_) return;
  }
  own_[size_++] = {page, 1};
}

std::optional<std::span<const NoticeRun>> EpisodePages::own() {
  if (size_ != 0) size_ = join_runs({&own_[0], size_}).size();
  is_too_much_ = is_too_much_ || size_ > place_.runs;
  if (is_too_much_) return std::nullopt;
  return size_ == 0 ? std::span<const NoticeRun>{} : std::span<const NoticeRun>(&own_[0], size_);
}

// Uses atomics, not stores, for the same reason as for notices: they are full fences.
void EpisodePages::publish(uint64_t episode) {
  const auto put = [&](uint64_t index, uint64_t word) {
    fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, word_at(episode, index), word);
  };
  const auto runs = own();
  for (uint64_t i = 0; runs && i < runs->size(); ++i) put(i + 1, encode((*runs)[i]));
  put(0, runs ? runs->size() : kTooMany);
}

void EpisodePages::forget() {
  size_ = 0;
  is_too_much_ = false;
}

// --- The lists of all nodes, at the barrier

uint64_t* EpisodePages::words_of(NodeId node) const {
  return &words_[node.value * (place_.runs + 1)];
}

NoticeRun* EpisodePages::runs_of(NodeId node) const {
  return &runs_[node.value * place_.runs];
}

Completion EpisodePages::start_get(NodeId node, uint64_t episode, uint64_t from, uint64_t words) {
  return fabric_.start_get(node, SegmentId::kWords, word_at(episode, from),
                           std::as_writable_bytes(std::span(words_of(node) + from, words)));
}

void EpisodePages::start(uint64_t episode) {
  for (uint16_t n = 0; n < fabric_.nodes(); ++n)
    if (n != fabric_.self().value)
      reads_[n] = start_get(NodeId(n), episode, 0, std::min<uint64_t>(kEarly, place_.runs + 1));
}

void EpisodePages::finish(uint64_t episode) {
  has_all_ = !is_too_much_;
  for (uint16_t n = 0; n < fabric_.nodes(); ++n) {
    if (n == fabric_.self().value) continue;
    fabric_.wait(reads_[n]);
    reads_[n] = {};
    const uint64_t size = *words_of(NodeId(n));
    has_all_ = has_all_ && size != kTooMany;
    if (size == kTooMany) continue;
    if (size > place_.runs) panic("a node says that it names more runs of pages than there is room for:", n);
    if (size + 1 > kEarly) reads_[n] = start_get(NodeId(n), episode, kEarly, size + 1 - kEarly);
  }
  for (uint16_t n = 0; n < fabric_.nodes(); ++n) {
    if (n == fabric_.self().value) continue;
    fabric_.wait(reads_[n]);
    if (has_all_) decode_list(NodeId(n));
  }
  if (has_all_) lists_[fabric_.self().value] = size_ == 0 ? std::span<const NoticeRun>{} : std::span(&own_[0], size_);
}

void EpisodePages::decode_list(NodeId node) {
  const uint64_t size = *words_of(node);
  NoticeRun* const runs = runs_of(node);
  uint64_t behind = 0;
  for (uint64_t i = 0; i < size; ++i) {
    runs[i] = decode(words_of(node)[i + 1]);
    if (runs[i].first.value < behind || runs[i].end() > pages_)
      panic("runs of pages are out of order, or outside the region, from node / page", node.value, runs[i].first.value);
    behind = runs[i].end();
  }
  lists_[node.value] = {runs, size};
}

std::optional<std::span<const std::span<const NoticeRun>>> EpisodePages::lists() const {
  if (!has_all_) return std::nullopt;
  return std::span(lists_.data(), fabric_.nodes());
}

}  // namespace multigrain::hlrc
