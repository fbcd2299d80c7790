// This is the interface between the runtime and a protocol: what the runtime calls, and the services that a protocol
// uses.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "base/config.h"
#include "base/ids.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "memory/access_rights.h"
#include "memory/region.h"

namespace multigrain {

// The range has the pages [begin, end), by number.
struct PageRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] bool contains(PageId page) const { return page.value >= begin && page.value < end; }
};

// Knows where pages are at home. The shared heap implements it.
class HomeDirectory {
 public:
  virtual ~HomeDirectory() = default;
  // Returns the home if this node knows it: it knows that of every allocated page, except of a first-touch page whose
  // home it has not asked for. Async-signal-safe.
  virtual std::optional<NodeId> home_of(PageId page) = 0;
  // Returns whether the page is allocated with first-touch placement. Async-signal-safe.
  virtual bool is_first_touch(PageId page) = 0;
  // Returns whether the page's memory is kept coherent by pages or by lines; nullopt if it is not allocated.
  // Async-signal-safe.
  virtual std::optional<Grain> grain_of(PageId page) {
    if (!home_of(page) && !is_first_touch(page)) return std::nullopt;
    return Grain::kPage;
  }
  // Returns whether memory of an allocated page that is kept coherent by pages may be kept coherent by lines as well.
  // Async-signal-safe.
  virtual bool may_move_to_lines(PageId page) {
    static_cast<void>(page);
    return false;
  }
  // Returns how many bytes of an allocated page of lines move together: a number of lines, which divides the page
  // except at its end; 0 means one line. Async-signal-safe.
  virtual size_t block_size_of(PageId page) {
    static_cast<void>(page);
    return 0;
  }
  // Returns where the program has pinned an allocated page of the protocol placement. Async-signal-safe.
  virtual Pin pin_of(PageId page) {
    static_cast<void>(page);
    return Pin::kNone;
  }
  // Returns the pages around this one that a protocol may bring ahead of a processor that is at it. They are one
  // stretch of address space with one placement, of which every node knows before any of it is handed out. Behind the
  // stretch there may be memory of which only this node knows so far, or memory of another protocol. Empty: no pages.
  // Async-signal-safe.
  virtual PageRange stretch_of(PageId page) {
    static_cast<void>(page);
    return {.begin = 0, .end = UINT64_MAX};
  }
  // Settles the home of a first-touch page, and returns it: this node, unless another node has claimed the page before;
  // nullopt if the page is not allocated. This is a remote operation, or waits for a message. It is called in the fault
  // handler with no lock held.
  virtual std::optional<NodeId> claim_home(PageId page) = 0;
  // Returns the home of a first-touch page, if any node has claimed it. Like claim_home() it is a remote operation, or
  // waits for a message.
  virtual std::optional<NodeId> ask_home(PageId page) { return home_of(page); }

  // Returns the home of a page that a message to node `self` is about; nullopt if no correct node sends such a message.
  // With `is_for_home` the message is one that nodes send to the page's home. It may come before this node has learnt
  // that it is the home of a first-touch page: the arbiter has told the sender, and its answer to this node is still on
  // its way. Async-signal-safe.
  std::optional<NodeId> home_for_message(PageId page, bool is_for_home, NodeId self) {
    if (const std::optional<NodeId> home = home_of(page)) return home;
    if (is_for_home && is_first_touch(page)) return self;
    return std::nullopt;
  }
};

// Learns what this node has written (mgrun --races).
class WriteObserver {
 public:
  virtual ~WriteObserver() = default;
  // The node has written the bytes of a frame that differ from the twin, since it has made the twin, and is about to release
  // them. No thread writes the frame meanwhile. Called with locks of pages held; it must touch neither view nor protocol.
  virtual void on_diff(PageId page, const std::byte* frame, std::byte* twin) = 0;
};

// Keeps memory coherent by lines that a page protocol has kept coherent until a barrier of all processors. A line protocol
// implements it.
class LineKeeper {
 public:
  virtual ~LineKeeper() = default;
  // Returns whether the page may move to lines: whoever allocated it has left the choice to Multigrain.
  [[nodiscard]] virtual bool may_take(PageId page) = 0;
  // Returns whether no page of the run may move any more: code without checks knows an address of one that may.
  [[nodiscard]] virtual bool takes_no_more() const = 0;
  // From now on these pages are kept coherent by lines. Every node calls this at the same barrier of all processors, before any
  // of its processors leaves it. `home` is the same at every node, and has all that was written; no node has rights to
  // the pages.
  virtual void take(PageId first, uint64_t count, NodeId home) = 0;
  // Returns what misses of lines of this page have cost this node so far, and as much again for what caused them at other
  // nodes (LineCosts::of_two, line_costs.h); nullopt if nobody counts that. It wraps round. Async-signal-safe.
  [[nodiscard]] virtual std::optional<uint32_t> cost(PageId page) const = 0;
};

// A protocol of this node works with these services. All of them outlive the protocol.
struct NodeServices {
  Fabric& fabric;
  Region& region;
  AccessRights& rights;
  HomeDirectory& homes;
  WaitPolicy wait;
  // nullptr: nobody wants to know. Only hlrc tells.
  WriteObserver* writes = nullptr;
  // The memory files of all nodes' frames, by the nodes' numbers. Empty: other nodes' frames cannot be mapped here.
  std::span<const int> frames_of_nodes{};
};

// A protocol decides the access rights of one node, and moves data. A line protocol is a Protocol as well
// (line_protocol.h).
class Protocol {
 public:
  virtual ~Protocol() = default;

