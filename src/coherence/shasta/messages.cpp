// This part of the driver sends and receives messages. In a header word[0] is the block's first line, `small` the
// requester, and `extra` the number of acknowledgements.
#include "coherence/shasta/driver.h"

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
  services_.fabric.send(action.node, header, data, {}, SendContext::kHandler);
  this_profile().count_message(header.type, sizeof header + data.size());
  if (action.message.kind == MessageKind::kInvalidate && action.message.requester == self_)
    count(Counter::kLinesInvalidated, at.lines);
}

void Driver::handle_message(const multigrain::Message& message) {
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const MessageHeader& header = message.header;
  const auto kind = static_cast<MessageKind>(header.type - message_range::kShasta);
  if (header.small >= services_.fabric.nodes() || header.extra > services_.fabric.nodes())
    panic("a Shasta message with an impossible requester or number, from node", message.from.value, header.small,
          header.extra);
  const BlockAt at = locate_block_for_message(header.word[0], message.from, kind);
  const bool has_data = kind == MessageKind::kData || kind == MessageKind::kDataExclusive;
  if (message.payload.size() != (has_data ? bytes_of(at) : 0))
    panic("a block of the wrong size, from node / line / bytes", message.from.value, at.first, message.payload.size());
  const Arrival arrival{
      .from = message.from,
      .message = {.kind = kind, .requester = NodeId(header.small), .acks = static_cast<uint16_t>(header.extra)},
      .payload = message.payload};
  if (has_data) {
    const bool two_hops = message.from == at.home || at.home == self_;
    count(two_hops ? Counter::kTwoHopMisses : Counter::kThreeHopMisses);
    if (kind == MessageKind::kDataExclusive) count(Counter::kStoreMisses);
    count(Counter::kLinesMoved, at.lines);
  } else if (kind == MessageKind::kUpgraded) {
    count(Counter::kLineUpgrades);
  }
  if (at.home != self_ && header.extra != 0) count(Counter::kLinesInvalidated, uint64_t{header.extra} * at.lines);

  bool wakes = false;
  {
    const Hold hold_blocks(lock_);
    if (deferred_count_.load(std::memory_order_relaxed) != 0) retry_deferred();
    if (deferred_count_.load(std::memory_order_relaxed) != 0 || !carry_out(at, &arrival)) wakes = defer(at, &arrival);
  }
  if (wakes) services_.fabric.wake_service();
}

}  // namespace multigrain::shasta
