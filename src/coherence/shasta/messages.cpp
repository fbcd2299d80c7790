// This part of the driver sends and receives messages. In a header word[0] is the first line of the block, word[1] how many
// blocks behind that one the message is about as well, `small` the requester, and `extra` the number of acknowledgements of each
// block. The payload is the blocks' data, one after the other.
#include <algorithm>

#include "coherence/shasta/coalescing_scope.h"
#include "coherence/shasta/driver.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {

const char* message_name(MessageType type) {
  if (type < message_range::kShasta || type >= type_of(MessageKind::kKindCount)) return nullptr;
  return name(static_cast<MessageKind>(type - message_range::kShasta));
}

void Driver::send(const BlockAt& at, const Action& action) {
  MessageHeader header;
  header.type = type_of(action.message.kind);
  header.small = action.message.requester.value;
  header.extra = action.message.acks;
  header.word[0] = at.first;
  const bool has_data = action.verb == Verb::kSendCopy;
  const std::span<const std::byte> data(&copy_[0], has_data ? bytes_of(at) : 0);
  if (action.message.kind == MessageKind::kInvalidate && action.message.requester == self_)
    count(Counter::kLinesInvalidated, at.lines);
  // The messages to one node go out in the order in which the transitions send them; those to different nodes need not.
  Coalesced& together = coalesced_[action.node.value];
  const auto joins = [&] {
    return together.next_line == at.first && page_of(together.header.word[0]) == page_of(at.first) &&
           together.header.type == header.type && together.header.small == header.small &&
           together.header.extra == header.extra && together.header.word[1] + 1 < Coalesced::kMost &&
           together.bytes + data.size() <= together.data.size();
  };
  if (coalesced_for_.contains(action.node) && !joins()) dispatch_coalesced(action.node);
  if (!coalesces_ || data.size() > together.data.size()) return dispatch(action.node, header, data);
  if (!coalesced_for_.contains(action.node)) {
    coalesced_for_.insert(action.node);
    together.header = header;
    together.bytes = 0;
  } else {
    ++together.header.word[1];
  }
  std::copy(data.begin(), data.end(), together.data.begin() + together.bytes);
  together.bytes += static_cast<uint32_t>(data.size());
  together.next_line = at.first + at.lines;
}

void Driver::dispatch(NodeId to, const MessageHeader& header, std::span<const std::byte> data) {
  services_.fabric.send(to, header, data, {}, SendContext::kHandler);
  this_profile().count_message(header.type, sizeof header + data.size());
}

void Driver::dispatch_coalesced(NodeId to) {
  coalesced_for_.erase(to);
  const Coalesced& together = coalesced_[to.value];
  dispatch(to, together.header, {together.data.data(), together.bytes});
}

Driver::CoalescingScope::CoalescingScope(Driver& driver) : driver_(driver), batch_(driver.services_.fabric) {
  // In virtual time each message takes the time that it takes alone.
  driver_.lock_.assume_held();
  driver_.coalesces_ = !virtual_time::on();
}

Driver::CoalescingScope::~CoalescingScope() {
  driver_.lock_.assume_held();
  driver_.coalesces_ = false;
  while (!driver_.coalesced_for_.empty()) driver_.dispatch_coalesced(driver_.coalesced_for_.first());
}

void Driver::handle_message(const multigrain::Message& message) {
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const MessageHeader& header = message.header;
  const auto kind = static_cast<MessageKind>(header.type - message_range::kShasta);
  if (header.small >= services_.fabric.nodes() || header.extra > services_.fabric.nodes())
    panic("a Shasta message with an impossible requester or number, from node", message.from.value, header.small,
          header.extra);
  BlockAt at = locate_block_for_message(header.word[0], message.from, kind);
  const PageId page = page_of(at.first);
  Arrival arrival{
      .from = message.from,
      .message = {.kind = kind, .requester = NodeId(header.small), .acks = static_cast<uint16_t>(header.extra)},
      .payload = {}};
  const bool has_data = kind == MessageKind::kData || kind == MessageKind::kDataExclusive;
  std::span<const std::byte> rest = message.payload;
  bool wakes = false;
  {
    const Hold hold_blocks(lock_);
    const CoalescingScope together(*this);
    for (uint64_t behind = header.word[1];; --behind) {
      const size_t bytes = has_data ? bytes_of(at) : 0;
      if (rest.size() < bytes || (behind == 0 && rest.size() != bytes))
        panic("a block of the wrong size, from node / line / bytes", message.from.value, at.first, rest.size());
      arrival.payload = rest.first(bytes);
      rest = rest.subspan(bytes);
      count_arrival(at, arrival);
      if (deferred_count_.load(std::memory_order_relaxed) != 0) retry_deferred();
      if (deferred_count_.load(std::memory_order_relaxed) != 0 || !carry_out(at, &arrival))
        wakes = defer(at, &arrival) || wakes;
      if (behind == 0) break;
      const uint64_t next = at.first + at.lines;
      if (page_of(next) != page)
        panic("a message about blocks of two pages, from node / line", message.from.value, header.word[0]);
      at = block_at(page, pages_[page], next);
    }
  }
  if (wakes) services_.fabric.wake_service();
}

void Driver::count_arrival(const BlockAt& at, const Arrival& arrival) {
  const MessageKind kind = arrival.message.kind;
  if (kind == MessageKind::kData || kind == MessageKind::kDataExclusive) {
    const bool two_hops = arrival.from == at.home || at.home == self_;
    count(two_hops ? Counter::kTwoHopMisses : Counter::kThreeHopMisses);
    if (kind == MessageKind::kDataExclusive) count(Counter::kStoreMisses);
    count(Counter::kLinesMoved, at.lines);
  } else if (kind == MessageKind::kUpgraded) {
    count(Counter::kLineUpgrades);
  }
  if (at.home != self_ && arrival.message.acks != 0)
    count(Counter::kLinesInvalidated, uint64_t{arrival.message.acks} * at.lines);
}

}  // namespace multigrain::shasta
