// The time line of a run (mgrun --timeline): what each thread of a node did when, kept in memory until the run ends.
//
// A thread that is measured has a track, in which it writes events: intervals in a category, calls that wait, faults,
// messages. Memory is bounded: a track that is full forgets its shortest intervals, and from then on takes only longer
// ones, so that what is left shows where the time went however long the run is; or, where hardly any is longer, it forgets
// every second one, and from then on takes one in two. What it leaves out, and how many events those were, is part of the
// result. Of messages it keeps every second one, then every fourth, and so on, by the messages' numbers, so that mostly both
// ends of a message are kept, or neither.
//
// Only a track's thread writes it, in its signal handlers, too. Nothing here allocates or locks but start().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace multigrain::timeline {

enum class Kind : uint8_t {
  kCategory,  // an interval in the Category `what` (profile/profile.h)
  kCall,   // an interval in the Call `what` (status/node_status.h): `key` is its object, `site` is where it returns to
  kFault,  // an interval in the handler of a fault: `what` is 1 for a write, `key` the address, `site` the instruction
  kHandler,  // an interval in a message's handler: `what` is the message's type, `peer` sent it, `key` is its number
  kSend,     // a moment: a message of the type `what` and of `bytes` was sent to `peer`; `key` is its number
};
inline constexpr unsigned kKinds = 5;

// One event. Times are in the units of Clock. The number of a message counts those that one node has sent to another.
struct Event {
  uint64_t begin = 0;
  uint64_t duration = 0;
  uint64_t key = 0;
  uint64_t site = 0;
  Kind kind = Kind::kCategory;
  uint8_t what = 0;
  uint16_t peer = 0;
  uint32_t bytes = 0;
};
static_assert(sizeof(Event) == 40);

enum class Owner : uint32_t { kNone, kProcessor, kService, kThread };

class Track {
 public:
  // --- For its thread alone. Async-signal-safe.

  // The thread has left the category `previous` at `now`. If that is a category that time lines show, this is an event.
  void switched(uint8_t previous, bool is_shown, uint64_t now) {
    const uint64_t since = since_;
    since_ = now;
    if (is_shown && since != 0 && now > since) add({.begin = since, .duration = now - since, .what = previous});
  }
  // Notes an event, unless the track takes none as short, or not this message.
  void add(const Event& event);

  // --- For any thread. What it reads while the owner writes may be torn.

  // Says whose track this is; the number is that of a processor in the machine, or of a thread as the system counts them.
  void name(Owner owner, uint32_t number) {
    number_.store(number, std::memory_order_relaxed);
    owner_.store(owner, std::memory_order_release);
  }
  [[nodiscard]] Owner owner() const { return owner_.load(std::memory_order_acquire); }
  [[nodiscard]] uint32_t number() const { return number_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::span<const Event> events() const;
  // Returns the shortest interval that the track still takes.
  [[nodiscard]] uint64_t least() const { return least_.load(std::memory_order_relaxed); }
  // Returns in how many intervals of that length the track has one.
  [[nodiscard]] uint64_t one_in() const { return one_in_.load(std::memory_order_relaxed); }
  // Returns how many events the track has left out.
  [[nodiscard]] uint64_t left_out() const { return left_out_.load(std::memory_order_relaxed); }

  // Gives the track its memory. `first_least` is the shortest interval that it takes when it has been full once, not 0.
  void bind(std::span<Event> events, uint64_t first_least);

 private:
  [[nodiscard]] bool is_sampled_message(const Event& event) const;
  [[nodiscard]] bool takes(const Event& event) const;
  [[nodiscard]] bool is_turn_of(const Event& event);
  void make_room();
  void leave_out(uint64_t events) {
    left_out_.store(left_out_.load(std::memory_order_relaxed) + events, std::memory_order_relaxed);
  }

  Event* events_ = nullptr;
  uint32_t capacity_ = 0;
  uint64_t first_least_ = 1;
  std::atomic<uint32_t> size_{0};
  // How many calls of add() are under way: a signal handler interrupts that of its thread.
  std::atomic<uint32_t> inside_{0};
  uint64_t since_ = 0;
  std::atomic<uint64_t> least_{0};
  std::atomic<uint64_t> left_out_{0};
  uint64_t stride_ = 1;  // of messages' numbers, a power of two
  std::atomic<uint64_t> one_in_{1};
  uint64_t candidates_ = 0;  // intervals that were long enough since one_in_ has been more than 1
  std::atomic<Owner> owner_{Owner::kNone};
  std::atomic<uint32_t> number_{0};
};

struct Options {
  uint32_t tracks = 1;
  uint32_t events = 4096;       // in each track
  uint64_t (*now)() = nullptr;  // the time; async-signal-safe
  double units_per_us = 1000;   // of that time
};

// Turns time lines on in this process. Called once, before any thread has a track. Errors: the system gives no memory.
Status start(const Options& options);
// Returns whether start() was called.
[[nodiscard]] bool on();
[[nodiscard]] const Options& options();
// Gives the calling thread a track, unless it has one, all are taken, or time lines are off; its owner is kThread.
void begin_track();
// The calling thread has no track any more. What it has written stays.
void end_track();
// Returns the tracks that threads have, or had.
std::span<Track> tracks();
// Returns how many threads found no track.
uint32_t threads_without_track();

namespace internal {
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Track* t_track;
}
// Returns the calling thread's track; nullptr if it has none. Async-signal-safe.
inline Track* this_track() {
  return internal::t_track;
}

// An interval of the calling thread, from the object's construction to its end.
class Interval {
 public:
  // `event` is all but the times.
  explicit Interval(const Event& event) : track_(this_track()) {
    if (track_ == nullptr) [[likely]]
      return;
    event_ = event;
    event_.begin = options().now();
  }
  ~Interval() {
    if (track_ == nullptr) [[likely]]
      return;
    const uint64_t now = options().now();
    // In virtual time a processor's clock may be set to an earlier time when it begins another function.
    event_.duration = now > event_.begin ? now - event_.begin : 0;
    track_->add(event_);
  }
  Interval(const Interval&) = delete;
  Interval& operator=(const Interval&) = delete;

 private:
  Track* const track_;
  Event event_;
};

}  // namespace multigrain::timeline
