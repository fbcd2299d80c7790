#include "timeline/timeline.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace multigrain::timeline {
namespace {

constinit Options g_options{};
constinit std::span<Track> g_tracks{};
constinit std::atomic<uint32_t> g_taken{0};

// Returns zeroed memory, which costs nothing until it is used.
Result<void*> memory_for(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, fmt::format("cannot map {} bytes for a time line", bytes));
  return memory;
}

// Adds to a word that only the calling thread and its signal handlers change, and returns what it was. It is one instruction, so that
// a signal falls before it or after it; and not a locked one, which would take ten times as long.
uint32_t add_to_own(std::atomic<uint32_t>& word, uint32_t n) {
  asm volatile("xaddl %0, %1" : "+r"(n), "+m"(word) : : "cc", "memory");
  return n;
}

bool is_message(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kHandler;
}

}  // namespace

constinit thread_local Track* internal::t_track = nullptr;

void Track::bind(std::span<Event> events, uint64_t first_least) {
  events_ = events.data();
  capacity_ = static_cast<uint32_t>(events.size());
  first_least_ = first_least;
}

// Both ends of a message are kept by its number.
bool Track::is_sampled_message(const Event& event) const {
  return is_message(event.kind) && event.key % stride_ == 0;
}

bool Track::takes(const Event& event) const {
  return is_sampled_message(event) || (event.kind != Kind::kSend && event.duration >= least());
}

bool Track::is_turn_of(const Event& event) {
  return one_in() == 1 || is_sampled_message(event) || ++candidates_ % one_in() == 0;
}

// The order of what follows is that of one thread and its signal handlers: a handler runs between two of these instructions,
// and is done before the next. A place in the track is taken by one addition, so no two calls write the same one; and only
// the outermost call makes room, when no other call has a place that it has yet to fill.
void Track::add(const Event& event) {
  if (!takes(event) || !is_turn_of(event)) return leave_out(1);
  const uint32_t outer = add_to_own(inside_, 1);
  if (size_.load(std::memory_order_relaxed) >= capacity_ && outer == 0) make_room();
  // When there was no room, the track takes less than before.
  const uint32_t place = takes(event) ? add_to_own(size_, 1) : capacity_;
  if (place < capacity_)
    events_[place] = event;
  else
    leave_out(1);
  add_to_own(inside_, ~uint32_t{0});
}

// Afterwards half of the places are free.
void Track::make_room() {
  uint32_t kept = std::min(size_.load(std::memory_order_relaxed), capacity_);
  const uint32_t before = kept;
  while (kept > capacity_ / 2) {
    stride_ *= 2;
    const uint64_t longer = least() == 0 ? first_least_ : 2 * least();
    const std::span<Event> events(events_, kept);
    // This is what the length decides about, and how much of it is longer.
    const auto intervals = std::ranges::count_if(
        events, [this](const Event& event) { return event.kind != Kind::kSend && !is_sampled_message(event); });
    const auto long_ones = std::ranges::count_if(events, [&](const Event& event) {
      return event.kind != Kind::kSend && !is_sampled_message(event) && event.duration >= longer;
    });
    if (intervals == 0 || 8 * long_ones >= intervals) {
      if (intervals != 0) least_.store(longer, std::memory_order_relaxed);
      kept -= static_cast<uint32_t>(
          std::ranges::remove_if(events, [this](const Event& event) { return !takes(event); }).size());
    } else {
      one_in_.store(2 * one_in(), std::memory_order_relaxed);
      uint64_t number = 0;
      kept -= static_cast<uint32_t>(std::ranges::remove_if(events, [&](const Event& event) {
                                      return !takes(event) || (!is_sampled_message(event) && ++number % 2 == 0);
                                    }).size());
    }
  }
  leave_out(before - kept);
  size_.store(kept, std::memory_order_relaxed);
}

std::span<const Event> Track::events() const {
  return {events_, std::min(size_.load(std::memory_order_acquire), capacity_)};
}

Status start(const Options& options) {
  const auto events = memory_for(size_t{options.tracks} * options.events * sizeof(Event));
  if (!events) return tl::unexpected(events.error());
  const auto tracks = memory_for(size_t{options.tracks} * sizeof(Track));
  if (!tracks) return tl::unexpected(tracks.error());
  g_options = options;
  g_tracks = {static_cast<Track*>(*tracks), options.tracks};
  const auto least = static_cast<uint64_t>(std::max(1.0, options.units_per_us));
  for (size_t i = 0; i < g_tracks.size(); ++i)
    (new (&g_tracks[i]) Track)->bind({static_cast<Event*>(*events) + i * options.events, options.events}, least);
  return {};
}

bool on() {
  return !g_tracks.empty();
}

const Options& options() {
  return g_options;
}

void begin_track() {
  if (!on() || internal::t_track != nullptr) return;
  const uint32_t place = g_taken.fetch_add(1, std::memory_order_relaxed);
  if (place >= g_tracks.size()) return;
  g_tracks[place].name(Owner::kThread, static_cast<uint32_t>(syscall(SYS_gettid)));
  internal::t_track = &g_tracks[place];
}

void end_track() {
  internal::t_track = nullptr;
}

std::span<Track> tracks() {
  return g_tracks.first(std::min<size_t>(g_taken.load(std::memory_order_relaxed), g_tracks.size()));
}

uint32_t threads_without_track() {
  const uint32_t taken = g_taken.load(std::memory_order_relaxed);
  return taken - static_cast<uint32_t>(tracks().size());
}

}  // namespace multigrain::timeline
