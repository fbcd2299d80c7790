// Nodes keep tables of origins (status/node_status.h): where in the program blocks of shared memory and
// objects of synchronisation were made and freed. Reports of crashes and of waiting processors look addresses
// and handles up there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "status/node_status.h"

namespace multigrain {

// The known origin of a block or of an object of synchronisation.
struct KnownOrigin {
  uint64_t key = 0;   // the block's address, or the object's handle
  uint64_t size = 0;  // 0: not known, or no block
  uint64_t made = 0;  // the address of the call; 0: not known
  unsigned made_by = 0;
  uint64_t freed = 0;  // the address of the call; 0: no free is known
  unsigned freed_by = 0;
  uint64_t made_when = 0;  // ticks
};

// Finds the entry with that key.
std::optional<KnownOrigin> find_origin(std::span<const NodeStatus* const> nodes, uint64_t key);
// Finds the block that contains the address: of several the latest that is in use, or else the latest that was freed. If none
// does, it finds the nearest block below.
std::optional<KnownOrigin> find_block(std::span<const NodeStatus* const> nodes, uint64_t address);

// Returns, for instance, "a block of 4096 bytes at 0x200000001000, allocated by node 1 at a.c:7 and freed by node 0 at
// b.c:9". `line` turns the address of a call into a source line.
std::string describe_block(const KnownOrigin& block, const std::function<std::string(uint64_t)>& line);

}  // namespace multigrain
