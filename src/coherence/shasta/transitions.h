// The events of the Shasta protocol: what a processor, or a message, does to a block. The table of states and events is at
// the head of transitions.cpp, the types are in states.h.
//
// There is no clock, no I/O, no lock and no thread here. The driver feeds it events and carries out the actions that it
// returns, in order; tests/coherence/shasta_driver_world.h explores both. docs/internals/shasta.md explains the
// protocol, says where it departs from the paper and why, and what is explored.
//
// What holds, in every state (explored, docs/internals/shasta.md):
//  (S1) At most one node's copy is exclusive. When its request is complete (no acknowledgement missing), no other node
//       has a readable copy, and no data is under way.
//  (S2) A store is made only in a frame whose block is exclusive at the node: under a hazard that was published before the
//       right to store was taken away, or by the transition that retires it. Under sc, only when the request is
//       complete.
//  (S3) Data leaves a node only when no hazard of it covers a store there any more, and then holds every store that was
//       made to the block before, in all nodes; unless an invalidation for the receiver is on its way to it.
//  (S4) The directory never waits. The owner that it names has the block, or its own request for it has been ordered,
//       and it serves what is forwarded to it in the order of the directory: before its request if it is forwarded
//       before the request's reply, after completion otherwise.
//  (S5) A request that is ordered sends as many invalidations as its reply names; each is acknowledged to the
//       requester exactly once, after the last hazard over the copy has been cleared.
//  (S6) Every request is answered by one reply, and every store in a queue retires exactly once.
//  (S7) What the models forbid. sc: whatever is not an interleaving. rc: stores of a processor may become visible in
//       any order, and to its own node's processors before those of other nodes; between two accesses that a fence
//       separates, nothing moves: after a fence, every store that was made or seen by the processor before it is visible
//       to all nodes.
//  (S8) While words of a block are masked by queued stores (kMask), no hazard covers it: no unchecked access meets a
//       masked word.
//
// Nothing is thread-safe: the driver holds the block, and the Processors and FenceEpochs of the node, while a transition
// runs. No function allocates or blocks, so all may run in a signal handler.
#pragma once

#include "coherence/shasta/states.h"

namespace multigrain::shasta {

// --- Events of processors. The processor has published no hazard.

enum class Outcome : uint8_t {
  kResolved,  // go ahead; see each function
  kQueued,    // it is in the queue; the processor waits while must_wait
  kWait,      // the processor waits: for its kCompleteLoads (loads), else for a kWake
};

// A load found the flag value in the frame. First the driver looks into the processor's own queued stores for the value.
// kResolved: the value is the frame's, or what a queued store of another processor masks.
Outcome on_load(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A readable copy, for a hazard or ahead of use. kResolved: it is here. kWait: it has been when block.fetching has lost
// the processor.
Outcome on_fetch(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A store that misses. kResolved: it is made now, before the block is let go. kWait: the queue is full; again after a
// kWake.
Outcome on_store(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// The processor asks to store under a hazard: an atomic, or a store that the queue cannot hold. kResolved: it publishes the
// hazard now, before the block is let go. kQueued: it waits for kGrantHazard, publishes the hazard, and calls
// on_hazard_published.
Outcome on_request_hazard(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);
// The processor has published its hazard. True: a request was forwarded to this node and has waited for that; a thread, but
// not this one while its hazard is published, has to call on_advance.
[[nodiscard]] bool on_hazard_published(Block& block, unsigned processor);

// Whether a processor may not run on: under sc it waits for all of its stores, else for hazards.
[[nodiscard]] bool must_wait(const Processor& processor);

// Asks for an exclusive block ahead of use. The processor does not wait; the block has been here when block.prefetching is
// false.
void on_prefetch_exclusive(Block& block, const Context& context, Node& node, Actions& actions);

// A memory barrier, or a release. True: it is done. False: ask again after a kWake.
[[nodiscard]] bool on_fence(Model model, Node& node, unsigned processor);

// Does what could not be done before: after on_hazard_published.
void on_advance(Block& block, const Context& context, Node& node, Actions& actions);

// --- Events of messages

// A message from another node; any processor of the node may handle it. Returns false if that node cannot have sent it
// now: the run must end.
[[nodiscard]] bool on_message(Block& block, const Context& context, Node& node, NodeId from,
                              const BlockMessage& message, Actions& actions);

}  // namespace multigrain::shasta
