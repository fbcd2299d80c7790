#include "coherence/shasta/states.h"

#include <algorithm>

namespace multigrain::shasta {

const char* name(MessageKind kind) {
  switch (kind) {
    case MessageKind::kRead:
      return "read";
    case MessageKind::kReadExclusive:
      return "read-exclusive";
    case MessageKind::kUpgrade:
      return "upgrade";
    case MessageKind::kForwardRead:
      return "forwarded read";
    case MessageKind::kForwardReadExclusive:
      return "forwarded read-exclusive";
    case MessageKind::kInvalidate:
      return "invalidate";
    case MessageKind::kData:
      return "data";
    case MessageKind::kDataExclusive:
      return "exclusive data";
    case MessageKind::kUpgraded:
      return "upgraded";
    case MessageKind::kInvalidated:
      return "invalidated";
    case MessageKind::kKindCount:
      break;
  }
  return "?";
}

Block initial_block(const Context& context) {
  Block block;
  if (context.is_home()) {
    block.state = State::kExclusive;
    block.owner = context.self;
    block.sharers.insert(context.self);
  }
  return block;
}

bool masks_words(const Node& node, BlockId block) {
  return std::any_of(node.processors.begin(), node.processors.end(),
                     [&](const Processor& p) { return p.queue.masks(block); });
}

bool is_storable(const Block& block, const Context& context) {
  return block.state == State::kExclusive && (context.model == Model::kRc || block.pending == Pending::kNone);
}

Right inline_right(const Block& block, const Context& context, const Node& node) {
  if (!block.is_readable() || masks_words(node, context.block)) return Right::kNone;
  return is_storable(block, context) ? Right::kWrite : Right::kRead;
}

}  // namespace multigrain::shasta
