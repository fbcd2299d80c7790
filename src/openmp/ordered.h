// Loops with an ordered clause, and ordered(n).
//
// The chunks of an ordered loop are given out every so many one (Way::kCyclic), and numbered through all ordered loops of
// the program. A flag has the number of the chunk whose turn it is. A thread that comes to an ordered construct waits for
// its chunk's number; when its chunk is over it waits for that, too, if it has not, and sets the flag to the next. So the
// ordered constructs of all iterations follow each other, over all nodes, and each sees what those before it wrote: to set
// the flag is a release, to wait for it an acquire.
#pragma once

#include "openmp/team.h"

namespace multigrain::openmp {

// The thread's chunk is over, if it is in one.
void end_ordered_chunk(Frame& frame);

}  // namespace multigrain::openmp
