#include "coherence/hlrc/gathered_notices.h"

#include <algorithm>

#include "base/error.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

Result<std::unique_ptr<GatheredNotices>> GatheredNotices::create(Fabric& fabric, uint64_t pages, const Places& places) {
  std::unique_ptr<GatheredNotices> gathered(new GatheredNotices(fabric, pages, places));
  // A node has fewer children than there are nodes.
  auto blocks = SparseTable<uint64_t>::create(fabric.nodes() * places.words, "write notices of subtrees");
  if (!blocks) return tl::unexpected(blocks.error());
  gathered->blocks_ = std::move(*blocks);
  auto own = SparseTable<uint64_t>::create(places.words, "a node's write notices");
  if (!own) return tl::unexpected(own.error());
  gathered->own_ = std::move(*own);
  auto runs = SparseTable<NoticeRun>::create(places.words, "runs of pages in write notices");
  if (!runs) return tl::unexpected(runs.error());
  gathered->runs_ = std::move(*runs);
  return gathered;
}

// --- Blocks

uint64_t GatheredNotices::length_of(uint64_t number) const {
  const uint64_t* const head = block(number);
  return head[0] == kTooMany ? kHead : kHead + head[1] + head[0];
}

std::span<const uint64_t> GatheredNotices::writers_in(uint64_t number) const {
  return {block(number) + kHead, block(number)[1]};
}

std::span<const uint64_t> GatheredNotices::runs_in(uint64_t number) const {
  return {block(number) + kHead + block(number)[1], block(number)[0]};
}

Completion GatheredNotices::start_get(NodeId node, uint64_t place, uint64_t number, uint64_t from, uint64_t end) {
  return fabric_.start_get(node, SegmentId::kWords, place + from * sizeof(uint64_t),
                           std::as_writable_bytes(std::span(block(number) + from, end - from)));
}

// Reads the block that each node exports at `place`: their beginnings all at the same time, and then what is left of them.
void GatheredNotices::read(std::span<const NodeId> nodes, uint64_t place, uint64_t first_block) {
  const uint64_t early = std::min(kEarly, places_.words);
  for (size_t i = 0; i < nodes.size(); ++i) reads_[i] = start_get(nodes[i], place, first_block + i, 0, early);
  for (size_t i = 0; i < nodes.size(); ++i) {
    fabric_.wait(reads_[i]);
    reads_[i] = {};
    const uint64_t* const head = block(first_block + i);
    if (head[1] > places_.words || (head[0] != kTooMany && head[0] > places_.words) ||
        length_of(first_block + i) > places_.words)
      panic("a node says that it has gathered more write notices than there is room for:", nodes[i].value);
    if (const uint64_t length = length_of(first_block + i); length > early)
      reads_[i] = start_get(nodes[i], place, first_block + i, early, length);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    fabric_.wait(reads_[i]);
    reads_[i] = {};
    if (block(first_block + i)[0] != kTooMany) check(nodes[i], first_block + i);
  }
}

// Ends the run if what the block says cannot be.
void GatheredNotices::check(NodeId from, uint64_t number) const {
  for (const uint64_t writer : writers_in(number))
    if (writer >> kNodeShift >= fabric_.nodes())
      panic("write notices were gathered of a node that is none, by node / of node", from.value, writer >> kNodeShift);
  uint64_t behind = 0;
  for (const uint64_t word : runs_in(number)) {
    const NamedRun named = NamedRun::decode(word);
    if (named.run.first.value < behind || named.run.end() > pages_ || (named.by && named.by->value >= fabric_.nodes()))
      panic("gathered write notices are out of order, or outside the region, from node / page", from.value,
            named.run.first.value);
    behind = named.run.end();
  }
}

// Uses atomics, not stores, for the same reason as for notices: they are full fences.
void GatheredNotices::publish(uint64_t place) {
  for (uint64_t i = 0; i < size_; ++i)
    fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, place + i * sizeof(uint64_t), block(0)[i]);
}

// --- Up the tree

bool GatheredNotices::append(uint64_t word) {
  if (size_ == places_.words) return false;
  block(0)[size_++] = word;
  return true;
}

