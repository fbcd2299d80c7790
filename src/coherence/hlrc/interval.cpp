#include "coherence/hlrc/interval.h"

#include <algorithm>

#include "memory/diff.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"
#include "status/costs.h"

namespace multigrain::hlrc {

Status WrittenPages::create(uint64_t capacity) {
  for (auto& list : lists_) {
    auto made = SparseTable<PageId>::create(capacity, "pages written in an interval");
    if (!made) return tl::unexpected(made.error());
    list = std::move(*made);
  }
  return {};
}

void WrittenPages::push(PageId page) {
  virtual_time::spend(&MachineCosts::queue_page);
  MULTIGRAIN_STEP(&unpublished_);
  unpublished_.fetch_add(1, std::memory_order_release);
  MULTIGRAIN_LOCK_STEP(lock_);
  const LockGuard hold(lock_);
  lists_[current_][size_++] = page;
}

std::span<const PageId> WrittenPages::take() {
  std::span<PageId> taken;
  MULTIGRAIN_LOCK_STEP(lock_);
  {
    const LockGuard hold(lock_);
    if (size_ == 0) return {};
    taken = {&lists_[current_][0], size_};
    current_ ^= 1;
    size_ = 0;
  }
  if (!std::is_sorted(taken.begin(), taken.end())) std::sort(taken.begin(), taken.end());
  return taken;
}

ChangedLines Deposits::start(NodeId home, uint64_t offset, const Change& change, size_t page_size) {
  std::byte* const memory = fabric_.memory_of(home, SegmentId::kFrames, offset, page_size);
  const DepositedChanges done = memory != nullptr
                                    ? deposit_changes(memory, change.page, change.twin, page_size, change.updates_twin)
                                    : start_put(home, offset, change, page_size);
  virtual_time::spend(&MachineCosts::diff_make_byte, page_size);
  ProcessorProfile& profile = this_profile();
  profile.count(done.lines != 0 ? Counter::kDiffs : Counter::kEmptyDiffs);
  profile.count(Counter::kDiffBytes, done.bytes);
  profile.count(Counter::kDiffLines, done.lines);
  if (done.lines != 0) costs::note_diff(offset / page_size, done.bytes);
  return {.lines = done.lines, .runs = done.runs};
}

// The bytes stay where they are until the deposit is complete: in a frame that no processor can write, or in its twin.
DepositedChanges Deposits::start_put(NodeId home, uint64_t offset, const Change& change, size_t page_size) {
  const std::byte* const bytes = change.updates_twin ? change.twin : change.page;
  std::array<Piece, 256> pieces;
  size_t n = 0;
  DepositedChanges done;
  size_t counted = 0;  // the first byte that is in no line counted so far
  for_each_change(change.page, change.twin, page_size, change.updates_twin, [&](size_t at, size_t length) {
    if (n == pieces.size()) {
      put(home, offset, pieces);
      n = 0;
    }
    pieces[n++] = {bytes + at, static_cast<uint32_t>(at), static_cast<uint32_t>(length)};
    done.bytes += length;
    constexpr size_t kLine = diff_format::kLine;
    const size_t end = (at + length + kLine - 1) / kLine * kLine;
    const size_t first = at / kLine * kLine;
    if (done.lines == 0 || first > counted) ++done.runs;
    done.lines += static_cast<uint32_t>((end - std::max(counted, first)) / kLine);
    counted = end;
  });
  if (n != 0) put(home, offset, {pieces.data(), n});
  return done;
}

void Deposits::finish() {
  for (size_t i = 0; i < under_way_; ++i) fabric_.wait(completions_[i]);
  under_way_ = 0;
}

void Deposits::put(NodeId home, uint64_t offset, std::span<const Piece> pieces) {
  const Completion completion = fabric_.start_put_pieces(home, SegmentId::kFrames, offset, pieces);
  if (completion.id == 0) return;
  if (under_way_ == completions_.size()) fabric_.wait(completions_[--under_way_]);
  completions_[under_way_++] = completion;
}

}  // namespace multigrain::hlrc
