#include "memory/heap/address_space.h"

#include <algorithm>
#include <bit>
#include <climits>

namespace multigrain {
namespace {

constexpr unsigned kInterleavedKind = 0;
constexpr unsigned kFirstTouchKind = 1;
constexpr unsigned kBlockedKind = 2;
constexpr unsigned kFirstNodeKind = 3;

unsigned bucket_of(uint64_t pages) {
  return static_cast<unsigned>(std::bit_width(pages)) - 1;
}

}  // namespace

AddressSpace::AddressSpace(const HeapGeometry& geometry, ExtentTable& extents)
    : geometry_(geometry),
      // The limit keeps the chunks of a few placements from using up a small region.
      chunk_pages_(std::max<uint64_t>(1, std::min(kMaxChunkBytes, geometry.size / 256) / geometry.page_size)),
      extents_(extents),
      tags_(make_table<Tag>(geometry.pages(), "runs of pages")),
      heads_(make_table<std::array<uint64_t, kBuckets>>(kKinds, "free runs of pages")),
      tails_(make_table<Tail>(kKinds, "chunks of pages")) {}

unsigned AddressSpace::kind_of(const Placement& placement) {
  const unsigned first = placement.grain_number() * kKindsOfGrain;
  switch (placement.policy) {
    case HomePolicy::kInterleaved:
      return first + kInterleavedKind;
    case HomePolicy::kFirstTouch:
      return first + kFirstTouchKind;
    case HomePolicy::kBlocked:
      return first + kBlockedKind;
    case HomePolicy::kNode:
      return first + kFirstNodeKind + placement.node.value;
  }
  panic("allocation with an unknown home policy:", static_cast<uint64_t>(placement.policy));
}

bool AddressSpace::is_blocked(unsigned kind) {
  return kind % kKindsOfGrain == kBlockedKind;
}

// Aligns the address, because the region's base need not be aligned to more than a page.
uint64_t AddressSpace::align(uint64_t page, uint64_t alignment_pages) const {
  const uint64_t base_page = geometry_.base / geometry_.page_size;
  return ((base_page + page + alignment_pages - 1) & ~(alignment_pages - 1)) - base_page;
}

std::optional<PageRun> AddressSpace::allocate(uint64_t pages, uint64_t alignment_pages, const Placement& placement) {
  MG_CHECK(pages > 0);
  MG_CHECK(std::has_single_bit(alignment_pages), alignment_pages);
  // With these limits the sums of three such numbers cannot overflow.
  if (pages > geometry_.pages() || alignment_pages > geometry_.pages()) return std::nullopt;
  const unsigned kind = kind_of(placement);
  const bool blocked = is_blocked(kind);

  std::optional<PageRun> run = take_free(kind, pages, alignment_pages, blocked ? UINT_MAX : kQuickSearch);
  if (!run && !blocked) run = take_from_tail(kind, pages, alignment_pages);
  if (!run && !blocked && pages <= chunk_pages_ / 4 && alignment_pages <= chunk_pages_ / 4) {
    if (const auto chunk = take_new_extent(chunk_pages_, 1, placement, Extent::kNoOwner)) {
      retire_tail(kind);
      tails_[kind] = {chunk->first.value, chunk->first.value + chunk->pages};
      run = take_from_tail(kind, pages, alignment_pages);
    }
  }
  if (!run) run = take_new_extent(pages, alignment_pages, placement, Extent::kNoOwner);
  if (!run && !blocked) {
    // The region is used up to its end. Only now is it worth looking at every free run, and handing out clean pages as
    // part of a block that must be cleared.
    retire_tail(kind);
    run = take_free(kind, pages, alignment_pages, UINT_MAX);
    if (!run) {
      join_clean_and_dirty(kind);
      run = take_free(kind, pages, alignment_pages, UINT_MAX);
    }
  }
  if (run) mark_allocated(kind, run->first.value, run->pages);
  return run;
}

std::optional<PageRun> AddressSpace::allocate_for_owner(uint64_t wanted, uint64_t minimum, const Placement& placement,
                                                        NodeId owner) {
  MG_CHECK(minimum > 0 && minimum <= wanted);
  if (minimum > geometry_.pages()) return std::nullopt;
  if (wanted <= geometry_.pages()) {
    if (auto run = take_new_extent(wanted, 1, placement, owner.value)) return run;
  }
  return take_new_extent(minimum, 1, placement, owner.value);
}

std::optional<uint64_t> AddressSpace::pages_of(PageId first) const {
  if (first.value >= geometry_.pages() || tags_[first.value].state != State::kAllocated) return std::nullopt;
  return tags_[first.value].pages;
}

bool AddressSpace::free(PageId first) {
  const std::optional<uint64_t> pages = pages_of(first);
  if (!pages) return false;
  Tag& tag = tags_[first.value];
  tag.state = State::kNothing;
  add_free(tag.kind, first.value, *pages, true);
  return true;
}

std::optional<PageRun> AddressSpace::take_new_extent(uint64_t pages, uint64_t alignment_pages,
                                                     const Placement& placement, uint16_t owner) {
  const uint64_t first = align(break_, alignment_pages);
  if (first + pages > geometry_.pages() || extents_.count() + 2 > extents_.capacity()) return std::nullopt;
  if (first != break_) {
    // The pages that alignment skips must belong to some extent to be of use, because addresses of extents only ascend.
    extents_.append(Extent{PageId(break_), first - break_, Placement{}, Extent::kNoOwner});
    add_free(kInterleavedKind, break_, first - break_, false);
  }
  extents_.append(Extent{PageId(first), pages, placement, owner});
  break_ = first + pages;
  return PageRun{PageId(first), pages, false};
}

std::optional<PageRun> AddressSpace::take_from_tail(unsigned kind, uint64_t pages, uint64_t alignment_pages) {
  Tail& tail = tails_[kind];
  const uint64_t first = align(tail.next, alignment_pages);
  if (first + pages > tail.end) return std::nullopt;
  if (first != tail.next) add_free(kind, tail.next, first - tail.next, false);
  tail.next = first + pages;
  return PageRun{PageId(first), pages, false};
}

std::optional<PageRun> AddressSpace::take_free(unsigned kind, uint64_t pages, uint64_t alignment_pages,
                                               unsigned limit) {
  const bool exact = is_blocked(kind);
  const unsigned last_bucket = exact ? bucket_of(pages) : kBuckets - 1;
  for (unsigned bucket = bucket_of(pages); bucket <= last_bucket; ++bucket) {
    unsigned looked_at = 0;
    for (uint64_t at = heads_[kind][bucket] - 1; at != kNone && looked_at < limit; at = tags_[at].next, ++looked_at) {
      const Tag run = tags_[at];
      const uint64_t first = align(at, alignment_pages);
      if (exact ? first != at || run.pages != pages : first + pages > at + run.pages) continue;
      unlink(at);
      // The neighbours of a free run are not free, or cannot be joined with it, so the rests need no joining.
      if (first != at) link(kind, at, first - at, run.dirty);
      const uint64_t rest = at + run.pages - (first + pages);
      if (rest != 0) link(kind, first + pages, rest, run.dirty);
      return PageRun{PageId(first), pages, run.dirty};
    }
  }
  return std::nullopt;
}

SpaceImage AddressSpace::image() {
  SpaceImage image;
  image.extents.reserve(extents_.count());
  for (uint64_t i = 0; i < extents_.count(); ++i) {
    image.extents.push_back(extents_.at(i));
    if (!extents_.at(i).has_owner()) retire_tail(kind_of(extents_.at(i).placement));
  }
  uint64_t position = 0;
  for (const Extent& extent : image.extents) {
    if (extent.has_owner()) continue;
    // A run may span adjacent extents, so `position` may already be beyond the start of this one.
    position = std::max(position, extent.first.value);
    while (position < extent.first.value + extent.pages) {
      const Tag& run = tags_[position];
      MG_CHECK(run.state != State::kNothing, position);
      image.runs.push_back({position, run.pages, run.kind, run.state == State::kAllocated, run.dirty});
      position += run.pages;
    }
  }
  return image;
}

Status AddressSpace::restore(const SpaceImage& image) {
  if (extents_.count() != 0) return fail("shared memory was allocated before the checkpoint's was restored");
  if (image.extents.size() >= extents_.capacity()) return fail("the checkpoint has too many extents");
  const auto fits = [&](uint64_t first, uint64_t pages, uint64_t from) {
    return pages != 0 && first >= from && first < geometry_.pages() && pages <= geometry_.pages() - first;
  };
  for (const Extent& extent : image.extents)
    if (!fits(extent.first.value, extent.pages, break_))
      return fail("the checkpoint's extents overlap, or lie outside of the region");
    else {
      extents_.append(extent);
      break_ = extent.first.value + extent.pages;
    }
  uint64_t end = 0;
  for (const SpaceImage::Run& run : image.runs) {
    if (!fits(run.first, run.pages, end) || run.first + run.pages > break_ || run.kind >= kKinds)
      return fail("the checkpoint's runs of pages overlap, or lie outside of its extents");
    end = run.first + run.pages;
    if (run.is_allocated)
      mark_allocated(run.kind, run.first, run.pages);
    else
      link(run.kind, run.first, run.pages, run.is_dirty);
  }
  return {};
}

void AddressSpace::mark_allocated(unsigned kind, uint64_t first, uint64_t pages) {
  Tag& tag = tags_[first];
  tag.pages = pages;
  tag.kind = kind;
  tag.state = State::kAllocated;
}

void AddressSpace::retire_tail(unsigned kind) {
  const Tail tail = tails_[kind];
  tails_[kind] = {};
  if (tail.next != tail.end) add_free(kind, tail.next, tail.end - tail.next, false);
}

// Joins every pair of adjacent free runs of the kind. add_free keeps clean and dirty runs apart, so that freeing a page
// beside a clean terabyte does not turn the next large block into one that must be cleared, and so touched, wholly.
void AddressSpace::join_clean_and_dirty(unsigned kind) {
  uint64_t previous = kNone;  // the free run that ends at `position`
  uint64_t position = 0;
  for (uint64_t i = 0; i < extents_.count(); ++i) {
    const Extent& extent = extents_.at(i);
    if (extent.has_owner() || kind_of(extent.placement) != kind) continue;
    if (extent.first.value != position) previous = kNone;
    // A run may span adjacent extents, so `position` may already be beyond the start of this one.
    position = std::max(position, extent.first.value);
    while (position < extent.first.value + extent.pages) {
      const Tag run = tags_[position];
      MG_CHECK(run.state != State::kNothing, position);
      const uint64_t start = position;
      position += run.pages;
      if (run.state == State::kAllocated) {
        previous = kNone;
      } else if (previous == kNone) {
        previous = start;
      } else {
        const Tag before = tags_[previous];
        unlink(previous);
        unlink(start);
        link(kind, previous, before.pages + run.pages, before.dirty || run.dirty);
      }
    }
  }
}

void AddressSpace::add_free(unsigned kind, uint64_t first, uint64_t pages, bool dirty) {
  if (!is_blocked(kind)) {
    const auto joins = [&](uint64_t start) {
      const Tag& run = tags_[start];
      return run.state == State::kFree && run.kind == kind && run.dirty == dirty;
    };
    const uint64_t after = first + pages;
    if (after < geometry_.pages() && joins(after)) {
      pages += tags_[after].pages;
      unlink(after);
    }
    if (first > 0) {
      // The tag of the page before may be left over from a run that no longer exists. The run that it names must
      // confirm it.
      const uint64_t before = tags_[first - 1].first;
      if (before < first && joins(before) && before + tags_[before].pages == first) {
        pages += tags_[before].pages;
        unlink(before);
        first = before;
      }
    }
  }
  link(kind, first, pages, dirty);
}

void AddressSpace::link(unsigned kind, uint64_t first, uint64_t pages, bool dirty) {
  uint64_t& head_plus_one = heads_[kind][bucket_of(pages)];
  Tag& tag = tags_[first];
  tag.pages = pages;
  tag.next = head_plus_one - 1;
  tag.previous = kNone;
  tag.state = State::kFree;
  tag.kind = kind;
  tag.dirty = dirty;
  tags_[first + pages - 1].first = first;
  if (tag.next != kNone) tags_[tag.next].previous = first;
  head_plus_one = first + 1;
}

void AddressSpace::unlink(uint64_t first) {
  Tag& tag = tags_[first];
  if (tag.previous != kNone) {
    tags_[tag.previous].next = tag.next;
  } else {
    heads_[tag.kind][bucket_of(tag.pages)] = tag.next + 1;
  }
  if (tag.next != kNone) tags_[tag.next].previous = tag.previous;
  tag.state = State::kNothing;
}

}  // namespace multigrain
