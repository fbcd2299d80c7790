// What orders accesses of different owners for the detector of compiled calls: the vector clocks of owners, and of objects
// that synchronise.
//
//  H1  An owner's time grows after it has released, before it does anything else. So the clock that it has handed on covers
//      what it did before, and nothing that it does afterwards.
//  H2  It releases to an object before its call lets another thread through, and acquires from the object after the call was
//      let through. So what the program orders by the object is ordered here, and no race is told of it. More may be ordered
//      than the program's own: by releases between the two moments. Where an object is used under its lock from before the
//      call to after it (locks of the program, atomics), there is none such.
//  H3  An owner's clock is used by its thread alone.
#pragma once

#include <array>
#include <cstdint>

#include "base/thread_annotations.h"
#include "races/compiled/epochs.h"
#include "races/compiled/race_memory.h"
#include "races/compiled/recent.h"

namespace multigrain::races {

// The calls that a thread is in, from the outermost on, for reports (contexts.h).
struct Calls {
  static constexpr uint32_t kMost = 4096;
  struct Entry {
    uintptr_t frame;   // the stack pointer in the function that was called
    uintptr_t site;    // where the call returns to
    uint32_t context;  // the call's, of the first `numbered`
  };
  uint32_t depth = 0;
  uint32_t numbered = 0;
  std::array<Entry, kMost> entry;
};

struct Owner {
  uint64_t epoch = 0;        // the bits of its epoch now
  Recent* recent = nullptr;  // of this epoch; nullptr: not noted
  uint32_t number = 0;
  std::array<uint64_t, Epoch::kMaxOwners + 1> clock{};
  // By fences of C11: what relaxed stores hand on, and what relaxed loads have found.
  bool has_release_fence = false;
  bool has_relaxed_loads = false;
  std::array<uint64_t, Epoch::kMaxOwners + 1> at_release_fence{};
  std::array<uint64_t, Epoch::kMaxOwners + 1> found_relaxed{};
  Calls calls;
};

// Objects are told by keys. Handles of synchronisation have a kind from 1 to 5 in their highest 4 bits (sync/handle.h); these are
// beside them.
namespace object {
inline constexpr uint64_t kShift = 60;
constexpr uint64_t atomic(uint64_t address) {
  return uint64_t{8} << kShift | address;
}
constexpr uint64_t start_of(unsigned processor) {
  return uint64_t{9} << kShift | processor;
}
constexpr uint64_t end_of(unsigned processor) {
  return uint64_t{10} << kShift | processor;
}
// Of mg_release() and mg_acquire().
inline constexpr uint64_t kEverybody = uint64_t{11} << kShift;
// Of every second episode of a barrier.
constexpr uint64_t episode_of(uint64_t barrier, unsigned parity) {
  return uint64_t{12 + parity} << kShift | (barrier & ((uint64_t{1} << kShift) - 1));
}
// What a thread beside processors is told by.
constexpr uint64_t thread(uint64_t address) {
  return uint64_t{14} << kShift | address;
}
}  // namespace object

class Order {
 public:
  // Clocks have `owners` entries.
  Order(RaceMemory& memory, unsigned owners) : memory_(memory), owners_(owners) {}

  [[nodiscard]] unsigned owners() const { return owners_; }
  [[nodiscard]] ClockView clock_of(const Owner& owner) const { return {owner.clock.data(), owners_}; }

  // The owner's first time, or its next one.
  void begin(Owner& owner, unsigned number) const;

  // What the owner has done is ordered before what those do that acquire from the object afterwards; with kReplace, no more of
  // what others have released to it.
  enum class Mode : uint8_t { kJoin, kReplace };
  void release(Owner& owner, uint64_t key, Mode mode = Mode::kJoin);
  void acquire(Owner& owner, uint64_t key);

  // A barrier of `count` owners. The owner arrives, and calls leave() with what it was given when it was let through.
  //
  //  B1  As long as no more than `count` owners have ever come, each comes once an episode. Then an arrival is one of episode
  //      (arrivals before it) / count here and in the program, and episodes have clocks for themselves, two in turn: nothing that an
  //      owner does after an episode is ordered before what another one does after the same.
  //  B2  The first arrival of episode e + 2 comes after the end of e + 1, to which each owner came after it had left e; so it may
  //      take the clock of e.
  //  B3  Otherwise who was in which episode is not known here. Then everybody acquires what all have ever released there; who
  //      leaves knows of the stranger, since that came to the program's barrier, if at all to this episode, after it had told.
  struct Arrival {
    uint64_t barrier = 0;
    uint64_t episode = 0;
  };
  [[nodiscard]] Arrival arrive(Owner& owner, uint64_t barrier, unsigned count);
  void leave(Owner& owner, const Arrival& arrival);

  // --- Atomics. The object is locked between these two, so its operations are in one order here and in the program.
  [[nodiscard]] SyncObject& begin_atomic(uint64_t address) MG_NO_THREAD_SAFETY_ANALYSIS;
  struct Atomic {
    bool acquires = false;
    bool releases = false;
    bool reads = false;   // the operation has read the object's value
    bool writes = false;  // it has changed it
  };
  // Called in this order, and the access is told between the two: it knows what the operation has acquired, and is handed on.
  void acquire_by_atomic(Owner& owner, SyncObject& object, const Atomic& operation) MG_NO_THREAD_SAFETY_ANALYSIS;
  void end_atomic(Owner& owner, SyncObject& object, const Atomic& operation) MG_NO_THREAD_SAFETY_ANALYSIS;
  void release_fence(Owner& owner);
  void acquire_fence(Owner& owner);

 private:
  [[nodiscard]] SyncObject& find(uint64_t key);
  [[nodiscard]] std::span<uint64_t> clock_at(SyncObject& object);
  void hand_on(ClockView clock, SyncObject& object, Mode mode);
  void next_time(Owner& owner) const;

  RaceMemory& memory_;
  const unsigned owners_;
};

}  // namespace multigrain::races
