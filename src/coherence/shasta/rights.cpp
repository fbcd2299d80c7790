// This part of the driver reads and writes the words of the line table that belong to a block. They have the rights,
// which checks look at, and at the home the directory entry of a block at rest. Rights are taken under the hazards of
// the node's threads.
#include <sched.h>

#include <bit>
#include <utility>

#include "base/clock.h"
#include "base/steps.h"
#include "coherence/shasta/driver.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {
namespace {

constexpr uint64_t kRights = MG_FINE_EXCLUSIVE;
constexpr unsigned kOwnerShift = 2;
static_assert(kMaxNodes <= 64 - MG_FINE_HOLDERS_SHIFT && MG_FINE_HOLDERS_SHIFT - kOwnerShift >= 6);

uint64_t bits_of(Right right) {
  return right == Right::kNone ? 0 : right == Right::kRead ? MG_FINE_READABLE : MG_FINE_EXCLUSIVE;
}

}  // namespace

Block Driver::at_rest(const BlockAt& at) const {
  const uint64_t now = word(at.first).load(std::memory_order_relaxed);
  Block block;
  if (at.home != self_) {
    block.state = now == kExclusive ? State::kExclusive : now == kReadable ? State::kShared : State::kInvalid;
    return block;
  }
  if (now == 0 || now == kExclusive) return initial_block(context_of(at));
  block.owner = NodeId(static_cast<uint16_t>(now >> kOwnerShift & 63));
  for (uint64_t rest = now >> MG_FINE_HOLDERS_SHIFT; rest != 0; rest &= rest - 1)
    block.sharers.insert(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
  block.state = block.sharers.contains(self_) ? State::kShared : State::kInvalid;
  return block;
}

// Lets checks use what the block allows now, and keeps in its words all that there is to know of a block at rest.
void Driver::publish(const BlockAt& at, const Block& block) {
  // If only messages have come for a page at home here, its blocks give no rights before a processor touches the page.
  // The touch publishes them when it gets the lock. So `touched` is read with the lock held: a handler that had read it
  // before it got the lock could take away what the touch has published since.
  const std::atomic<bool>& touched = pages_[page_of(at.first)].touched;
  MULTIGRAIN_STEP(&touched);
  const uint64_t rights =
      touched.load(std::memory_order_acquire) ? bits_of(inline_right(block, context_of(at), node_of_transitions())) : 0;
  const uint64_t before = word(at.first).load(std::memory_order_relaxed);
  uint64_t first = rights;
  if (at.home == self_ && block.is_at_rest() && block.state != State::kExclusive)
    first |= uint64_t{block.owner.value} << kOwnerShift | block.sharers.bits() << MG_FINE_HOLDERS_SHIFT;
  // lower() has taken the rights that are taken away.
  MG_CHECK((before & kRights) <= rights, at.first, before, rights);
  if (first != before) {
    MULTIGRAIN_STEP(&word(at.first));
    word(at.first).store(first, std::memory_order_release);
  }
  if ((before & kRights) == rights) return;
  for (uint64_t line = at.first + 1; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_release);
  }
}

// Takes rights to the block away, down to `rights`. Returns true if no thread uses those rights any more: every hazard
// over the block that was published then has been cleared. Returns false if some are still published after a bounded
// number of looks.
bool Driver::lower(const BlockAt& at, uint64_t rights, UnderHazards then) {
  virtual_time::spend(&MachineCosts::downgrade);
  for (uint64_t line = at.first; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  // Either a processor sees the changed words, or its hazard is seen here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  MULTIGRAIN_STEP(&lines_.hazards.rights_epoch());
  lines_.hazards.invalidate_rights_cache();
  return have_cleared(at, rights == 0, then);
}

// Returns whether the hazards over the block that are published now have been cleared.
bool Driver::have_cleared(const BlockAt& at, bool loads, UnderHazards then) {
  constexpr unsigned kRelaxes = 200;
  constexpr unsigned kLooks = MULTIGRAIN_SPINS(220);
  // Where threads take turns, none clears its hazard while this one looks.
  unsigned looks = virtual_time::takes_turns() ? kLooks : 0;
  bool found = false;
  bool cleared = true;
  lines_.hazards.for_each_covering(at.first, at.lines, loads, [&](const HazardSlots::Published& seen) {
    lock_.assume_held();
    if (!std::exchange(found, true)) {
      count(Counter::kHazardWaits);
      lines_.hazards.waits().fetch_add(1, std::memory_order_relaxed);
    }
    for (; looks != kLooks; ++looks) {
      if (HazardSlots::has_cleared(seen)) return;
      if (looks < kRelaxes) {
        cpu_relax();
      } else {
        sched_yield();
      }
    }
    if (then == UnderHazards::kDefers) awaited_[awaited_count_++] = seen;
    cleared = false;
  });
  return cleared;
}

}  // namespace multigrain::shasta
