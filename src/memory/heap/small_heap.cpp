#include "memory/heap/small_heap.h"

#include <algorithm>
#include <bit>

namespace multigrain {

SmallHeap::SmallHeap(const HeapGeometry& geometry)
    : geometry_(geometry),
      superblock_bytes_(static_cast<uint32_t>(std::max<uint64_t>(kMinSuperblockBytes, 4 * geometry.page_size))),
      bitmap_words_(superblock_bytes_ / kGranule / 64),
      superblocks_(make_table<Superblock>(geometry.size / superblock_bytes_, "superblocks")),
      bitmaps_(make_table<uint64_t>(geometry.size / superblock_bytes_ * bitmap_words_, "bitmaps of small blocks")),
      superblock_of_page_(make_table<Link>(geometry.pages(), "superblocks by page")),
      lists_(make_table<Lists>(kKinds, "lists of superblocks")) {
  // The largest class is 7/8 of a page: a larger block gets a page of its own.
  uint32_t step = kGranule;
  for (uint32_t size = kGranule; size < geometry.page_size; size += step) {
    MG_CHECK(classes_ < kMaxClasses);
    class_sizes_[classes_++] = size;
    if (size >= 8 * kGranule && std::has_single_bit(size)) step = size / 4;
  }
}

std::optional<unsigned> SmallHeap::class_for(uint64_t size, uint64_t alignment) const {
  const auto begin = class_sizes_.begin();
  const auto end = begin + classes_;
  auto found = std::lower_bound(begin, end, size);
  while (found != end && *found % alignment != 0) ++found;
  if (found == end) return std::nullopt;
  return static_cast<unsigned>(found - begin);
}

std::optional<SmallBlock> SmallHeap::allocate(unsigned size_class, const Placement& placement) {
  MG_CHECK(size_class < classes_, size_class);
  const unsigned kind = kind_of(placement);
  Lists& lists = lists_[kind];
  Link& partial = lists.partial[size_class];
  if (partial == 0) {
    if (lists.empty == 0) return std::nullopt;
    const uint32_t fresh = lists.empty - 1;
    remove(lists.empty, fresh);
    superblocks_[fresh].size_class = static_cast<uint8_t>(size_class);
    superblocks_[fresh].first_free = 0;
    push(partial, fresh);
  }

  const uint32_t number = partial - 1;
  Superblock& superblock = superblocks_[number];
  uint32_t word = superblock.first_free;
  while (bitmap_word(number, word) == ~uint64_t{0}) ++word;
  const uint32_t bit = static_cast<uint32_t>(std::countr_one(bitmap_word(number, word)));
  const uint32_t block = word * 64 + bit;
  MG_CHECK(block < blocks_in(superblock), block);
  bitmap_word(number, word) |= uint64_t{1} << bit;
  superblock.first_free = word;
  if (++superblock.used == blocks_in(superblock)) remove(partial, number);

  const uint32_t size = class_sizes_[size_class];
  const uint32_t start = block * size;
  const bool touched = start < superblock.touched_bytes;
  superblock.touched_bytes = std::max(superblock.touched_bytes, start + size);
  return SmallBlock{superblock.offset + start, touched};
}

SmallHeap::PageRequest SmallHeap::next_request(const Placement& placement) const {
  const uint64_t pages = superblock_bytes_ / geometry_.page_size;
  return {pages * std::clamp<uint32_t>(lists_[kind_of(placement)].superblocks, 1, kMaxSuperblocksAtOnce), pages};
}

void SmallHeap::add_superblocks(PageId first, uint64_t pages, const Placement& placement) {
  const uint64_t pages_each = superblock_bytes_ / geometry_.page_size;
  MG_CHECK(pages % pages_each == 0, pages);
  const unsigned kind = kind_of(placement);
  for (uint64_t page = first.value; page < first.value + pages; page += pages_each) {
    const uint32_t number = superblock_count_++;
    Superblock& superblock = superblocks_[number];
    superblock.offset = page * geometry_.page_size;
    superblock.kind = kind;
    for (uint64_t i = 0; i < pages_each; ++i) superblock_of_page_[page + i] = number + 1;
    push(lists_[kind].empty, number);
    ++lists_[kind].superblocks;
  }
}

std::optional<uint32_t> SmallHeap::size_of(uint64_t offset) const {
  const std::optional<Found> found = find(offset);
  if (!found) return std::nullopt;
  return class_sizes_[superblocks_[found->superblock].size_class];
}

bool SmallHeap::free(uint64_t offset) {
  const std::optional<Found> found = find(offset);
  if (!found) return false;
  Superblock& superblock = superblocks_[found->superblock];
  Lists& lists = lists_[superblock.kind];
  Link& partial = lists.partial[superblock.size_class];
  const uint32_t word = found->block / 64;
  bitmap_word(found->superblock, word) &= ~(uint64_t{1} << found->block % 64);
  superblock.first_free = std::min(superblock.first_free, word);
  if (superblock.used-- == blocks_in(superblock)) push(partial, found->superblock);
  if (superblock.used == 0) {
    remove(partial, found->superblock);
    push(lists.empty, found->superblock);
  }
  return true;
}

SmallImage SmallHeap::image() const {
  SmallImage image;
  for (uint32_t number = 0; number < superblock_count_; ++number) {
    const Superblock& superblock = superblocks_[number];
    image.superblocks.push_back(
        {superblock.offset, superblock.touched_bytes, superblock.used, superblock.kind, superblock.size_class});
    for (uint32_t word = 0; word < bitmap_words_; ++word) image.bitmaps.push_back(bitmap_word(number, word));
  }
  return image;
}

Status SmallHeap::restore(const SmallImage& image) {
  if (superblock_count_ != 0) return fail("small blocks were allocated before the checkpoint's were restored");
  const uint64_t pages_each = superblock_bytes_ / geometry_.page_size;
  if (image.superblocks.size() > superblocks_.count() ||
      image.bitmaps.size() != image.superblocks.size() * bitmap_words_)
    return fail("the checkpoint's small blocks are incomplete");
  for (const SmallImage::Superblock& one : image.superblocks) {
    const uint32_t number = superblock_count_;
    if (one.offset % geometry_.page_size != 0 || one.offset >= geometry_.size ||
        superblock_bytes_ > geometry_.size - one.offset || one.kind >= kKinds || one.size_class >= classes_)
      return fail("the checkpoint's small blocks lie outside of the region, or are of no size that there is");
    Superblock& superblock = superblocks_[number];
    superblock.offset = one.offset;
    superblock.touched_bytes = one.touched_bytes;
    superblock.used = one.used;
    superblock.kind = one.kind;
    superblock.size_class = static_cast<uint8_t>(one.size_class);
    if (one.used > blocks_in(superblock)) return fail("the checkpoint has more small blocks than there is room for");
    for (uint32_t word = 0; word < bitmap_words_; ++word)
      bitmap_word(number, word) = image.bitmaps[uint64_t{number} * bitmap_words_ + word];
    for (uint64_t i = 0; i < pages_each; ++i) superblock_of_page_[one.offset / geometry_.page_size + i] = number + 1;
    Lists& lists = lists_[one.kind];
    ++lists.superblocks;
    ++superblock_count_;
    if (one.used == 0)
      push(lists.empty, number);
    else if (one.used != blocks_in(superblock))
      push(lists.partial[one.size_class], number);
  }
  return {};
}

unsigned SmallHeap::kind_of(const Placement& placement) {
  const unsigned first = placement.grain_number() * kKindsOfGrain;
  switch (placement.policy) {
    case HomePolicy::kInterleaved:
      return first;
    case HomePolicy::kFirstTouch:
      return first + 1;
    case HomePolicy::kNode:
      return first + 2 + placement.node.value;
    case HomePolicy::kBlocked:
      break;
  }
  panic("small block with a home policy that small blocks do not have:", static_cast<uint64_t>(placement.policy));
}

std::optional<SmallHeap::Found> SmallHeap::find(uint64_t offset) const {
  if (offset >= geometry_.pages() * geometry_.page_size) return std::nullopt;
  const Link link = superblock_of_page_[offset / geometry_.page_size];
  if (link == 0) return std::nullopt;
  const uint32_t number = link - 1;
  const Superblock& superblock = superblocks_[number];
  if (superblock.used == 0) return std::nullopt;
  const uint64_t start = offset - superblock.offset;
  const uint32_t size = class_sizes_[superblock.size_class];
  if (start % size != 0) return std::nullopt;
  const uint32_t block = static_cast<uint32_t>(start / size);
  if (block >= blocks_in(superblock) || (bitmap_word(number, block / 64) >> block % 64 & 1) == 0) return std::nullopt;
  return Found{number, block};
}

void SmallHeap::push(Link& head, uint32_t superblock) {
  superblocks_[superblock].next = head;
  superblocks_[superblock].previous = 0;
  if (head != 0) superblocks_[head - 1].previous = superblock + 1;
  head = superblock + 1;
}

void SmallHeap::remove(Link& head, uint32_t superblock) {
  const Superblock& gone = superblocks_[superblock];
  if (gone.previous != 0) {
    superblocks_[gone.previous - 1].next = gone.next;
  } else {
    head = gone.next;
  }
  if (gone.next != 0) superblocks_[gone.next - 1].previous = gone.previous;
}

}  // namespace multigrain
