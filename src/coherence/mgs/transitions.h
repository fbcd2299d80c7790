// This is the MGS protocol as a value and its transitions: Local Client, Remote Client and Server of one page at one
// node ([MGS], section 3.2 and Appendix A: Table 5, Figures 21 and 22).
//
// There is no clock, no I/O, no lock and no thread in here. The driver (driver.h) feeds it events and carries out the
// actions that it returns, in order. Tests explore the driver with this very code.
//
// Where the figures are silent, or differ from what must hold, the reasons are in docs/internals/mgs.md. In short:
//  * The messages between a home's client and its server are handled inside one transition, so at the home they never
//    disagree, and the home copy is the home's local copy: no twin, no diff, no transfer.
//  * An invalidated dirty page stays in the delayed update queue: its release waits for the round that took it.
//  * A whole page (1WDATA) never overwrites a diff of the same round: diffs that come before it wait for it.
//  * A home that writes a page of which no node has a copy is its single writer at once.
//  * A home that loses its page to readers stays one of them, and its own read copy keeps no writer from being a single
//    one.
//  * A node reads by itself, and asks the home only if that is in the middle of something, or the page has a single writer.
//  * Mappings are removed, and known to be removed, before a diff is made or a page is sent.
#pragma once

#include "coherence/mgs/states.h"

namespace multigrain::mgs {

// A processor of `domain` made an access that its mapping does not allow: RTLBFault, WTLBFault.
FaultOutcome on_fault(Page& page, const PageContext& context, DomainId domain, Access access, Actions& actions);

// A processor of `domain` releases, and has taken the page off that domain's queue. Returns true if the release has to
// wait for a kReleased that names the domain (it may be among these very actions), false if there is nothing to wait
// for.
bool on_release(Page& page, const PageContext& context, DomainId domain, Actions& actions);

// The node has read the page by itself (kFetch), and found the home's word open. The page is in the frame.
void on_fetched(Page& page, const PageContext& context, Actions& actions);

// The node has found the home's word closed, and has not read the page.
void on_refused(Page& page, const PageContext& context, Actions& actions);

// At the home, which has just closed the page's word: these nodes have read the page by themselves. Returns false if one
// of them cannot have done so: the run must end. Every other event of the server comes behind this one.
[[nodiscard]] bool on_readers(Page& page, const PageContext& context, const NodeSet& readers);

// Returns whether other nodes may read the page at its home by themselves, as far as the server knows: the word may be
// open once the actions of the last event have been carried out.
[[nodiscard]] bool may_be_read(const Page& page);

// The domain's mapping is gone and no processor can use it any more: PINV_ACK.
void on_unmapped(Page& page, const PageContext& context, DomainId domain, Actions& actions);

// While an invalidation is in progress: returns whether the domain, once unmapped, will be mapped for reading again
// when the round ends (at once, if no other node has to answer). A driver may then take only the right to write, which
// is cheaper: the home copy stays the newest that there is, and only diffs can reach it before the round's end.
[[nodiscard]] bool will_keep_read_right(const Page& page, const PageContext& context);

// Handles a message from another node. Returns false if that node cannot have sent it now: the run must end.
[[nodiscard]] bool on_message(Page& page, const PageContext& context, NodeId from, MessageKind kind, Actions& actions);

}  // namespace multigrain::mgs
