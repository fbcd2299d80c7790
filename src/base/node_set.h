// A set of nodes, as directories hold it (read_dir, write_dir, ...), is one machine word, so that a protocol's state is
// a plain value and set operations cost an instruction. No larger machine can be described; start-up refuses more nodes
// with a clear error.
#pragma once

#include "base/bit_set.h"
#include "base/ids.h"

namespace multigrain {

using NodeSet = BitSet<NodeId>;

}  // namespace multigrain
