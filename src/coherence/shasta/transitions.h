// These are the events of the Shasta protocol: what a processor, or a message, does to a block. The table of states and
// events is at the head of transitions.cpp, the types are in states.h.
//
// There is no clock, no I/O, no lock and no thread here. The driver feeds it events and carries out the actions that it
// returns, in order; tests/coherence/shasta_driver_world.h explores both. docs/internals/shasta.md explains the
// protocol, says where it departs from the paper and why, and what is explored.
//
// These invariants hold in every state (explored, docs/internals/shasta.md):
//  (S1) At most one node's copy is exclusive. When its request is complete (no acknowledgement missing), no other node
//       has a readable copy, and no data is under way.
//  (S2) A store is made only in a frame whose block is exclusive at the node: under a hazard that was published before
//       the right to store was taken away, or by the transition that retires it. Under sc it is made only when the
//       request is complete.
//  (S3) Data leaves a node only when no hazard of it covers a store there any more. It then holds every store that any
//       node made to the block before, unless an invalidation for the receiver is on its way to it.
//  (S4) The directory never waits. The owner that it names has the block, or the owner's own request for it has been
//       ordered. The owner serves what is forwarded to it in the order of the directory: before its request if it is
//       forwarded before the request's reply, after completion otherwise.
//  (S5) A request that is ordered sends as many invalidations as its reply names. Each is acknowledged to the requester
//       exactly once, after the last hazard over the copy has been cleared.
//  (S6) Every request is answered by one reply, and every store in a queue retires exactly once.
//  (S7) No outcome is possible that the memory model forbids. sc: all outcomes are those of an interleaving. rc: stores
//       of a processor may become visible in any order, and to its own node's processors before those of other nodes.
//       But nothing moves across a fence: after it, every store that the processor made or saw before it is visible to
//       all nodes.
//  (S8) While words of a block are masked by queued stores (kMask), no hazard covers it: no unchecked access meets a
//       masked word.
//
// No function is thread-safe: the driver holds the block, and the Processors and FenceEpochs of the node, while a
// transition runs. No function allocates or blocks, so all may run in a signal handler.
#pragma once

#include "coherence/shasta/states.h"

namespace multigrain::shasta {

// --- Events of processors. The processor has no hazard published.

enum class Outcome : uint8_t {
  kResolved,  // the processor may go ahead; see each function
  kQueued,    // it is queued; the processor waits while must_wait
  kWait,      // wait for kCompleteLoads (loads), else for a kWake
};

// A load found the flag value in the frame. The driver has looked for the value in the processor's own queued stores
// before. kResolved: the value is the frame's, or is what a queued store of another processor masks.
Outcome on_load(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A processor wants a readable copy, for a hazard or ahead of use. kResolved: the copy is here. kWait: it has been here
// when block.fetching does not contain the processor any more.
Outcome on_fetch(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A store misses. kResolved: the caller makes it now, before it lets go of the block. kWait: the queue is full, and the
// caller tries again after a kWake.
Outcome on_store(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// The processor asks to store under a hazard: for an atomic, or a store that the queue cannot hold. kResolved: it
// publishes the hazard now, before it lets go of the block. kQueued: it waits for kGrantHazard, publishes the hazard,
// and calls on_hazard_published.
Outcome on_request_hazard(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);
// The processor has published its hazard. Returns true if a request was forwarded to this node and has waited for that:
// then a thread has to call on_advance, but not this one while its hazard is published.
[[nodiscard]] bool on_hazard_published(Block& block, unsigned processor);

// Returns whether a processor may not run on: under sc it waits for all of its stores, under rc for hazards only.
[[nodiscard]] bool must_wait(const Processor& processor);

// Asks for an exclusive block ahead of use. The processor does not wait. The block has been here when block.prefetching
// is false.
void on_prefetch_exclusive(Block& block, const Context& context, Node& node, Actions& actions);

// The processor executes a memory barrier, or a release. Returns true if it is done. Otherwise the caller asks again
// after a kWake.
[[nodiscard]] bool on_fence(Model model, Node& node, unsigned processor);

// Does what could not be done before. Called after on_hazard_published.
void on_advance(Block& block, const Context& context, Node& node, Actions& actions);

// --- Events of messages

// Handles a message from another node. Any processor of the node may do this. Returns false if that node cannot have
// sent it now: the run must end.
[[nodiscard]] bool on_message(Block& block, const Context& context, Node& node, NodeId from,
                              const BlockMessage& message, Actions& actions);

}  // namespace multigrain::shasta