bool GatheredNotices::add_writers(const Own& own, size_t children) {
  if (!own.runs->empty() && !append(uint64_t{fabric_.self().value} << kNodeShift | own.position)) return false;
  for (size_t i = 1; i <= children; ++i)
    for (const uint64_t writer : writers_in(i))
      if (!append(writer)) return false;
  return true;
}

// Appends the union of the runs of this node and its children.
bool GatheredNotices::add_runs(const Own& own, size_t children) {
  uint64_t encoded = 0;
  for (const NoticeRun& run : *own.runs) {
    for (uint64_t done = 0; done < run.count; done += NamedRun::kMostPages) {
      if (encoded == places_.words) return false;
      const NoticeRun part{PageId(run.first.value + done), std::min(NamedRun::kMostPages, run.count - done)};
      own_[encoded++] = NamedRun::encode({part, fabric_.self()});
    }
  }
  lists_[0] = encoded == 0 ? std::span<const uint64_t>{} : std::span<const uint64_t>(&own_[0], encoded);
  for (size_t i = 1; i <= children; ++i) lists_[i] = runs_in(i);
  const uint64_t first = size_;
  bool fits = true;
  for_each_stretch(
      std::span<const std::span<const uint64_t>>(lists_.data(), children + 1), NamedRun::run_of,
      [&](const NoticeRun& run, unsigned having, size_t list, size_t index) {
        NamedRun named{run, having == 1 ? NamedRun::decode(lists_[list][index]).by : std::nullopt};
        if (size_ != first) {
          const NamedRun last = NamedRun::decode(block(0)[size_ - 1]);
          const uint64_t together = last.run.count + run.count;
          if (last.by == named.by && last.run.end() == run.first.value && together <= NamedRun::kMostPages) {
            block(0)[size_ - 1] = NamedRun::encode({{last.run.first, together}, last.by});
            return;
          }
        }
        fits = fits && append(NamedRun::encode(named));
      });
  return fits;
}

void GatheredNotices::gather(const Own& own, std::span<const NodeId> children) {
  read(children, places_.up, 1);
  bool fits = own.runs.has_value();
  for (size_t i = 1; i <= children.size(); ++i) fits = fits && block(i)[0] != kTooMany;
  size_ = kHead;
  fits = fits && add_writers(own, children.size());
  const uint64_t writers = size_ - kHead;
  fits = fits && add_runs(own, children.size());
  if (fits) {
    block(0)[0] = size_ - kHead - writers;
    block(0)[1] = writers;
  } else {
    size_ = kHead;
    block(0)[0] = kTooMany;
    block(0)[1] = 0;
  }
  // The reads have their prices. Words of lists that are compared with each other cost what those of a page do that is compared
  // with its twin; entering a page into a list (queue_page) is much more on some machines, and its writer has paid that.
  uint64_t merged = own.runs ? own.runs->size() : 0;
  for (size_t i = 1; i <= children.size(); ++i) merged += length_of(i);
  virtual_time::spend(&MachineCosts::diff_make_byte, merged * sizeof(uint64_t));
  publish(places_.up);
}

// --- Down the tree

void GatheredNotices::learn(NodeId parent, bool spreads) {
  // The root has gathered the block of all nodes.
  if (parent != fabric_.self()) read({&parent, 1}, places_.down, 0);
  size_ = length_of(0);
  std::fill_n(time_.begin(), fabric_.nodes(), 0);
  if (has_all())
    for (const uint64_t writer : writers_in(0))
      time_[writer >> kNodeShift] = writer & ((uint64_t{1} << kNodeShift) - 1);
  if (spreads) publish(places_.down);
}

std::span<const NoticeRun> GatheredNotices::notices_for(NodeId self, const NodeSet& news) {
  uint64_t count = 0;
  for_each_run([&](const NoticeRun& run, std::optional<NodeId> by) {
    if (by && (*by == self || !news.contains(*by))) return;
    if (count != 0 && runs_[count - 1].end() == run.first.value)
      runs_[count - 1].count += run.count;
    else
      runs_[count++] = run;
  });
  return count == 0 ? std::span<const NoticeRun>{} : std::span<const NoticeRun>(&runs_[0], count);
}

void GatheredNotices::forget() {
  size_ = 0;
}

}  // namespace multigrain::hlrc
