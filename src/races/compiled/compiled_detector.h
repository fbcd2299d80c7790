// The detector of data races in programs whose accesses call it (mgcc -fmultigrain-races, mgrun --check-races): FastTrack over all
// nodes of one machine. docs/internals/races.md says how it works; what it relies on is stated at location.h (L1 to L3),
// race_memory.h (M1 to M3) and order.h (H1 to H3), and here:
//
//  C1  An access is told to the detector by the thread that makes it, between the same two of the thread's calls that order. A lock
//      of Multigrain, and what else orders, is told before it lets others go on, and after the thread was let through.
//  C2  Memory that is allocated has no history: what its last user did is not compared with what its next one does.
//  C3  Whoever is told of a race holds no line's lock.
//
// It is not async-signal-safe: a handler must not touch shared memory, as ever.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "memory/region.h"
#include "races/compiled/contexts.h"
#include "races/compiled/order.h"
#include "races/compiled/race_memory.h"
#include "races/compiled/recent.h"

namespace multigrain::races {

// Two accesses that nothing orders.
struct Race {
  struct Access {
    uint64_t place = 0;  // contexts.h
    unsigned owner = 0;
    bool is_write = false;
    bool is_atomic = false;
  };
  Access now;
  Access earlier;
  uint64_t address = 0;  // of the first byte that both have accessed
  uint64_t bytes = 0;    // of the access now
};

class CompiledDetector {
 public:
  struct Machine {
    unsigned processors = 1;
    unsigned beside = 0;  // threads beside processors that there may be at a time
    // POSIX's objects in shared memory are made of Multigrain's, whose calls tell of them.
    bool has_shared_posix = false;
  };
  // A part of the address space, besides the region, whose accesses are looked at.
  struct Part {
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };
  using Tell = void (*)(const Race& race, const Contexts& contexts);

  // Calls tell(race) for the first race between each two places, on the thread that has found it.
  CompiledDetector(RaceMemory memory, const Region& region, Machine machine, std::vector<Part> parts, Tell tell);
  CompiledDetector(const CompiledDetector&) = delete;
  CompiledDetector& operator=(const CompiledDetector&) = delete;

  // --- Threads. A thread without an owner is not looked at.

  // The calling thread is that of a processor of this node.
  void begin_processor(unsigned number);
  // The calling thread runs beside processors, and was told `key` by the one that has started it. Ends the run if there are too
  // many. end_beside() is called when it ends.
  void begin_beside(uint64_t key);
  void end_beside();
  // In a forked child, of whose accesses nothing is known.
  static void leave();

  // --- What orders. They do nothing in a thread without an owner.
  void release(uint64_t key, Order::Mode mode = Order::Mode::kJoin);
  void acquire(uint64_t key);
  [[nodiscard]] Order::Arrival arrive(uint64_t barrier, unsigned count);
  void leave_barrier(const Order::Arrival& arrival);

  // --- Memory.

  // The memory has a new user, whose call returns to `site` (0: not known).
  void allocate(const void* begin, size_t bytes, uint64_t site);
  // The program frees the block: a write of all of it, where it was accessed before, at the call that returns to `site`.
  void free(const void* begin, size_t bytes, uint64_t site);

  // --- Accesses, of the thread of `me`.
  [[nodiscard]] bool covers(uint64_t address) const {
    return address - view_ < view_bytes_ || covers_elsewhere(address);
  }
  // `bytes` at an address that covers() accepts, which may go on beyond a page.
  void access(Owner& me, uint64_t address, uint64_t bytes, bool is_write, bool is_atomic, uintptr_t code);
  // What code tells: `bytes` at any address. What the owner has told at its time now costs a look at a table of its own.
  void tell_plain(Owner& me, uint64_t address, uint64_t bytes, bool is_write, uintptr_t code) {
    while (bytes != 0) {
      const unsigned first = address % Recent::kLineBytes;
      const uint64_t part = std::min<uint64_t>(bytes, Recent::kLineBytes - first);
      if (!me.recent->knows(address - first, Recent::bits(first, part), is_write))
        return tell_new(me, address, bytes, is_write, code);
      address += part;
      bytes -= part;
    }
  }
  // The same for `count` pieces of `bytes` each, `stride` bytes from one to the next, in other lines than that of the code, too (abi.h).
  void tell_strided(Owner& me, uint64_t address, uint64_t bytes, int64_t stride, uint64_t count, bool is_write,
                    uintptr_t code, uint64_t other_lines = 0);

