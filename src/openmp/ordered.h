// Loops with an ordered clause, and ordered(n).
//
// The chunks of an ordered loop are given out every so many one (Way::kCyclic), and numbered through all ordered loops of
// the program. A flag has the number of the chunk whose turn it is. A thread that comes to an ordered construct waits for
// its chunk's number; when its chunk is over it waits for that, too, if it has not, and sets the flag to the next. So the
// ordered constructs of all iterations follow each other, over all nodes, and each sees what those before it wrote: to set
// the flag is a release, to wait for it an acquire.
//
// ordered(n): which iterations are done, all nodes have in bits, under a lock. A thread makes known what it has done when
// it waits, when it leaves the loop, when it takes a lock of the program, and otherwise no more often than every
// kPublishEveryNs: so many short iterations share one lock of all nodes, and a long one is known at once.
#pragma once

#include "openmp/team.h"

namespace multigrain::openmp {

inline constexpr uint64_t kPublishEveryNs = 50'000;

// The thread's chunk is over, if it is in one.
void end_ordered_chunk(Frame& frame);

// The thread is about to wait for a lock of the program.
void publish_iterations();

}  // namespace multigrain::openmp
