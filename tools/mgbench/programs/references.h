// References to pages in global memory, as any compiler makes them, and as mgcc -fmultigrain-references does.
#pragma once

#include <cstddef>

namespace multigrain::bench {

// Each of these returns the time of a reference in nanoseconds, of those to each line of the page once. The first byte of each line is 1;
// if one is not, the result is negative.
struct References {
  double (*read)(volatile char* page, size_t page_size);
  double (*exchange)(volatile char* page, size_t page_size);
};
extern const References kPlainReferences;
// nullptr, if this build has no mgcc.
extern const References kCheckedReferences;

}  // namespace multigrain::bench
