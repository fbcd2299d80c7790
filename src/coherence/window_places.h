// Where the windows of this node's threads are (docs/fine-grain.md): a line of memory for each thread, in the kWords
// segment, so that a requester on another node can read them all with one get.
//
//   words::kWindows         one word: how many places there have been; it only grows
//   words::kLosses          one word: the node's losses (fine_grain.h)
//   + 64 * (1 + place)      MG_FINE_WINDOWS words
//
// A thread's place is its own from before it runs the program's code until it has ended, and then another's. A window
// that a requester must see was published after its thread's place was counted, so who reads the count and then the
// places sees it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fine_grain.h"
#include "base/ids.h"
#include "base/spin_lock.h"
#include "coherence/steps.h"
#include "coherence/window.h"
#include "fabric/mapped_object.h"
#include "fabric/words.h"

namespace multigrain {

static_assert(MG_FINE_WINDOWS * sizeof(uint64_t) == words::kBytesPerPlace);

class WindowPlaces : public MappedObject {
 public:
  // `words`: the node's own kWords segment (Fabric::own_segment), all zero where the places are.
  WindowPlaces(NodeId self, std::span<std::byte> words);

  // A place, closed. Ends the run with a sentence if more threads live than there are places.
  uint64_t* take();
  // Gives it back, closing its windows.
  void give_back(uint64_t* place);

  [[nodiscard]] unsigned index_of(const uint64_t* place) const {
    return static_cast<unsigned>((place - first_) / MG_FINE_WINDOWS);
  }
  // Whether the place is one of these.
  [[nodiscard]] bool contains(const uint64_t* place) const {
    return place >= first_ && place < first_ + words::kWindowPlaces * MG_FINE_WINDOWS;
  }

  // Waits until no window of this node that is open now covers one of `lines` lines from `first` on: one of stores, or
  // any if `loads` says so. The caller has changed the words of these lines, and a fence stands between that and this: a
  // window that is opened later finds them changed, and is not waited for. `pause` is called in between.
  template <typename Pause>
  void wait_until_closed(uint64_t first, uint64_t lines, bool loads, Pause&& pause) const {
    const uint64_t places = count_.load(std::memory_order_seq_cst);
    for (uint64_t i = 0; i < places * MG_FINE_WINDOWS; ++i) {
      const std::atomic_ref<uint64_t> window(first_[i]);
      MULTIGRAIN_STEP(&first_[i]);
      const uint64_t seen = window.load(std::memory_order_seq_cst);
      if (!covers(seen, first, lines, loads)) continue;
      while (true) {
        MULTIGRAIN_CHANGE_STEP(&first_[i], seen);
        if (window.load(std::memory_order_seq_cst) != seen) break;
        pause();
      }
    }
  }

  // Voids what this node's processors remember of its lines, if they do. Between a change of lines' words for the worse
  // and wait_until_closed(): who has read the old value published a window before, and is waited for.
  void forget();
  // Lives as long as this.
  [[nodiscard]] std::atomic<uint64_t>& losses() const { return losses_; }

  // Gives the calling thread a place, or takes the place from it, which it has if it has one of these.
  void bind();
  void unbind();
  // Windows for the handlers of signals that interrupt the calling thread: a place of their own from the first time on, or,
  // while there is none to be had, windows that no requester reads. Async-signal-safe.
  uint64_t* place_for_handlers();

 private:
  uint64_t* take_locked();

  std::atomic<uint64_t>& count_;   // exported
  std::atomic<uint64_t>& losses_;  // exported
  uint64_t* const first_;
  const NodeId self_;
  SpinLock lock_;
  unsigned free_count_ = 0;
  std::array<uint16_t, words::kWindowPlaces> free_{};
};

// A value for a node's losses that no node has given any before: by the given one.
uint64_t new_losses(NodeId by);

// Whether the calling thread has a window open, or a handler of a signal runs and the code that it interrupted has.
[[nodiscard]] bool has_open_window();
// The calling thread has no place in memory that others read, as in a forked child.
void forget_windows();

}  // namespace multigrain
