// Which node a page's transition takes place at: constant for a page at a node.
#pragma once

#include "base/ids.h"

namespace multigrain {

struct Context {
  NodeId self;
  NodeId home;
  [[nodiscard]] bool is_home() const { return self == home; }
};

}  // namespace multigrain
