// What the runtime asks of a page-grain protocol, and what it offers one.
#pragma once

#include <optional>

#include "base/config.h"
#include "base/ids.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "memory/access_rights.h"
#include "memory/region.h"

namespace multigrain {

// Pages [begin, end), by number.
struct PageRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] bool contains(PageId page) const { return page.value >= begin && page.value < end; }
};

// Where pages are at home. The shared heap knows.
class HomeDirectory {
 public:
  virtual ~HomeDirectory() = default;
  // The home if this node knows it: of every allocated page, except of a first-touch page that it has not asked for.
  // Async-signal-safe.
  virtual std::optional<NodeId> home_of(PageId page) = 0;
  // Whether the page is allocated with first-touch placement. Async-signal-safe.
  virtual bool is_first_touch(PageId page) = 0;
  // What the page's memory is kept coherent by; nullopt if it is not allocated. Async-signal-safe.
  virtual std::optional<Grain> grain_of(PageId page) {
    if (!home_of(page) && !is_first_touch(page)) return std::nullopt;
    return Grain::kPage;
  }
  // How many bytes of an allocated page of lines move together: a number of lines, which divides the page but for its
  // end; 0: one line. Async-signal-safe.
  virtual size_t block_size_of(PageId page) {
    static_cast<void>(page);
    return 0;
  }
  // The pages around this one that may be brought ahead of a processor that is at it: of one stretch of address space with
  // one placement, of which every node knows before any of it is handed out. Behind its end may be what only this node
  // knows of yet, or what another protocol keeps. Empty: none. Async-signal-safe.
  virtual PageRange stretch_of(PageId page) {
    static_cast<void>(page);
    return {.begin = 0, .end = UINT64_MAX};
  }
  // Settles the home of a first-touch page: this node's, unless another came first; nullopt if it is not allocated.
  // A remote operation, or waits for a message; called in the fault handler with no lock held.
  virtual std::optional<NodeId> claim_home(PageId page) = 0;
  // The home of a first-touch page, if any node has claimed it. A remote operation, or waits for a message, as claim_home().
  virtual std::optional<NodeId> ask_home(PageId page) { return home_of(page); }
};

// What a protocol of this node works with. All of it outlives the protocol.
struct NodeServices {
  Fabric& fabric;
  Region& region;
  AccessRights& rights;
  HomeDirectory& homes;
  WaitPolicy wait;
};

// A page-grain protocol of one node: it decides access rights, and moves data.
class Protocol {
 public:
  virtual ~Protocol() = default;

  // A processor made an access at `page` that its rights do not allow. Returns when it should be tried again.
  // Returns false if the page is not allocated. Called in the fault handler, by any number of threads at once.
  virtual bool on_fault(PageId page, bool is_write) = 0;

  // Makes what this node's processors wrote so far visible to every later acquire. Called from ordinary code.
  virtual void release() = 0;

  // Makes what the calling thread has written visible to the other processors of its node, where that is not so anyway.
  // Called from ordinary code, unless is_clean().
  virtual void drain_store_buffer() {}

  // Whether release() has nothing to do: a hint for the fast path of locks.
  [[nodiscard]] virtual bool is_clean() const = 0;

  // Under lazy release consistency: makes the accesses that the caller makes from now on see what node `from` had
  // released, or had itself acquired, before it gave the caller what it synchronised with. Called from ordinary code.
  // Under eager release consistency there is nothing to do.
  virtual void acquire(NodeId from) { static_cast<void>(from); }
  // The same for what every node has released.
  virtual void acquire_all() {}

  // The calling thread is about to access all of these pages: what is not here may be brought together. Called from
  // ordinary code; the accesses are right without it.
  virtual void expect(PageId first, uint64_t count, bool is_write) {
    static_cast<void>(first), static_cast<void>(count), static_cast<void>(is_write);
  }

  // The release and the acquire of a barrier of all processors of the run: by the last of the node's processors to arrive,
  // when all others of the node are there and before any other node is told of it; and by each of them when the last of the
  // run has arrived, before it goes on. Between the two no processor accesses memory.
  virtual void release_at_barrier() {
    if (!is_clean()) release();
  }
  virtual void acquire_at_barrier() { acquire_all(); }

  // Gives up what is in these pages, as if zeros were written all over them, on every node; their memory is given back.
  // Threads may access them meanwhile. Returns when that is done; false: this protocol cannot do it. Called from ordinary
  // code, by one thread of the node at a time.
  virtual bool discard(PageId first, uint64_t count) {
    static_cast<void>(first), static_cast<void>(count);
    return false;
  }

  // Takes part in what another processor of this node is doing for release() or acquire_all(), if it shares that. The
  // caller waits at a barrier. Whether it did something; costs a few nanoseconds if there is nothing to do.
  virtual bool help() { return false; }

  // Does what has been put off until its time has come, or until some thread without published hazards can do it. The
  // service thread calls it whenever serve() of the fabric has returned; Fabric::wake_service() makes it. It returns soon,
  // since another protocol of the run may have something to do that it waits for; if something is left, it calls
  // wake_service() before.
  virtual void serve() {}
};

}  // namespace multigrain
