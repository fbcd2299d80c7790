// The places of the guest's code that often make system calls. They are changed, so that their calls enter the host by
// a jump (gates.h) and not by a signal, which takes much longer.
//
// A *call site* is `mov $number,%eax; syscall`. The `mov` has five bytes, and so has the `jmp` that takes its place.
// The jump leads to a *stub* of the site within 2 GiB, and the stub to a call gate, which goes on behind the `syscall`.
// The `syscall` itself stays: a thread that comes to it by another way still traps, and so does a thread that has
// executed the `mov` before it was changed.
//
// Call 0, read(), is made by `xor %eax,%eax; syscall`. Its two bytes have room for a short jump, which leads to a
// *hop*: a jump to the stub, among the bytes with which a compiler fills the space between two functions.
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

// Counts how often calls arrive by a signal from one place. Any thread may call these functions.
class Arrivals {
 public:
  // Returns whether the place is worth a change now. After `true` the caller says what has become of the place.
  bool is_often(uint64_t call);
  void set_unchangeable(uint64_t call);
  void start_again(uint64_t call);

 private:
  // A change takes about as long as so many signals (docs/studies/guests.md), and that time is lost at most once.
  static constexpr uint32_t kOften = 8;
  static constexpr uint32_t kNever = ~uint32_t{0};
  struct Place {
    std::atomic<uint64_t> call{0};
    std::atomic<uint32_t> count{0};
  };
  // Places with the same entry push each other out, and are counted from one again.
  Place& place_of(uint64_t call) { return places_[(call ^ call >> 10) % places_.size()]; }
  std::array<Place, 1024> places_;
};

// The sites of one process and their stubs. The caller holds the lock of the address space, except where a
// function says otherwise.
class CallSites {
 public:
  static constexpr size_t kMov = 5;      // bytes of `mov $number,%eax` and of `jmp`
  static constexpr size_t kXor = 2;      // bytes of `xor %eax,%eax` and of a short `jmp`
  static constexpr size_t kSyscall = 2;  // bytes of `syscall`
  static constexpr uint64_t kReach = (uint64_t{1} << 31) - (uint64_t{1} << 20);  // a jump's reach, less an arena
  static constexpr uint64_t kArenaBytes = uint64_t{64} << 10;

  // Returns how many bytes a site has before its `call`, the address of a `syscall` instruction that was executed with
  // this number in rax: kMov, kXor, or 0 if it is no site.
  static size_t bytes_before(uint64_t call, uint64_t number);

  // Returns whether there is room for a stub of the site. If not, the caller adds memory of kArenaBytes in
  // the site's reach.
  [[nodiscard]] bool has_room_near(uint64_t call) const { return arena_near(call) < arenas_begun_; }
  [[nodiscard]] bool can_add_arena() const { return arenas_begun_ < kArenas; }
  void add_arena(uint64_t begin);

  // Changes the site. The guest has `rights` to its pages. Returns false if the site is as it was.
  bool change(uint64_t call, uint64_t number, int rights);
  // restore() makes all sites of the range what they are in the guest's file. forget() is for a range that the guest
  // replaces: nothing is known of its sites any more.
  void restore(Range range, int rights);
  void forget(Range range);
  // Makes all calls trap from now on.
  void close();
  [[nodiscard]] bool is_closed() const { return is_closed_; }

  // If the guest has executed the instruction that stops threads at a site which is being changed, returns true, and
  // moves the context to where the site's `mov` would have taken it.
  bool step_over(gregset_t& registers) const;

  // Returns the site to whose stub or hop this instruction belongs, or null. Needs no lock.
  [[nodiscard]] const CallSite* site_of_stub(uint64_t instruction) const;

 private:
  struct Stub;
  using Code = std::array<uint8_t, kMov>;
  struct Known {
    Stub* stub;
    size_t bytes;
    bool is_changed;
  };
  // A signal that comes to a hop is recognised by its entry, which also helps to find more room behind the hop.
  struct Hop {
    std::atomic<uint64_t> at{0};  // 0 if the entry is unused
    uint64_t end = 0;             // the end of the space around the hop
    const CallSite* site = nullptr;
  };
  static constexpr size_t kArenas = 64;
  static constexpr size_t kHops = 64;

  [[nodiscard]] size_t arena_near(uint64_t call) const;
  Stub* make_stub(uint64_t call, uint64_t number, bool is_xor);
  // Returns where the hop will be, or 0.
  uint64_t make_hop(uint64_t site, const Stub& stub);
  [[nodiscard]] Hop* hop_at(uint64_t address);
  void undo(uint64_t site, Known& known, int rights);
  static bool replace(uint64_t site, const uint8_t* code, size_t bytes, int rights);

  std::array<std::atomic<uint64_t>, kArenas> arenas_{};
  std::array<size_t, kArenas> used_{};
  std::atomic<size_t> arenas_begun_{0};
  std::array<Hop, kHops> hops_;
  std::map<uint64_t, Known> known_;  // the key is the first byte that changes
  bool is_closed_ = false;
};

}  // namespace multigrain::guest
