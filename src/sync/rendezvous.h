// A rendezvous: a barrier of all processors that the program does not know of, for a page protocol that has something to do which
// takes one (Protocol::lost_without_barrier). It happens where processors come by anyway: at locks. A program that locks seldom has
// little to gain, and a processor that does not come by in time lets the others go on: then there is none.
//
// To a program it is a release and an acquire that it did not ask for, which may come at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "fabric/fabric.h"
#include "fabric/own_words.h"
#include "sync/host.h"
#include "sync/rendezvous_engine.h"
#include "sync/words.h"

namespace multigrain {

class Rendezvous {
 public:
  // `lost`: how much it has cost this node, in tenths of a microsecond, that there was no barrier since the last one
  // (Protocol::lost_without_barrier). All outlive this object.
  Rendezvous(SyncHost& host, Fabric& fabric, unsigned processors_per_node, const std::atomic<uint32_t>& lost);

  // Called by a processor that is in the middle of no access to shared memory, and holds no lock of the runtime. Takes part in a
  // rendezvous if a node wants one; costs three loads if none does. `let_go()` lets go of locks whose release was deferred.
  template <typename LetGo>
  void poll(LetGo&& let_go) {
    if (lost_.load(std::memory_order_relaxed) < cost_.load(std::memory_order_relaxed) &&
        own_.load(words::kRendezvousAsked) <= done_.load(std::memory_order_relaxed)) [[likely]]
      return;
    // Until the caller takes part in the next one there is none, so this does not change before all have met.
    const uint64_t before = met_.load(std::memory_order_relaxed);
    const std::optional<Nanoseconds> began = agree();
    if (!began) return;
    host_.drain_store_buffer();
    if (is_last_here()) {
      let_go();
      host_.release_at_barrier();
      arrive();
    }
    meet(before, *began);
  }

 private:
  static constexpr NodeId kManager{0};

  [[nodiscard]] std::optional<Nanoseconds> agree();
  bool ask();
  [[nodiscard]] bool await_all(uint64_t round);
  bool change(std::optional<uint64_t> (RendezvousWord::*how)(uint64_t, uint64_t) const, uint64_t round);
  [[nodiscard]] bool is_last_here() { return here_.fetch_add(1, std::memory_order_acq_rel) + 1 == processors_; }
  void arrive();
  void meet(uint64_t before, Nanoseconds began);
  uint64_t read(uint64_t offset) { return fabric_.fetch_add(kManager, SegmentId::kWords, offset, 0); }
  template <typename Done>
  bool wait(Done&& done, Nanoseconds most);

  SyncHost& host_;
  Fabric& fabric_;
  OwnWords own_;
  const std::atomic<uint32_t>& lost_;
  const unsigned processors_;  // of this node
  const uint64_t all_;         // of the run

  std::atomic<uint64_t> done_{0};     // this node has heard of the ends of so many rounds
  std::atomic<uint64_t> met_{0};      // in so many rounds all have met
  std::atomic<uint32_t> here_{0};     // processors of this node that have come to the one that is under way
  std::atomic<Nanoseconds> next_{0};  // this node asks for none before
  std::atomic<uint32_t> in_vain_{0};  // since the last one; no more than kMostInVain
  // What the last one has cost a processor, in tenths of a microsecond: this node wants another one when it has lost as much.
  static constexpr uint32_t kLeastCost = 3000;
  std::atomic<uint32_t> cost_{kLeastCost};
};

}  // namespace multigrain
