#include "memory/heap/shared_heap.h"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace multigrain {
namespace {

template <typename... Args>
tl::unexpected<HeapError> heap_error(int code, fmt::format_string<Args...> format, Args&&... args) {
  HeapError error;
  error.message = fmt::format(format, std::forward<Args>(args)...);
  error.code = code;
  return tl::unexpected<HeapError>(std::move(error));
}

// This bit in a message's flags, beside the home policy, says that the memory is kept coherent by lines.
constexpr uint8_t kOfLines = 0x80;
// And this one, that it may be, some time.
constexpr uint8_t kMayMove = 0x40;

uint8_t flags_of(const Placement& placement) {
  const uint8_t grain = placement.grain == Grain::kLine ? kOfLines : placement.may_move_to_lines ? kMayMove : 0;
  return static_cast<uint8_t>(static_cast<uint8_t>(placement.policy) | grain);
}

// A message's third word has the block size from this bit on, and where memory of pages is pinned from the other one on.
constexpr unsigned kBlockSizeShift = 32;
constexpr unsigned kPinShift = 56;

Placement placement_in(const MessageHeader& header) {
  return {.policy = static_cast<HomePolicy>(header.flags & ~(kOfLines | kMayMove)),
          .node = NodeId(header.small),
          .grain = (header.flags & kOfLines) != 0 ? Grain::kLine : Grain::kPage,
          .block_size = static_cast<uint32_t>(header.word[2] >> kBlockSizeShift & 0xff'ffff),
          .may_move_to_lines = (header.flags & kMayMove) != 0,
          .pin = static_cast<Pin>(header.word[2] >> kPinShift)};
}
uint64_t in_third_word(const Placement& placement) {
  return uint64_t{placement.block_size} << kBlockSizeShift | static_cast<uint64_t>(placement.pin) << kPinShift;
}
uint64_t without_block_size(uint64_t third_word) {
  return third_word & ((uint64_t{1} << kBlockSizeShift) - 1);
}
bool is_block_size(const Placement& placement, size_t page_size) {
  return placement.block_size % Placement::kBlockUnit == 0 && placement.block_size <= page_size &&
         (placement.grain == Grain::kLine || placement.block_size == 0);
}

// Does the same for a message from another node, and checks it.
Placement placement_from(const Message& message, const HeapGeometry& geometry) {
  const HomePolicy policy = placement_in(message.header).policy;
  const bool known = policy == HomePolicy::kInterleaved || policy == HomePolicy::kBlocked ||
                     policy == HomePolicy::kFirstTouch || policy == HomePolicy::kNode;
  const Placement placement = placement_in(message.header);
  const bool moves_from_lines = placement.grain == Grain::kLine && placement.may_move_to_lines;
  const bool is_badly_pinned =
      placement.pin > Pin::kGlobal || (placement.grain == Grain::kLine && placement.pin != Pin::kNone);
  if (!known || message.header.small >= geometry.nodes || !is_block_size(placement, geometry.page_size) ||
      moves_from_lines || is_badly_pinned)
    panic("heap message with a bad placement: policy, node, from node", message.header.flags, message.header.small,
          message.from.value);
  return placement;
}

}  // namespace

SharedHeap::SharedHeap(Fabric& fabric, const WaitPolicy& policy, std::byte* base, uint64_t region_size,
                       size_t page_size, const Region* frames, const HomeClaims::TableLocation& claims)
    : fabric_(fabric),
      policy_(policy),
      base_(base),
      frames_(frames),
      geometry_{reinterpret_cast<uint64_t>(base), region_size, page_size, fabric.nodes()},
      small_(geometry_),
      claims_(fabric, claims),
      first_touch_(make_table<std::atomic<Home>, Homes>(geometry_.pages(), "homes of first-touch pages")),
      calls_(make_table<Call>(kCalls, "calls of the shared heap")),
      unanswered_(make_table<Unanswered>(uint64_t{kCalls} * fabric.nodes(), "unanswered calls of the shared heap")) {
  MG_CHECK(std::has_single_bit(page_size) && region_size % page_size == 0 && geometry_.base % page_size == 0);
  if (self() == kManager) space_.emplace(geometry_, extents_);
  for (MessageType type = heap_message::kAllocate; type < heap_message::kEnd; ++type)
    fabric.set_handler(type, &SharedHeap::on_message, this);
}

bool SharedHeap::contains(const void* address) const {
  return reinterpret_cast<uint64_t>(address) - geometry_.base < geometry_.size;
}

HeapError SharedHeap::not_a_block(const void* block) {
  HeapError error;
  error.message = fmt::format("{} is not the start of a block of shared memory in use; was it freed before?", block);
  error.code = EINVAL;
  return error;
}

// --- Allocation

tl::expected<Allocation, HeapError> SharedHeap::allocate(size_t size, size_t alignment, const Placement& placement) {
  if (alignment == 0) alignment = size >= geometry_.page_size ? geometry_.page_size : 16;
  if (!std::has_single_bit(alignment) || alignment > geometry_.size)
    return heap_error(EINVAL, "an alignment of {} bytes was asked for; it must be a power of two up to {}", alignment,
                      std::bit_floor(geometry_.size));
  if (placement.policy == HomePolicy::kNode && placement.node.value >= geometry_.nodes)
    return heap_error(EINVAL, "memory on node {} was asked for; the machine has nodes 0 to {}", placement.node.value,
                      geometry_.nodes - 1);
  if (!is_block_size(placement, geometry_.page_size))
    return heap_error(EINVAL, "blocks of {} bytes were asked for; they must be a number of lines, up to a page of {}",
                      placement.block_size, geometry_.page_size);
  size = std::max<size_t>(size, 1);
  alignment = std::max<size_t>(alignment, 16);
  if (alignment < geometry_.page_size && size < geometry_.page_size) {
    if (const std::optional<unsigned> size_class = class_for(size, alignment))
      return allocate_small(*size_class, size, placement);
  }
  return allocate_pages(size, std::max<uint64_t>(1, alignment / geometry_.page_size), placement);
}

tl::expected<Allocation, HeapError> SharedHeap::allocate_small(unsigned size_class, size_t size,
                                                               const Placement& wanted) {
  Placement placement = wanted;
  if (wanted.policy == HomePolicy::kBlocked) {
    placement.policy = HomePolicy::kInterleaved;
    placement.node = {};
  }
  while (true) {
    SmallHeap::PageRequest pages;
    {
      const LockGuard guard(small_lock_);
      if (const std::optional<SmallBlock> block = small_.allocate(size_class, placement))
        return Allocation{base_ + block->offset, block->needs_clearing, small_.class_size(size_class)};
      pages = small_.next_request(placement);
    }
    MessageHeader request;
    request.word = {pages.pages, pages.minimum, 1};
    const Answer answer = ask_manager(request, placement);
    // A superblock needs fresh address space. When there is none left, pages that were freed can still be used.
    if (!answer.granted) return allocate_pages(size, 1, placement);
    const LockGuard guard(small_lock_);
    small_.add_superblocks(PageId(answer.first), answer.second, placement);
  }
}

tl::expected<Allocation, HeapError> SharedHeap::allocate_pages(size_t size, uint64_t alignment_pages,
                                                               const Placement& placement) {
  if (size <= geometry_.size) {
    MessageHeader request;
    request.word = {(size - 1) / geometry_.page_size + 1, alignment_pages, 0};
    const Answer answer = ask_manager(request, placement);
    if (answer.granted)
      return Allocation{base_ + answer.first * geometry_.page_size, answer.needs_clearing,
                        answer.second * geometry_.page_size};
  }
  return heap_error(ENOMEM,
                    "no room for {} bytes in the shared region of {} bytes; free blocks, or make the region larger "
                    "(--region-size or MULTIGRAIN_REGION_SIZE)",
                    size, geometry_.size);
}

SharedHeap::Answer SharedHeap::ask_manager(MessageHeader request, const Placement& placement) {
  request.type = heap_message::kAllocate;
  request.flags = flags_of(placement);
  request.word[2] |= in_third_word(placement);
  request.small = placement.policy == HomePolicy::kNode ? placement.node.value : uint16_t{0};
  if (self() != kManager) {
    const Answer answer = call(kManager, request);
    const uint64_t least = without_block_size(request.word[2]) != 0 ? request.word[1] : request.word[0];
    if (answer.granted && (answer.second < least || answer.second > geometry_.pages() ||
                           answer.first > geometry_.pages() - answer.second))
      panic("heap message grants pages that cannot be: page, pages", answer.first, answer.second);
    return answer;
  }
  // The manager's own callers wait for acknowledgements like those of any other node.
  request.extra = begin_call(kManager);
  PollingScope polling(fabric_);
  serve_allocate(kManager, request);
  return end_call(polling, request.extra);
}

void SharedHeap::serve_allocate(NodeId from, const MessageHeader& request) {
  const Placement placement = placement_in(request);
  const auto [pages, second, third] = request.word;
  const bool for_owner = without_block_size(third) != 0;
  const LockGuard guard(manager_lock_);
  const std::optional<PageRun> run = for_owner ? space_->allocate_for_owner(pages, second, placement, from)
                                               : space_->allocate(pages, second, placement);
  announce_new_extents();
  Answer answer;
  if (run) answer = {true, run->needs_clearing, run->first.value, run->pages};
  // A node has at most kCalls calls out. So requests for which there is no room were never made.
  if (end_unanswered_ - first_unanswered_ == unanswered_.count())
    panic("heap message with one request too many: call, from node", request.extra, from.value);
  unanswered_[end_unanswered_++ % unanswered_.count()] = {from, request.extra, answer, announced_};
  answer_waiting();
}

// Messages to one node arrive in the order in which they were sent, so sending under the lock keeps replicas in order.
void SharedHeap::announce_new_extents() {
  for (; announced_ < extents_.count(); ++announced_) {
    const Extent& extent = extents_.at(announced_);
    MessageHeader header;
    header.type = heap_message::kExtent;
    header.flags = flags_of(extent.placement);
    header.small = extent.placement.node.value;
    header.extra = extent.owner;
    header.word = {extent.first.value, extent.pages, announced_ | in_third_word(extent.placement)};
    for (uint16_t node = 1; node < geometry_.nodes; ++node) fabric_.send(NodeId(node), header, SendContext::kHandler);
  }
}

void SharedHeap::answer_waiting() {
  uint64_t known_by_all = announced_;
  for (uint16_t node = 1; node < geometry_.nodes; ++node) known_by_all = std::min(known_by_all, known_by_[node]);
  while (first_unanswered_ != end_unanswered_) {
    const Unanswered& next = unanswered_[first_unanswered_ % unanswered_.count()];
    if (next.extents > known_by_all) return;
    reply(next.to, next.call, next.answer);
    ++first_unanswered_;
  }
}

void SharedHeap::serve_extent(const Message& message) {
  const auto [first, pages, third] = message.header.word;
  const uint64_t index = without_block_size(third);
  const Placement placement = placement_from(message, geometry_);
  const bool fits = pages > 0 && first < geometry_.pages() && pages <= geometry_.pages() - first;
  const bool owner_exists = message.header.extra < geometry_.nodes || message.header.extra == Extent::kNoOwner;
  if (message.from != kManager || self() == kManager || !fits || !owner_exists || index != extents_.count())
    panic("heap message with a bad extent: first page, pages, index", first, pages, index);
  extents_.append(Extent{PageId(first), pages, placement, static_cast<uint16_t>(message.header.extra)});
  MessageHeader known;
  known.type = heap_message::kExtentKnown;
  known.word[0] = index + 1;
  fabric_.send(kManager, known, SendContext::kHandler);
}

void SharedHeap::serve_extent_known(const Message& message) {
  const uint64_t count = message.header.word[0];
  const LockGuard guard(manager_lock_);
  if (!space_ || count > announced_ || count <= known_by_[message.from.value])
    panic("heap message that acknowledges extents wrongly: count, from node", count, message.from.value);
  known_by_[message.from.value] = count;
  answer_waiting();
}

// --- Checkpoints

SpaceImage SharedHeap::space_image() {
  const LockGuard guard(manager_lock_);
  MG_CHECK(space_.has_value());
  return space_->image();
}

SmallImage SharedHeap::small_image() {
  const LockGuard guard(small_lock_);
  return small_.image();
}

// The call ends like one that allocates: when all nodes have acknowledged the extents.
Status SharedHeap::restore(const SpaceImage& image) {
  const uint32_t number = begin_call(kManager);
  PollingScope polling(fabric_);
  Status restored;
  {
    const LockGuard guard(manager_lock_);
    MG_CHECK(space_.has_value());
    restored = space_->restore(image);
    if (restored) announce_new_extents();
    unanswered_[end_unanswered_++ % unanswered_.count()] = {kManager, number, Answer{}, announced_};
    answer_waiting();
  }
  end_call(polling, number);
  return restored;
}

Status SharedHeap::restore(const SmallImage& image) {
  for (const SmallImage::Superblock& one : image.superblocks) {
    const auto extent = extents_.find(PageId(one.offset / geometry_.page_size));
    if (!extent || extent->owner != self().value)
      return fail("the checkpoint's small blocks are not in extents of this node");
  }
  const LockGuard guard(small_lock_);
  return small_.restore(image);
}

// --- Blocks in use

tl::expected<void, HeapError> SharedHeap::free(const void* block) {
  if (!find_block(block, heap_message::kFree)) return tl::unexpected<HeapError>(not_a_block(block));
  return {};
}

bool SharedHeap::reuses(const void* block) const {
  if (!contains(block)) return false;
  const std::optional<Extent> extent =
      extents_.find(PageId((reinterpret_cast<uint64_t>(block) - geometry_.base) / geometry_.page_size));
  return extent && extent->has_owner() && extent->owner == self().value;
}

tl::expected<size_t, HeapError> SharedHeap::usable_size(const void* block) {
  const std::optional<uint64_t> size = find_block(block, heap_message::kSizeOf);
  if (!size) return tl::unexpected<HeapError>(not_a_block(block));
  return *size;
}

// Lets the node that knows the block free or measure it. Returns its size, or nullopt if there is no such block.
std::optional<uint64_t> SharedHeap::find_block(const void* block, MessageType what) {
  if (!contains(block)) return std::nullopt;
  const uint64_t offset = reinterpret_cast<uint64_t>(block) - geometry_.base;
  const std::optional<Extent> extent = extents_.find(PageId(offset / geometry_.page_size));
  if (!extent) return std::nullopt;
  const NodeId at = extent->has_owner() ? NodeId(extent->owner) : kManager;
  if (at == self()) return serve_block(*extent, offset, what);
  MessageHeader request;
  request.type = what;
  request.word[0] = offset;
  const Answer answer = call(at, request);
  if (!answer.granted) return std::nullopt;
  return answer.second;
}

std::optional<uint64_t> SharedHeap::serve_block(const Extent& extent, uint64_t offset, MessageType what) {
  if (extent.has_owner()) {
    const LockGuard guard(small_lock_);
    const std::optional<uint32_t> size = small_.size_of(offset);
    if (size && what == heap_message::kFree) small_.free(offset);
    return size;
  }
  if (offset % geometry_.page_size != 0) return std::nullopt;
  const PageId page(offset / geometry_.page_size);
  const LockGuard guard(manager_lock_);
  const std::optional<uint64_t> pages = space_->pages_of(page);
  if (!pages) return std::nullopt;
  if (what == heap_message::kFree) space_->free(page);
  return *pages * geometry_.page_size;
}

// --- Homes

std::optional<NodeId> SharedHeap::home_of(PageId page) const {
  const std::optional<Extent> extent = extents_.find(page);
  if (!extent) return std::nullopt;
  if (const std::optional<NodeId> home = home_in(*extent, page, geometry_.nodes)) return home;
  const std::atomic<Home>* const entry = first_touch_.find(page.value);
  const Home known = entry == nullptr ? 0 : entry->load(std::memory_order_acquire);
  if (known == 0) return std::nullopt;
  return NodeId(static_cast<uint16_t>(known - 1));
}

std::optional<NodeId> SharedHeap::claim_home(PageId page) {
  return learn_home(page, true);
}

std::optional<NodeId> SharedHeap::ask_home(PageId page) {
  return learn_home(page, false);
}

std::optional<Region::Run> SharedHeap::resident_here(PageId first, uint64_t count) const {
  if (count == 0) return std::nullopt;
  if (frames_ == nullptr) return Region::Run{first, count};
  return frames_->next_resident(first, count);
}

std::optional<Region::Run> SharedHeap::next_touched(NodeId node, PageId first, uint64_t count) {
  if (node == self()) return resident_here(first, count);
  MessageHeader request;
  request.type = heap_message::kTouched;
  request.word = {first.value, count, 0};
  const Answer answer = call(node, request);
  if (!answer.granted) return std::nullopt;
  if (answer.first < first.value || answer.second == 0 || answer.first + answer.second > first.value + count)
    panic("heap message with pages that were not asked for: page, pages, from node", answer.first, answer.second,
          node.value);
  return Region::Run{PageId(answer.first), answer.second};
}

std::optional<NodeId> SharedHeap::learn_home(PageId page, bool claim) {
  if (const std::optional<NodeId> home = home_of(page)) return home;
  if (!extents_.find(page)) return std::nullopt;
  if (const HomeClaims::Answer known = claim ? claims_.claim(page) : claims_.look_up(page); known.has_room) {
    if (known.home) first_touch_[page].store(static_cast<Home>(known.home->value + 1), std::memory_order_release);
    return known.home;
  }
  const NodeId arbiter(static_cast<uint16_t>(page.value % geometry_.nodes));
  if (arbiter == self()) return serve_home(page, self(), claim);
  MessageHeader request;
  request.type = heap_message::kHome;
  request.flags = claim ? 1 : 0;
  request.word[0] = page.value;
  const Answer answer = call(arbiter, request);
  if (!answer.granted) return std::nullopt;
  if (answer.first >= geometry_.nodes)
    panic("heap message with a home that does not exist: home, from node", answer.first, arbiter.value);
  first_touch_[page].store(static_cast<Home>(answer.first + 1), std::memory_order_release);
  return NodeId(static_cast<uint16_t>(answer.first));
}

std::optional<NodeId> SharedHeap::serve_home(PageId page, NodeId asker, bool claim) {
  std::atomic<Home>& entry = first_touch_[page];
  Home home = entry.load(std::memory_order_acquire);
  if (home == 0) {
    if (!claim) return std::nullopt;
    const auto wanted = static_cast<Home>(asker.value + 1);
    if (entry.compare_exchange_strong(home, wanted, std::memory_order_acq_rel)) home = wanted;
  }
  return NodeId(static_cast<uint16_t>(home - 1));
}

// --- Calls

void SharedHeap::on_message(void* context, const Message& message) {
  SharedHeap& heap = *static_cast<SharedHeap*>(context);
  const MessageHeader& header = message.header;
  const uint64_t pages = heap.geometry_.pages();
  switch (header.type) {
    case heap_message::kAllocate: {
      placement_from(message, heap.geometry_);
      const auto [wanted, second, third] = header.word;
      const uint64_t for_owner = without_block_size(third);
      const bool sizes_make_sense = wanted > 0 && (for_owner == 1   ? second > 0 && second <= wanted
                                                   : for_owner == 0 ? std::has_single_bit(second)
                                                                    : false);
      if (heap.self() != kManager || !sizes_make_sense || header.extra >= kCalls)
        panic("heap message with a bad request: pages, alignment, from node", wanted, second, message.from.value);
      return heap.serve_allocate(message.from, header);
    }
    case heap_message::kExtent:
      return heap.serve_extent(message);
    case heap_message::kExtentKnown:
      return heap.serve_extent_known(message);
    case heap_message::kFree:
    case heap_message::kSizeOf: {
      const uint64_t offset = header.word[0];
      const PageId page(offset / heap.geometry_.page_size);
      const std::optional<Extent> extent = heap.extents_.find(page);
      const bool mine = extent && (extent->has_owner() ? extent->owner == heap.self().value : heap.self() == kManager);
      if (!mine) panic("heap message about a block of another node: offset, from node", offset, message.from.value);
      const std::optional<uint64_t> size = heap.serve_block(*extent, offset, header.type);
      return heap.reply(message.from, header.extra, Answer{size.has_value(), false, 0, size.value_or(0)});
    }
    case heap_message::kTouched: {
      const auto [first, count, unused] = header.word;
      if (first > pages || count > pages - first)
        panic("heap message about pages outside the region: page, pages, from node", first, count, message.from.value);
      const auto run = heap.resident_here(PageId(first), count);
      return heap.reply(message.from, header.extra,
                        Answer{run.has_value(), false, run ? run->first.value : 0, run ? run->count : 0});
    }
    case heap_message::kHome: {
      const PageId page(header.word[0]);
      const std::optional<Extent> extent = heap.extents_.find(page);
      if (page.value >= pages || page.value % heap.geometry_.nodes != heap.self().value || !extent ||
          extent->placement.policy != HomePolicy::kFirstTouch)
        panic("heap message asks the wrong node for a home: page, from node", page.value, message.from.value);
      const std::optional<NodeId> home = heap.serve_home(page, message.from, header.flags == 1);
      return heap.reply(message.from, header.extra, Answer{home.has_value(), false, home.value_or(NodeId(0)).value, 0});
    }
    case heap_message::kReply:
      return heap.finish(header.extra, message.from,
                         Answer{header.flags == 1, header.small == 1, header.word[0], header.word[1]});
    default:
      panic("heap message of an unknown type:", header.type);
  }
}

void SharedHeap::reply(NodeId to, uint32_t call, const Answer& answer) {
  if (to == self()) return finish(call, self(), answer);
  MessageHeader header;
  header.type = heap_message::kReply;
  header.flags = answer.granted ? 1 : 0;
  header.small = answer.needs_clearing ? 1 : 0;
  header.extra = call;
  header.word = {answer.first, answer.second, 0};
  fabric_.send(to, header, SendContext::kHandler);
}

void SharedHeap::finish(uint32_t number, NodeId from, const Answer& answer) {
  if (number >= kCalls || calls_[number].state.load(std::memory_order_acquire) != kWaiting || calls_[number].to != from)
    panic("heap message answers a call that was not made: call, from node", number, from.value);
  Call& call = calls_[number];
  call.answer = answer;
  call.event.mark();
  call.state.store(kAnswered, std::memory_order_release);
  // The caller may be gone, and another thread may use the call already. Then that thread looks once more than
  // necessary.
  call.event.notify();
}

uint32_t SharedHeap::begin_call(NodeId to) {
  uint32_t taken = kCalls;
  const auto take = [&] {
    for (taken = 0; taken < kCalls; ++taken) {
      uint32_t idle = kIdle;
      if (calls_[taken].state.load(std::memory_order_seq_cst) == kIdle &&
          calls_[taken].state.compare_exchange_strong(idle, kWaiting, std::memory_order_seq_cst))
        return true;
    }
    return false;
  };
  if (!take()) {
    // The count is raised before this thread looks again. So a thread that ends a call sees the count, or this thread
    // sees the end of that call.
    without_call_.fetch_add(1, std::memory_order_seq_cst);
    wait_until(fabric_, policy_, call_ended_, take);
    without_call_.fetch_sub(1, std::memory_order_seq_cst);
  }
  calls_[taken].to = to;
  return taken;
}

SharedHeap::Answer SharedHeap::end_call(PollingScope& polling, uint32_t number) {
  Call& call = calls_[number];
  wait_until(polling, policy_, call.event, [&] { return call.state.load(std::memory_order_acquire) == kAnswered; });
  const Answer answer = call.answer;
  call.state.store(kIdle, std::memory_order_seq_cst);
  if (without_call_.load(std::memory_order_seq_cst) != 0) call_ended_.notify();
  return answer;
}

SharedHeap::Answer SharedHeap::call(NodeId to, MessageHeader request) {
  request.extra = begin_call(to);
  PollingScope polling(fabric_);
  fabric_.send(to, request, SendContext::kOrdinary);
  return end_call(polling, request.extra);
}

}  // namespace multigrain
