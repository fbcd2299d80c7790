// This is home-based lazy release consistency ([GeNIMA]) as a value and its transitions: one page at one node.
//
// Requesters run this protocol: a node fetches pages from their homes and deposits diffs there with one-sided
// operations, and no processor of the home is asked. So there is no server here and there are no messages. What other
// nodes do shows in three events only: a write notice that this node applies at an acquire, the end of an interval, and
// the entry that the first fetch of a page leaves in its home's fetch log. The driver (driver.h) carries out the
// actions, in order, before the page's next event.
//
// These invariants hold; docs/internals/hlrc.md argues that, and the explorer checks it:
//
//  H1  All that a node has written before it ends an interval is in the home copies before the interval's notices can
//      be read, and the notices can be read before any other node is told of the release. So when an acquire has
//      applied the notices of all that happens before it, every fetch that follows finds the writes at the home: the
//      paper's wait for a version is over before it begins.
//  H2  A page that is writable where its writes must be noticed is queued: it joined the queue of this interval before
//      it became writable. This does not hold at the home of a page of which no other node can have a copy that
//      outlives that node's next acquire: no other node has fetched it since the home's last notice of it (`shared` is
//      false).
//  H3  A twin exists exactly while a page that is at home elsewhere is writable.
//  H4  A node that is not the home loses its rights to a copy before the copy's frame is filled whole. Its diff is made,
//      and is complete at the home, after no processor can write the copy and before the page's next event.
//      A copy that is in use keeps its rights. Then the frame gets, of the home copy that is read after the notice, what is
//      different from the twin, byte by byte, and so does the twin; of a copy that is not writable the whole. Processors
//      of the node may access the page meanwhile: bytes that another node has written before the release that this node
//      acquires, they may access only after this acquire. At the end of the interval the copy is queued for the next
//      one before it is compared with its twin, which then gets what the diff says: a write is in this diff, or it is
//      different from the twin when the next interval ends.
//  H5  A node that fetches a page for the first time, or for the first time since it applied a notice of it, appends
//      the page to the home's fetch log before the fetch begins. The home reads the log when it ends an interval:
//      either it finds the entry, and counts the page as written in that interval, or the fetch began later and sees
//      all that the interval wrote.
//  H6  The home of a page moves at a barrier of all processors, to the node whose notices alone have named the page
//      since the barrier before. Every node finds the same pages, and counts them as moved before any of its processors
//      leaves the barrier. No processor faults, fetches, deposits or writes between the arrival of the last processor
//      and that. The frame of the new home is complete: no other node has changed the home copy since the new home
//      fetched it (or, if it was the old home, has named it), and what it wrote itself is in both frames. The page is
//      shared at the new home, since other nodes have copies.
//  H7  A page that moves to lines does so at a barrier of all processors, at all nodes: every node finds the same pages, and
//      counts them as moved before any of its processors leaves the barrier. The home copy is complete then (H1, H6), and
//      no node but the home has rights to the page, a twin of it, or a notice of it to make. Nothing that happens later
//      changes anything: no fault of the page comes here any more, notices and entries of the fetch log that name it are
//      old, and it stays in the list of an interval that it was in.
//
// Where notices are gathered along the tree of a barrier of all processors (gathered_notices.h):
//
//  G1  A node gathers when it has ended its interval and all its children have gathered; it learns when all nodes have gathered
//      and its parent has learnt; and it applies what it has learnt before any of its processors leaves. The block that it learns
//      names, of each node, every page of every notice that this node has made since it left the barrier before, and how far
//      it has published. So when a processor leaves, every notice that happens before the barrier is applied: those of this
//      episode from the block, those of earlier ones since earlier barriers. Or the block says that there was no room for all; then every
//      node finds that, and reads what is published, which is no less.
//  G2  All nodes learn the same block, so H6 holds: they count pages as moved by the block alone.
//  G3  A node writes its block of the way up again when all its children have gathered for the next barrier, and that of the way down
//      when all nodes have. Its parent has read the first before any node learns, and its children have read the second before
//      they gather for the next barrier: so nobody is reading what is written. One place for both would do only if all barriers had the
//      same tree.
//
// A notice about a page that is dirty here and not in use ends the copy early: the changes go home at once, and their own
// notice is pending until this node's interval ends.
#pragma once

#include <optional>

#include "base/ids.h"
#include "coherence/context.h"
#include "coherence/hlrc/states.h"

namespace multigrain::hlrc {

// A processor made an access that the node's rights do not allow.
FaultOutcome on_fault(Page& page, const Context& context, Access access, Actions& actions);

// A processor has faulted on a page shortly before this one. `with_rights`: this page becomes readable at once.
// Otherwise its frame is filled, and its first fault shows that fetching ahead was right (B.2).
void on_prefetch(Page& page, const Context& context, bool with_rights, Actions& actions);

// An acquire applies a write notice of another node that names the page.
// `is_used`: the node keeps its right to the page, and gets what has changed.
void on_notice(Page& page, const Context& context, bool is_used, Actions& actions);

// The diff that kDeposit asked for is in the home copy, or on its way there. `changed`: the diff was not empty.
void on_deposited(Page& page, bool changed);

// Another node has fetched the page. The home calls this when an interval ends, before on_interval_end() for its pages.
void on_fetched_elsewhere(Page& page, Actions& actions);

// The interval ends, in two steps. The first makes the page clean. The second, when its diff is at the home, says
// whether the notices name it. `is_used`: the page stays writable.
void on_interval_end(Page& page, const Context& context, bool is_used, Actions& actions);
void on_clean(Page& page, const Context& context, Actions& actions);

// At the home: the right to write a private page goes. The next write faults, so a fetch by another node before that needs
// no notice.
void on_protect(Page& page, const Context& context, Actions& actions);

// An episode ends in which `writer` alone has written the page, or several nodes have (nullopt). Returns whether the page's
// home is at the writer from now on, where it may have been before. The first time and the second a node must have written
// the page alone once; then in two episodes one after the other, then in four, and so on: a page that nodes write in turn,
// or together, stays.
// What a node knows of the home otherwise has no part in it: a node that never looked it up must find the same.
bool on_episode_end(Writers& writers, std::optional<NodeId> writer);

// The page's home moves (H6): from this node, or to it. For the other nodes nothing changes.
void on_home_leaves(Page& page, Actions& actions);
void on_home_comes(Page& page, Actions& actions);

// The page moves to lines (H7).
void on_move_to_lines(Page& page, Actions& actions);

}  // namespace multigrain::hlrc
