#include "sync/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "profile/this_thread.h"

namespace multigrain {
namespace {

// How long a willing processor waits for the others. Those that lock every few microseconds come by sooner if they run.
constexpr Nanoseconds kPatience = 200'000;
// A node asks for the next one when the last has taken no more than this part of the time since it began.
constexpr Nanoseconds kPartOfTime = 10;
// After one that is called off a node asks for none for so many times the patience. Each further one doubles that time, so many times.
constexpr Nanoseconds kPauseInVain = 100;
constexpr uint32_t kMostInVain = 10;
// Where rounds were called off, a processor looks at the clock in one of so many calls.
constexpr uint32_t kCallsForALook = 64;
// How often a waiting processor looks, once it has polled as long as the wait policy says.
constexpr std::chrono::microseconds kLooksEvery{20};
constexpr Nanoseconds kNoEnd = UINT64_MAX;

}  // namespace

Rendezvous::Rendezvous(SyncHost& host, Fabric& fabric, unsigned processors_per_node, const std::atomic<uint32_t>& lost)
    : host_(host),
      fabric_(fabric),
      own_(fabric, true),
      lost_(lost),
      processors_(processors_per_node),
      all_(uint64_t{fabric.nodes()} * processors_per_node) {}

// Waits until `done()`, no longer than that. Returns whether it is.
template <typename Done>
bool Rendezvous::wait(Done&& done, Nanoseconds most) {
  if (done()) return true;
  PollingScope polling(fabric_);
  const Nanoseconds began = monotonic_ns();
  const uint64_t spins_to = ticks() + host_.wait_policy().spin_ticks;
  while (true) {
    fabric_.poll();
    host_.help();
    if (done()) return true;
    if (monotonic_ns() - began > most) return false;
    if (ticks() < spins_to) {
      cpu_relax();
      continue;
    }
    polling.pause();
    std::this_thread::sleep_for(kLooksEvery);
    polling.resume();
  }
}

bool Rendezvous::change(std::optional<uint64_t> (RendezvousWord::*how)(uint64_t, uint64_t) const, uint64_t round) {
  while (true) {
    const uint64_t now = read(words::kRendezvousRound);
    const std::optional<uint64_t> next = (RendezvousWord(now).*how)(round, all_);
    if (!next) return false;
    if (fabric_.compare_and_swap(kManager, SegmentId::kWords, words::kRendezvousRound, now, *next) == now) return true;
  }
}

// Asks all nodes for a rendezvous, if it is time.
bool Rendezvous::ask() {
  static constinit thread_local uint32_t calls = 0;
  if (in_vain_.load(std::memory_order_relaxed) != 0 && ++calls % kCallsForALook != 0) return false;
  Nanoseconds next = next_.load(std::memory_order_relaxed);
  const Nanoseconds now = monotonic_ns();
  // Another processor of the node may be asking.
  if (now < next || !next_.compare_exchange_strong(next, now + kPatience, std::memory_order_relaxed)) return false;
  const uint64_t round = RendezvousWord(read(words::kRendezvousRound)).round();
  for (uint16_t n = 0; n < fabric_.nodes(); ++n)
    fabric_.fetch_and_set(NodeId(n), SegmentId::kWords, words::kRendezvousAsked, round + 1);
  return true;
}

// Returns when the caller began to wait, if all processors of the run are willing to meet, and so the caller must.
std::optional<Nanoseconds> Rendezvous::agree() {
  if (own_.load(words::kRendezvousAsked) <= done_.load(std::memory_order_relaxed) && !ask()) return std::nullopt;
  const uint64_t asked = own_.load(words::kRendezvousAsked);
  if (asked <= done_.load(std::memory_order_relaxed) || !host_.may_meet()) return std::nullopt;
  const uint64_t round = asked - 1;
  host_.enter(SyncActivity::kBarrier);
  const Nanoseconds began = monotonic_ns();
  const bool is_met = change(&RendezvousWord::add, round) && await_all(round);
  // Another processor of the node may have heard of a later round's end already.
  uint64_t done = done_.load(std::memory_order_relaxed);
  while (done < asked && !done_.compare_exchange_weak(done, asked, std::memory_order_relaxed)) {
  }
  if (is_met) return began;
  const uint32_t in_vain = std::min(in_vain_.load(std::memory_order_relaxed) + 1, kMostInVain);
  in_vain_.store(in_vain, std::memory_order_relaxed);
  next_.store(monotonic_ns() + (kPatience * kPauseInVain << in_vain), std::memory_order_relaxed);
  host_.leave();
  return std::nullopt;
}

// The caller is willing. Returns whether all are.
bool Rendezvous::await_all(uint64_t round) {
  const auto is_settled = [&] {
    const RendezvousWord now(read(words::kRendezvousRound));
    return now.round() != round || now.willing() == all_;
  };
  if (!wait(is_settled, kPatience) && change(&RendezvousWord::call_off, round)) return false;
  // Another processor has called it off, or all have come.
  return RendezvousWord(read(words::kRendezvousRound)).round() == round;
}

// All processors of the node have come, and what they have written is released.
void Rendezvous::arrive() {
  here_.store(0, std::memory_order_relaxed);
  fabric_.fetch_add(kManager, SegmentId::kWords, words::kRendezvousArrived, 1);
}

// Waits for the other nodes. All processors of the run have been seen to be willing when the last of them has arrived, so the round may
// end then.
void Rendezvous::meet(uint64_t before, Nanoseconds began) {
  const uint64_t target = (before + 1) * fabric_.nodes();
  static_cast<void>(wait([&] { return read(words::kRendezvousArrived) >= target; }, kNoEnd));
  host_.acquire_at_barrier();
  met_.store(before + 1, std::memory_order_relaxed);
  const uint64_t round = RendezvousWord(read(words::kRendezvousRound)).round();
  static_cast<void>(change(&RendezvousWord::end, round));
  this_profile().count(Counter::kRendezvous);
  in_vain_.store(0, std::memory_order_relaxed);
  const Nanoseconds now = monotonic_ns();
  cost_.store(static_cast<uint32_t>(std::clamp<Nanoseconds>((now - began) / 100, kLeastCost, UINT32_MAX)),
              std::memory_order_relaxed);
  next_.store(now + (now - began) * kPartOfTime, std::memory_order_relaxed);
  host_.leave();
}

}  // namespace multigrain
