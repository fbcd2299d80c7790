// This names the nodes of a page's transitions: the node at which they take place, and the page's home. The transitions
// of the page protocols take it as a parameter, so that they are functions of values.
#pragma once

#include "base/ids.h"

namespace multigrain {

struct Context {
  NodeId self;
  NodeId home;
  [[nodiscard]] bool is_home() const { return self == home; }
};

}  // namespace multigrain
