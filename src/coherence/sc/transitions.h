// These are the events of sequentially consistent pages: what a fault, a message, or the end of a hold does to a page.
// The table of states and events is at the head of transitions.cpp, the types are in states.h.
//
// A page has one writer or any number of readers, machine-wide, at any time: so memory is sequentially consistent, and
// instructions that are atomic on one machine are atomic here. The directory is Shasta's ([Shasta], section 2.1: it
// never waits). The hold is Mirage's Delta: the time for which a node keeps a page that it was granted ([Mirage]).
//
// There is no clock, no I/O, no lock and no thread here. The driver feeds it events and carries out the actions that it
// returns, in order. docs/internals/sc.md explains the protocol, and says what is explored.
//
// These invariants hold in every state (explored in tests/coherence/sc_driver_world.cpp):
//  (C1) At most one node's copy is exclusive. When its request is complete (no acknowledgement missing), no other node
//       has a readable copy, and no data is under way.
//  (C2) A node's threads may write only what is_writable() there, and read only what is_readable().
//  (C3) Data leaves a node only when the node's threads cannot write the page any more. It then holds every write that
//       any node made to the page before, unless an invalidation for the receiver is on its way to it.
//  (C4) The directory never waits. The owner that it names has the page, or the owner's own request for it has been
//       ordered. The owner serves what is forwarded to it in the order of the directory: before its request if it is
//       forwarded before the request's reply, after completion otherwise.
//  (C5) A request that is ordered sends as many invalidations as its reply names. Each is acknowledged to the requester
//       exactly once, after the last thread of the node lost its right.
//  (C6) While no request of this node is out, a page that threads have been granted is not taken before each of them
//       has called on_returned(), and then not before on_hold_over(). While a request of this node is out no page is
//       held; the threads that lose a copy meanwhile are granted the page when the request is complete. A copy that is
//       to go causes no request.
//  (C7) A page is cleared by its home alone, when the home's copy is the only one and is not held, so that no data is
//       under way (C1): a discard is a write. Afterwards the page is as if no node had ever used it.
//
// No function is thread-safe: the driver holds the page's lock while a transition runs. No function allocates or
// blocks, so all may run in a signal handler.
#pragma once

#include "coherence/context.h"
#include "coherence/sc/states.h"

namespace multigrain::sc {

// A thread of this node made an access that its rights do not allow.
FaultOutcome on_fault(Page& page, const Context& context, Access access, Actions& actions);

// Asks for a copy to read, or for the only copy, before a thread needs it. No thread waits for it.
void on_prefetch(Page& page, const Context& context, Access access, Actions& actions);

// A thread that was granted the page runs, and is about to make its access: the hold begins now.
void on_returned(Page& page);

// The hold is over. Pre: page.held, and no thread is returning.
void on_hold_over(Page& page, const Context& context, Actions& actions);

// Gives up the contents of the page for node `requester`, as if zeros were written all over it. Called at the home.
// Returns true if that is done. Otherwise the requester is told when it is done (kDiscarded).
[[nodiscard]] bool on_discard(Page& page, const Context& context, NodeId requester, Actions& actions);

// Handles a message from another node. Returns false if that node cannot have sent it now: the run must end.
[[nodiscard]] bool on_message(Page& page, const Context& context, NodeId from, const PageMessage& message,
                              Actions& actions);

}  // namespace multigrain::sc
