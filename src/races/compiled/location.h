// What the detector of compiled calls knows of one location, and how an access changes that: FastTrack's transitions, as
// values. The state of a location is its last write and its reads since then. While the reads are ordered, the last one
// stands for all, and is one epoch; else they are a list.
//
//  L1  If nothing was told of the location before: an access is told if and only if an earlier one of the location conflicts
//      with it and does not happen before it. (Two accesses conflict if one of them writes and not both are atomic; plain
//      accesses alone, for the exception see below.)
//  L2  No read of the list happens before another one, unless the later one is atomic and the earlier one is not. So the list
//      has at most two entries an owner.
//  L3  What an owner has accessed at its time now need not be looked at again: a read after its own read or write of that
//      time, a write after its own write. What would race with the later one races with the earlier one, too.
//
// A write takes the place of the reads and of the write before: they happen before it, or a race was told. The exception: an
// atomic write takes the place of a plain one that happens before it, which then is not compared with atomic writes of owners
// that know of neither.
#pragma once

#include <cstdint>
#include <span>

#include "races/compiled/epochs.h"

namespace multigrain::races {

// An access that was made. `place` is where in the program, as the caller numbers it.
struct AccessRecord {
  Epoch epoch;
  uint64_t place = 0;
};

// All zeroes: no access is known.
struct Location {
  static constexpr uint64_t kList = uint64_t{1} << 62;

  uint64_t write = 0;  // an epoch's bits
  uint64_t write_place = 0;
  uint64_t read = 0;  // an epoch's bits; or kList and the number of a list
  uint64_t read_place = 0;

  friend bool operator==(const Location&, const Location&) = default;
};

// The access now: by the owner of `epoch`, at its time now.
struct AccessNow {
  Epoch epoch;
  uint64_t place = 0;
  bool is_write = false;
};

// L3: whether the access says nothing that is not known.
[[nodiscard]] inline bool is_known_now(const Location& location, const AccessNow& now) {
  const Epoch plain(now.epoch.owner(), now.epoch.time());
  const uint64_t own = now.epoch.bits();
  if (location.write == own || location.write == plain.bits()) return true;
  return !now.is_write && (location.read == own || location.read == plain.bits());
}

// Calls conflict(record, was_write) for each earlier access that races with this one.
//
// Lists keep the reads: entries(number) is a span of records, of which those without an epoch are free; make() returns the
// number of a list of such; grow(number) of one with the same entries and at least one free, in place of the old one; and
// drop(number) takes a list back. Numbers are below 2^62.
template <typename Lists, typename Conflict>
class LocationStep {
 public:
  LocationStep(Lists& lists, ClockView clock, const AccessNow& now, Conflict&& conflict)
      : lists_(lists), clock_(clock), now_(now), conflict_(conflict) {}

  void apply(Location& location) {
    if (is_known_now(location, now_)) return;
    compare({Epoch::of_bits(location.write), location.write_place}, true);
    if (now_.is_write)
      write(location);
    else
      read(location);
  }

 private:
  void compare(const AccessRecord& earlier, bool was_write) {
    if (!earlier.epoch || happens_before(earlier.epoch, clock_)) return;
    if (earlier.epoch.is_atomic() && now_.epoch.is_atomic()) return;
    conflict_(earlier, was_write);
  }

  void write(Location& location) {
    if ((location.read & Location::kList) != 0) {
      const uint64_t list = location.read & ~Location::kList;
      for (const AccessRecord& earlier : lists_.entries(list)) compare(earlier, false);
      lists_.drop(list);
    } else {
      compare({Epoch::of_bits(location.read), location.read_place}, false);
    }
    location = {.write = now_.epoch.bits(), .write_place = now_.place};
  }

  // Whether the read now says all that the earlier one says.
  [[nodiscard]] bool replaces(Epoch earlier) const {
    return happens_before(earlier, clock_) && (earlier.is_atomic() || !now_.epoch.is_atomic());
  }

  void read(Location& location) {
    if ((location.read & Location::kList) == 0) {
      const AccessRecord earlier{Epoch::of_bits(location.read), location.read_place};
      if (!earlier.epoch || replaces(earlier.epoch)) {
        location.read = now_.epoch.bits();
        location.read_place = now_.place;
        return;
      }
      const uint64_t list = lists_.make();
      const std::span<AccessRecord> entries = lists_.entries(list);
      entries[0] = earlier;
      entries[1] = {now_.epoch, now_.place};
      location.read = Location::kList | list;
      location.read_place = 0;
      return;
    }
    const uint64_t list = location.read & ~Location::kList;
    AccessRecord* free = nullptr;
    bool is_there = false;
    for (AccessRecord& entry : lists_.entries(list)) {
      if (entry.epoch == now_.epoch) is_there = true;
      if (entry.epoch && entry.epoch != now_.epoch && replaces(entry.epoch)) entry = {};
      if (!entry.epoch && free == nullptr) free = &entry;
    }
    if (is_there) return;
    if (free == nullptr) {
      const uint64_t larger = lists_.grow(list);
      location.read = Location::kList | larger;
      for (AccessRecord& entry : lists_.entries(larger))
        if (!entry.epoch && free == nullptr) free = &entry;
    }
    *free = {now_.epoch, now_.place};
  }

  Lists& lists_;
  const ClockView clock_;
  const AccessNow now_;
  Conflict& conflict_;
};

template <typename Lists, typename Conflict>
void access_location(Location& location, Lists& lists, ClockView clock, const AccessNow& now, Conflict&& conflict) {
  LocationStep<Lists, Conflict>(lists, clock, now, std::forward<Conflict>(conflict)).apply(location);
}

}  // namespace multigrain::races
