// These are the events of placed pages: what a fault, a message, a decision of the policy or the end of a hold does to a page.
// The table is at the head of transitions.cpp, the types are in states.h.
//
// Nodes' memories are caches of global memory ([Bolosky], section 3.1): a page is read-only in any number of them,
// local-writable in one, or global-writable, in global memory alone, which all nodes then use directly. Global memory is the
// frame of the page's home. At every fault for which a node has to ask the home, the policy says LOCAL or GLOBAL; Figure 3.3
// says what follows. Memory is sequentially consistent, since a page that may be written is in one memory.
//
// There is no clock, no I/O, no lock, no thread and no policy here: the driver feeds it events and carries out the actions that it
// returns, in order. docs/internals/placement.md explains the protocol, and says what is explored.
//
// These invariants hold in every state (explored in tests/coherence/placement_machine.cpp):
//  (P1) If threads of a node may write the node's own copy, no other node's threads may use the page. If threads of any node may
//       use global memory, no node's threads may use a copy of their own.
//  (P2) While the entry says read-only, every readable copy is equal to global memory. What it says in `holders` are exactly the
//       nodes whose threads may use the page, or to which a grant is on its way.
//  (P3) The home does one work at a time, and grants a page only when every node that has to give it up has answered. What it
//       sends to a node arrives in the order in which it was sent, so a grant never meets an order that waits.
//  (P4) The page's bytes leave a node, and an order is answered, only when the node's threads have lost the right.
//       Bytes that are on their way lie in a frame that is not written before they have been fetched.
//  (P5) A page that threads have been granted, or to which they refer from afar, is not taken before each of them has called
//       on_returned(), and then not before on_hold_over().
//  (P6) Threads wait for a page if and only if a request of their node is out. Every request is answered.
//  (P7) A page that is pinned to global memory is in no node's own memory once what was under way is completed.
//  (P8) A page is new again when it has been discarded: no node has it, and the next to use it finds zeros.
//
// No function is thread-safe: the driver holds the page's lock while a transition runs. No function allocates or blocks, so all
// may run in a signal handler.
#pragma once

#include "coherence/context.h"
#include "coherence/placement/states.h"

namespace multigrain::placement {

// A thread of this node made an access that its rights do not allow.
FaultOutcome on_fault(Page& page, const Context& context, Access access, Actions& actions);

// A thread of this node is going to make an access itself, by operations on the memory where the page is: this node's frame, or
// global memory if the state is kGlobal. After kResolved, or when it has been woken, it does so, and then calls on_returned(). It
// waits behind an order that is here already, so that references do not keep the page for ever.
FaultOutcome on_reference(Page& page, const Context& context, Access access, Actions& actions);

// A thread that was granted the page runs, and is about to make its access: the hold begins now. Or a reference is over.
void on_returned(Page& page);

// The hold is over. Pre: page.held, and no thread is returning.
void on_hold_over(Page& page, const Context& context, Actions& actions);

// Handles a message from another node. Returns false if that node cannot have sent it now: the run must end.
[[nodiscard]] bool on_message(Page& page, const Context& context, NodeId from, const PageMessage& message,
                              Actions& actions);

// --- Called at the home

// The policy has answered kAskPolicy.
void on_decision(Page& page, const Context& context, Location location, Actions& actions);

// From now on the page is where `pin` says, or where the policy says (kNone). A page pinned to global memory goes there at
// once; one pinned to local memory leaves global memory at once, and goes to whoever uses it next.
void on_pin(Page& page, const Context& context, Pin pin, Actions& actions);

// The policy may decide otherwise by now about a page in global memory: the nodes that use it there fault again.
void on_thaw(Page& page, const Context& context, Actions& actions);

// Gives up the contents of the page for node `requester`, as if zeros were written all over it. The requester is told when it is
// done (kDiscarded). Returns true, and tells nobody, if the page was new.
[[nodiscard]] bool on_discard(Page& page, const Context& context, NodeId requester, Actions& actions);

}  // namespace multigrain::placement
