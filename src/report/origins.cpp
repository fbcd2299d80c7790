#include "report/origins.h"

#include <fmt/format.h>

#include <algorithm>

namespace multigrain {
namespace {

// Adds the facts of one node's entry.
void add(KnownOrigin& known, const Origin& origin, unsigned node) {
  const uint64_t made = origin.made.load(std::memory_order_relaxed);
  const uint64_t freed = origin.freed.load(std::memory_order_relaxed);
  const uint64_t when = origin.when.load(std::memory_order_relaxed);
  // The address of a freed block may be used again, so the latest allocation counts, and frees after it.
  if (made != 0 && (known.made == 0 || when >= known.made_when)) {
    known.made = made;
    known.made_by = node;
    known.made_when = when;
    known.size = origin.size.load(std::memory_order_relaxed);
  }
  if (freed != 0) {
    known.freed = freed;
    known.freed_by = node;
  }
}

// Merges the entries of several nodes with the same key. If one node allocated the block after another had freed it,
// the free no longer counts.
std::optional<KnownOrigin> merge(std::span<const NodeStatus* const> nodes, uint64_t key) {
  KnownOrigin known;
  known.key = key;
  uint64_t freed_when = 0;
  bool any = false;
  for (const NodeStatus* const node : nodes) {
    for (const Origin& origin : node->origin) {
      if (origin.key.load(std::memory_order_acquire) != key) continue;
      any = true;
      const uint64_t freed_before = known.freed;
      add(known, origin, node->node);
      if (known.freed != freed_before) freed_when = origin.when.load(std::memory_order_relaxed);
      break;
    }
  }
  if (!any) return std::nullopt;
  if (known.freed != 0 && freed_when < known.made_when) known.freed = 0;
  return known;
}

}  // namespace

std::optional<KnownOrigin> find_origin(std::span<const NodeStatus* const> nodes, uint64_t key) {
  return merge(nodes, key);
}

std::optional<KnownOrigin> find_block(std::span<const NodeStatus* const> nodes, uint64_t address) {
  // An address may lie in several: blocks that were freed, and the one that has their memory now.
  std::optional<KnownOrigin> in_use, freed;
  uint64_t nearest = 0;
  const auto is_later = [](const KnownOrigin& one, const std::optional<KnownOrigin>& other) {
    return !other || one.made_when > other->made_when;
  };
  for (const NodeStatus* const node : nodes)
    for (const Origin& origin : node->origin) {
      const uint64_t key = origin.key.load(std::memory_order_acquire);
      // Handles are far above all addresses.
      if (key == 0 || key > address || key == Origin::kBusy) continue;
      nearest = std::max(nearest, key);
      if (address - key >= origin.size.load(std::memory_order_relaxed)) continue;
      const std::optional<KnownOrigin> block = merge(nodes, key);
      if (!block || address - key >= block->size) continue;
      std::optional<KnownOrigin>& latest = block->freed == 0 ? in_use : freed;
      if (is_later(*block, latest)) latest = block;
    }
  if (in_use) return in_use;
  if (freed) return freed;
  if (nearest == 0) return std::nullopt;
  return merge(nodes, nearest);
}

std::string describe_block(const KnownOrigin& block, const std::function<std::string(uint64_t)>& line) {
  std::string text = block.size != 0 ? fmt::format("a block of {} bytes at {:#x}", block.size, block.key)
                                     : fmt::format("a block at {:#x}", block.key);
  if (block.made != 0) text += fmt::format(", allocated by node {} at {}", block.made_by, line(block.made));
  if (block.freed != 0)
    text += fmt::format("{} freed by node {} at {}", block.made != 0 ? " and" : ",", block.freed_by, line(block.freed));
  return text;
}

}  // namespace multigrain