  [[nodiscard]] Order& order() { return order_; }
  [[nodiscard]] bool is_told_of_posix(const void* object) const {
    return machine_.has_shared_posix && covers(reinterpret_cast<uint64_t>(object));
  }
  [[nodiscard]] const Contexts& contexts() const { return contexts_; }
  [[nodiscard]] const RaceMemory& memory() const { return memory_; }

 private:
  // The same for memory of which the owner has not told the first byte.
  void tell_new(Owner& me, uint64_t address, uint64_t bytes, bool is_write, uintptr_t code);

  struct Found;
  class LockedLine;

  [[nodiscard]] bool covers_elsewhere(uint64_t address) const;
  [[nodiscard]] AccessNow now(Owner& me, bool is_write, bool is_atomic, uintptr_t code) const {
    return {.epoch = Epoch(me.number, me.clock[me.number], is_atomic),
            .place = Contexts::place(code, contexts_.context(me.calls)),
            .is_write = is_write};
  }
  // What code tells of one line: the bytes of these bits (recent.h), of which the owner may have told some at its time now. `now` is
  // made when it is needed first.
  class NewAccess;
  void tell_line(NewAccess& access, uint64_t line, uint64_t bits);
  // An access of these bytes of a line. kKnown: of those cells alone of which anything is known. Returns what the owner is known to
  // have accessed of the line at its time now, with this access: these bytes, and maybe others.
  enum class Which : uint8_t { kAll, kKnown };
  Recent::Bytes touch(const Owner& me, uint64_t line, uint64_t bits, const AccessNow& now, Which which = Which::kAll);
  [[nodiscard]] static Recent::Bytes known_of(LockedLine& line, const AccessNow& now);
  // An access of the location, which is of `bytes` from `address` on.
  void look(Location& location, uint64_t address, unsigned bytes, const AccessNow& now, ClockView clock, Found& found);
  // `bytes` within a cell.
  void touch_cell(Location& cell, uint64_t address, unsigned bytes, const AccessNow& now, ClockView clock,
                  Found& found);
  void split(Location& whole, Parts parts);
  // Makes cells of a line of one, which says the same of each.
  void separate(LockedLine& line);
  void split_halves(Location& whole);
  // Returns what is known of the location, for another one.
  [[nodiscard]] Location copy_of(const Location& location);
  void copy_into(const Location& whole, std::span<Location> parts);
  template <typename Visit>
  void for_each_line(uint64_t begin, uint64_t end, Visit&& visit);
  void forget(const void* begin, size_t bytes);
  void forget_parts(Location& location);
  void found(const Race& race);
  Owner& make_owner(unsigned number);

  RaceMemory memory_;
  Order order_;
  Contexts contexts_;
  const Region& region_;
  const uint64_t view_;
  const uint64_t view_bytes_;
  const Machine machine_;
  const std::vector<Part> parts_;
  const Tell tell_;
  std::array<std::atomic<Owner*>, Epoch::kMaxOwners + 1> owners_{};
};

// The calling thread's; nullptr: it is not looked at.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Owner* t_owner;
// Called on the thread when that changes, if there is one: entries.cpp has it, which the program's code calls.
[[gnu::weak]] void on_changed_owner(const Owner* owner);
// The node's; nullptr but under --check-races. Set before any processor runs, and never destroyed.
extern constinit CompiledDetector* g_compiled_detector;

}  // namespace multigrain::races