  // A processor made an access at `page` that the node's rights do not allow. Returns true when the access should be
  // tried again, false if the page is not allocated. Called in the fault handler, by any number of threads at once.
  virtual bool on_fault(PageId page, bool is_write) = 0;

  // Makes what this node's processors have written so far visible to every later acquire. Called from ordinary code.
  virtual void release() = 0;

  // Makes what the calling thread has written visible to the other processors of its node, if the protocol does not do
  // that anyway. Called from ordinary code, unless is_clean().
  virtual void drain_store_buffer() {}

  // Returns whether release() of any thread of the node covers what all its processors have written, but for what
  // release_own_part() covers. Then a lock that stays at the node need not release at every unlock.
  [[nodiscard]] virtual bool may_defer_releases() const { return false; }
  // Returns whether release() covers what the calling thread has written, and not what others of its node have. Then each
  // processor releases for itself before it arrives at a barrier, and a lock is handed on only after a release.
  [[nodiscard]] virtual bool releases_own_writes() const { return false; }
  // Does what release() does for the calling thread alone, and what drain_store_buffer() does.
  virtual void release_own_part() { drain_store_buffer(); }

  // Returns whether release() has nothing to do. It is a hint for the fast path of locks.
  [[nodiscard]] virtual bool is_clean() const = 0;

  // Under lazy release consistency: makes the calling thread's accesses from now on see all that node `from` had
  // released or acquired itself before it passed the lock (or other token) on to the caller. Called from ordinary code.
  // Under eager release consistency there is nothing to do.
  virtual void acquire(NodeId from) { static_cast<void>(from); }
  // Does the same for what every node has released.
  virtual void acquire_all() {}

  // Returns whether catch_up() does anything, so that a thread is needed that calls it.
  [[nodiscard]] virtual bool needs_to_catch_up() const { return false; }
  // Does what the protocol has to do from time to time. Under lazy release consistency: if no processor of this node has
  // acquired anything since the last call, applies what other nodes have released meanwhile. So a processor that never
  // acquires, because it waits for another one's write in a loop, sees that write in the end, as it would on one machine.
  // Called by one thread of the node, which is no processor, again and again.
  virtual void catch_up() {}

  // Announces that the calling thread is about to access all of these pages, so that the protocol can bring those that
  // are not here together. Called from ordinary code. The accesses are correct without it.
  virtual void expect(PageId first, uint64_t count, bool is_write) {
    static_cast<void>(first), static_cast<void>(count), static_cast<void>(is_write);
  }

  // These are the release and the acquire of a barrier of all processors of the run. The last of the node's processors
  // to arrive calls release_at_barrier(), when the node's others have arrived and before any other node is told of it.
  // Each processor calls acquire_at_barrier() when the last processor of the run has arrived, before it goes on.
  // Between the two no processor accesses memory.
  virtual void release_at_barrier() {
    if (!is_clean()) release();
  }
  virtual void acquire_at_barrier() { acquire_all(); }

  // Returns whether this node takes part in gathering what nodes have to learn of each other along the tree of such a barrier:
  // true on every node, or on none, and always the same once processors run. Then the last of the node's processors to
  // arrive calls two more functions, behind release_at_barrier() and before any of the node's processors leaves; both may wait.
  [[nodiscard]] virtual bool gathers_at_barrier() const { return false; }
  // `children` have returned from this call; the parent of this node calls it later.
  virtual void gather_at_barrier(std::span<const NodeId> children) { static_cast<void>(children); }
  // Every node has returned from gather_at_barrier(), and `parent` from this call, unless that is this node itself, which is
  // the root. If this node `spreads` what it learns, its children call this later.
  virtual void learn_at_barrier(NodeId parent, bool spreads) { static_cast<void>(parent), static_cast<void>(spreads); }

  // Until now only processors of this node have run, so what they have written no other node has fetched. Called from
  // ordinary code, before processors of other nodes run.
  virtual void end_serial_part() {}

  // From now on the protocol may give pages to `lines`, at barriers of all processors, if they would be faster there.
  // Called before any processor runs, on every node or on none. Errors: tables that cannot be reserved.
  virtual Status offer_lines(LineKeeper& lines) {
    static_cast<void>(lines);
    return {};
  }

  // Returns a word that says how much it has cost this node, in tenths of a microsecond, that there was no barrier of all processors since
  // the last one. nullptr if that costs nothing.
  [[nodiscard]] virtual const std::atomic<uint32_t>* lost_without_barrier() const { return nullptr; }

  // Gives up the contents of these pages, as if zeros were written all over them, on every node, and gives their memory
  // back. Threads may access the pages meanwhile. Returns true when that is done, false if this protocol cannot do it.
  // Called from ordinary code, by one thread of the node at a time.
  virtual bool discard(PageId first, uint64_t count) {
    static_cast<void>(first), static_cast<void>(count);
    return false;
  }

  // Makes this node's frame hold what its threads read in the page, which one of them has just read: it does, unless threads
  // use another node's frame. Called from ordinary code.
  virtual void fill_frame(PageId page) { static_cast<void>(page); }

  // Takes part in what another processor of this node is doing for release() or acquire_all(), if that processor shares
  // its work. The caller waits at a barrier. Returns whether it did something; costs a few nanoseconds if there is
  // nothing to do.
  virtual bool help() { return false; }

  // Does what was put off until its time has come, or until a thread without published hazards can do it. The service
  // thread calls it whenever serve() of the fabric has returned, and Fabric::wake_service() makes serve() return. It
  // returns soon, since another protocol of the run may have to do something that it waits for. If work is left, it
  // calls wake_service() before it returns.
  virtual void serve() {}
};

}  // namespace multigrain
