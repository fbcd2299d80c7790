// A process that forks the nodes of a run, so that they agree on addresses although these are randomised. The protocol is
// in base/fork_server.h; mgrun's side is launch/fork_server.h.
//
// The program becomes this server while its libraries are loaded: before the constructors of this library that keep
// anything, and before the program's own. What libraries have done by then, the nodes have in common.
//
//   parent        A node must be a child of mgrun, which waits for it. The server ends when all nodes are forked, and mgrun is
//                 their next ancestor that adopts processes (PR_SET_CHILD_SUBREAPER). A node waits for that, and asks only then
//                 to be killed when its parent ends, or the server's end would kill it.
//   environment   A node's variables replace the server's in place, on the stack: so the server allocates nothing, and main() and the C
//                 library see the same ones.
//   heap          The server's malloc is that of node 0. A node that is not node 0 turns to the boot heap
//                 (private/private_heap.h).
#pragma once

namespace multigrain {

// If mgrun has started this process as a server, serves: returns in each node, once it is a child of mgrun's, and ends the
// process of the server itself. Otherwise returns at once. The calling thread must be the only one.
void serve_forks();

}  // namespace multigrain
