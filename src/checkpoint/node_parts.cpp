#include "checkpoint/node_parts.h"

#include <algorithm>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace multigrain::checkpoint {

NodeParts::NodeParts(std::string folder, NodeId node, const std::vector<Part>& in_folder)
    : folder_(std::move(folder)), node_(node) {
  for (const Part& part : in_folder) numbers_.push_back(part.number);
}

Status NodeParts::begin(uint64_t number, const SpaceImage& space, const SmallImage& small,
                        std::span<const std::byte> program) {
  const bool is_long = numbers_.size() >= kMostParts || stored_pages_ > kMostCopies * entries_.size();
  before_ = has_chain_ && (!is_long || failed_to_begin_) ? numbers_.back() : 0;
  number_ = number;
  new_entries_.clear();
  passed_ = 0;
  written_pages_ = 0;
  auto writer = PartWriter::create(folder_, number, node_, before_);
  if (!writer) return tl::unexpected(writer.error());
  writer_.emplace(std::move(*writer));
  writer_->add_books(space, small, program);
  return {};
}

void NodeParts::add(PageId page, std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  const Entry entry{page.value, {hash.low64, hash.high64}};
  new_entries_.push_back(entry);
  if (before_ != 0) {
    for (; passed_ < entries_.size() && entries_[passed_].page < page.value; ++passed_)
      writer_->add_absent(PageId(entries_[passed_].page));
    if (passed_ < entries_.size() && entries_[passed_].page == page.value) {
      const Entry& before = entries_[passed_++];
      if (std::ranges::equal(before.hash, entry.hash)) return;
    }
  }
  ++written_pages_;
  writer_->add_page(page, bytes);
}

Result<NodeParts::Written> NodeParts::finish() {
  if (before_ != 0)
    for (; passed_ < entries_.size(); ++passed_) writer_->add_absent(PageId(entries_[passed_].page));
  auto part = writer_->finish();
  writer_.reset();
  if (!part) return tl::unexpected(part.error());
  return Written{*part, before_};
}

void NodeParts::end(bool is_there) {
  if (is_there) {
    if (before_ == 0) {
      numbers_.clear();
      stored_pages_ = 0;
    }
    numbers_.push_back(number_);
    stored_pages_ += written_pages_;
    entries_ = std::move(new_entries_);
    has_chain_ = true;
  }
  failed_to_begin_ = !is_there && before_ == 0;
  new_entries_ = {};
  remove_parts(folder_, [&](uint64_t number, unsigned node) {
    return node == node_.value && std::ranges::find(numbers_, number) == numbers_.end();
  });
}

}  // namespace multigrain::checkpoint
