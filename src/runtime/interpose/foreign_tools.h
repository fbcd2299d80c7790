// Refuses tools that put themselves between a program and its memory, as the runtime does, and cannot do so beside it.
#pragma once

namespace multigrain {

// Ends the process, with a sentence on node 0, if it runs under such a tool or was built with one. A constructor of the
// library calls this, and so does a function of the library that is called even earlier. Allocates nothing, and calls
// nothing that is interposed.
void refuse_foreign_tools();

}  // namespace multigrain
