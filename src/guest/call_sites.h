// Places of the guest's code that make system calls often, and how they are changed so that their calls enter the host by a
// jump (gates.h) instead of a signal.
//
// A *call site* is `mov $number,%eax; syscall`. The `mov` has five bytes, and so has the `jmp` that takes its place, to a
// *stub* of the site within 2 GiB: that leads to a gate, which goes on behind the `syscall`. The `syscall` itself stays: what
// comes to it by another way still traps, and so does a thread that has executed the `mov` before it was changed.
//
// Call 0, read(), is made by `xor %eax,%eax; syscall`. There are two bytes for a short jump, which leads to a *hop*: a jump to
// the stub, in what a compiler fills the space between two functions with.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "guest/areas.h"
#include "guest/gates.h"

namespace multigrain::guest {

// Counts how often calls arrive by a signal from one place. Any thread.
class Arrivals {
 public:
  // Whether the place is worth a change now. After `true` the caller says what has become of it.
  bool is_often(uint64_t call);
  void set_unchangeable(uint64_t call);
  void start_again(uint64_t call);

 private:
  // A change takes the time of about so many signals (docs/studies/guests.md), which is then lost at most once.
  static constexpr uint32_t kOften = 8;
  static constexpr uint32_t kNever = ~uint32_t{0};
  struct Place {
    std::atomic<uint64_t> call{0};
    std::atomic<uint32_t> count{0};
  };
  // Places that fall together push each other out, and are counted from one again.
  Place& place_of(uint64_t call) { return places_[(call ^ call >> 10) % places_.size()]; }
  std::array<Place, 1024> places_;
};

// The sites of one process and their stubs. The caller holds the lock of the address space, but where it says otherwise.
class CallSites {
 public:
  static constexpr size_t kMov = 5;      // bytes of `mov $number,%eax` and of `jmp`
  static constexpr size_t kXor = 2;      // bytes of `xor %eax,%eax` and of a short `jmp`
  static constexpr size_t kSyscall = 2;  // bytes of `syscall`
  static constexpr uint64_t kReach = (uint64_t{1} << 31) - (uint64_t{1} << 20);  // of a jump, with room for an arena
  static constexpr uint64_t kArenaBytes = uint64_t{64} << 10;

  // How many bytes a site has before its `call`, the address of a `syscall` instruction that was executed with this number in
  // rax: kMov, kXor, or 0, if it is none.
  static size_t bytes_before(uint64_t call, uint64_t number);

  // Whether there is room for a stub of the site; else the caller adds memory of kArenaBytes in its reach.
  [[nodiscard]] bool has_room_near(uint64_t call) const { return arena_near(call) < arenas_begun_; }
  [[nodiscard]] bool can_add_arena() const { return arenas_begun_ < kArenas; }
  void add_arena(uint64_t begin);

  // Changes the site; `rights`: those that the guest has to its pages. False: it is as it was.
  bool change(uint64_t call, uint64_t number, int rights);
  // All sites of the range are as in the guest's file again; of those that it replaces nothing is known any more.
  void restore(Range range, int rights);
  void forget(Range range);
  // From now on all calls trap.
  void close();
  [[nodiscard]] bool is_closed() const { return is_closed_; }

  // The guest has executed the instruction by which a site that is being changed stops threads: true, and the context is
  // where the site's `mov` would have taken it.
  bool step_over(gregset_t& registers) const;

  // The site to whose stub or hop this instruction belongs, or null. Without the lock.
  [[nodiscard]] const CallSite* site_of_stub(uint64_t instruction) const;

 private:
  struct Stub;
  using Code = std::array<uint8_t, kMov>;
  struct Known {
    Stub* stub;
    size_t bytes;
    bool is_changed;
  };
  // For signals that come to a hop, and to find more room behind it.
  struct Hop {
    std::atomic<uint64_t> at{0};  // 0: not in use
    uint64_t end = 0;             // of the space that it is in
    const CallSite* site = nullptr;
  };
  static constexpr size_t kArenas = 64;
  static constexpr size_t kHops = 64;

  [[nodiscard]] size_t arena_near(uint64_t call) const;
  Stub* make_stub(uint64_t call, uint64_t number, bool is_xor);
  // Where it will be, or 0.
  uint64_t make_hop(uint64_t site, const Stub& stub);
  [[nodiscard]] Hop* hop_at(uint64_t address);
  void undo(uint64_t site, Known& known, int rights);
  static bool replace(uint64_t site, const uint8_t* code, size_t bytes, int rights);

  std::array<std::atomic<uint64_t>, kArenas> arenas_{};
  std::array<size_t, kArenas> used_{};
  std::atomic<size_t> arenas_begun_{0};
  std::array<Hop, kHops> hops_;
  std::map<uint64_t, Known> known_;  // by the address of the first byte that changes
  bool is_closed_ = false;
};

}  // namespace multigrain::guest
