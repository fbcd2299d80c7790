#include "coherence/window_places.h"

#include <mutex>
#include <utility>

#include "base/error.h"

namespace multigrain {
namespace {

// The windows of threads that have given back their place, and in forked children. Nobody reads them.
alignas(64) constinit uint64_t g_nowhere[MG_FINE_WINDOWS];

[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t* t_place_for_handlers = nullptr;

}  // namespace

WindowPlaces::WindowPlaces(NodeId self, std::span<std::byte> words)
    : count_(*reinterpret_cast<std::atomic<uint64_t>*>(words.data() + words::kWindows)),
      losses_(*reinterpret_cast<std::atomic<uint64_t>*>(words.data() + words::kLosses)),
      first_(reinterpret_cast<uint64_t*>(words.data() + words::kWindows + words::kBytesPerPlace)),
      self_(self) {
  MG_CHECK(words.size() >= words::kBytes, words.size());
}

uint64_t* WindowPlaces::take() {
  const std::lock_guard hold(lock_);
  uint64_t* const place = take_locked();
  if (place == nullptr) die(1, "more threads live on this node than it has windows for:", words::kWindowPlaces);
  return place;
}

uint64_t* WindowPlaces::take_locked() {
  if (free_count_ != 0) return first_ + size_t{free_[--free_count_]} * MG_FINE_WINDOWS;
  const uint64_t next = count_.load(std::memory_order_relaxed);
  if (next == words::kWindowPlaces) return nullptr;
  // Before any window is published there.
  count_.store(next + 1, std::memory_order_seq_cst);
  return first_ + next * MG_FINE_WINDOWS;
}

void WindowPlaces::give_back(uint64_t* place) {
  MG_CHECK(contains(place));
  for (unsigned i = 0; i < MG_FINE_WINDOWS; ++i)
    std::atomic_ref<uint64_t>(place[i]).store(0, std::memory_order_release);
  const std::lock_guard hold(lock_);
  free_[free_count_++] = static_cast<uint16_t>(index_of(place));
}

void WindowPlaces::forget() {
  if ((losses_.load(std::memory_order_seq_cst) & MG_FINE_REMEMBERED) != 0)
    losses_.exchange(new_losses(self_), std::memory_order_seq_cst);
}

uint64_t new_losses(NodeId by) {
  static constinit std::atomic<uint64_t> last{0};
  return (uint64_t{by.value} + 1) << 48 | (last.fetch_add(1, std::memory_order_relaxed) + 1) << 2;
}

void WindowPlaces::bind() {
  if (!contains(__multigrain_windows)) __multigrain_windows = take();
}

void WindowPlaces::unbind() {
  uint64_t* const place = __multigrain_windows;
  if (!contains(place)) return;
  __multigrain_windows = g_nowhere;
  give_back(place);
  if (t_place_for_handlers != nullptr) give_back(std::exchange(t_place_for_handlers, nullptr));
}

uint64_t* WindowPlaces::place_for_handlers() {
  // The thread may have been interrupted with the lock held.
  if (t_place_for_handlers == nullptr && lock_.try_lock()) {
    t_place_for_handlers = take_locked();
    lock_.unlock();
  }
  return t_place_for_handlers != nullptr ? t_place_for_handlers : g_nowhere;
}

bool has_open_window() {
  uint64_t all = 0;
  for (unsigned i = 0; i < MG_FINE_WINDOWS; ++i)
    all |= std::atomic_ref<uint64_t>(__multigrain_windows[i]).load(std::memory_order_relaxed);
  if (__multigrain_interrupted != nullptr)
    for (unsigned i = 0; i < MG_FINE_WINDOWS; ++i)
      all |= std::atomic_ref<uint64_t>(__multigrain_interrupted[i]).load(std::memory_order_relaxed);
  return all != 0;
}

void forget_windows() {
  __multigrain_windows = g_nowhere;
}

}  // namespace multigrain
