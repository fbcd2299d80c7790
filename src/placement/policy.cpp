#include "placement/policy.h"

#include <bit>

namespace multigrain::placement {

unsigned BlockState::copy_count() const {
  unsigned count = in_global ? 1 : 0;
  for (const uint64_t word : copies) count += static_cast<unsigned>(std::popcount(word));
  return count;
}

Decision Policy::first(BlockState& /*block*/, const Reference& /*reference*/) {
  return Decision::local();
}

}  // namespace multigrain::placement
