// What the nodes' tables of origins (status/node_status.h) say about an address of shared memory, or about a handle.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "status/node_status.h"

namespace multigrain {

// A block, or an object of synchronisation, of which something is known.
struct KnownOrigin {
  uint64_t key = 0;
  uint64_t size = 0;  // 0: not known, or no block
  uint64_t made = 0;  // where; 0: not known
  unsigned made_by = 0;
  uint64_t freed = 0;  // where; 0: it was not, as far as is known
  unsigned freed_by = 0;
  uint64_t made_when = 0;  // ticks
};

// The entry with that key.
std::optional<KnownOrigin> find_origin(std::span<const NodeStatus* const> nodes, uint64_t key);
// The block that contains the address, or else the nearest that ends before it.
std::optional<KnownOrigin> find_block(std::span<const NodeStatus* const> nodes, uint64_t address);

// "a block of 4096 bytes (allocated by node 1 at a.c:7, freed by node 0 at b.c:9)"
std::string describe_block(const KnownOrigin& block, const std::function<std::string(uint64_t)>& line);

}  // namespace multigrain
