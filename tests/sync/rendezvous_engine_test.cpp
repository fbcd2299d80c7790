// The agreement of a rendezvous, in every order of the steps of its processors (rendezvous_engine.h, R1 and R2).
#include "sync/rendezvous_engine.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace multigrain {
namespace {

constexpr unsigned kProcessors = 3;
constexpr uint64_t kRounds = 4;

// Of a processor: what it does next. It has read the word, and tries to change it, or it waits.
enum class At : uint8_t { kAway, kAdds, kWaits, kCallsOff, kMeets, kEnds };

struct Processor {
  At at = At::kAway;
  uint64_t round = 0;  // of the rendezvous in which it takes part
  uint64_t seen = 0;   // the word that it has read
  uint8_t met = 0;     // in so many rendezvous
  auto operator<=>(const Processor&) const = default;
};

struct State {
  uint64_t word = 0;
  uint8_t here = 0;  // processors that have come to the rendezvous that is under way
  std::array<Processor, kProcessors> processors{};
  auto operator<=>(const State&) const = default;
};

class Exploration {
 public:
  void run() {
    visit({});
    while (!open_.empty()) {
      const State state = open_.back();
      open_.pop_back();
      for (unsigned p = 0; p < kProcessors; ++p) step(state, p);
    }
  }
  [[nodiscard]] size_t states() const { return seen_.size(); }
  [[nodiscard]] uint8_t most_met() const { return most_met_; }

 private:
  void visit(const State& state) {
    if (!seen_.insert(state).second) return;
    open_.push_back(state);
    uint8_t least = UINT8_MAX, most = 0;
    for (const Processor& processor : state.processors) {
      least = std::min(least, processor.met);
      most = std::max(most, processor.met);
    }
    most_met_ = std::max(most_met_, most);
    // Nobody goes on from a rendezvous before all have come to it: then nobody is a whole one behind, unless it is on its way out.
    ASSERT_LE(most - least, 1);
    for (const Processor& processor : state.processors) {
      const bool may_be_behind = processor.at == At::kMeets || processor.at == At::kWaits;
      ASSERT_TRUE(processor.met == most || may_be_behind);
    }
  }

  // `how` is tried with the word that was read; another processor may have changed it since.
  template <typename How>
  bool change(State& next, unsigned p, How&& how, bool& refused) {
    Processor& self = next.processors[p];
    const auto to = how(RendezvousWord(self.seen));
    refused = !to.has_value();
    if (refused) return false;
    if (next.word != self.seen) {
      self.seen = next.word;  // and tries again
      return false;
    }
    next.word = *to;
    return true;
  }

  void step(const State& state, unsigned p) {
    State next = state;
    Processor& self = next.processors[p];
    bool refused = false;
    switch (self.at) {
      case At::kAway:
        if (RendezvousWord(state.word).round() >= kRounds) return;
        // It was asked for this round, or for the one before, which is over.
        for (uint64_t back = 0; back <= std::min<uint64_t>(1, RendezvousWord(state.word).round()); ++back) {
          self = {At::kAdds, RendezvousWord(state.word).round() - back, state.word, self.met};
          visit(next);
        }
        return;
      case At::kAdds:
        if (change(next, p, [&](RendezvousWord word) { return word.add(self.round, kProcessors); }, refused))
          self.at = At::kWaits;
        else if (refused)
          self = {At::kAway, 0, 0, self.met};
        return visit(next);
      case At::kWaits: {
        const RendezvousWord now(state.word);
        if (now.round() != self.round) {
          self = {At::kAway, 0, 0, self.met};
        } else if (now.willing() == kProcessors) {
          self.at = At::kMeets;
          ++next.here;
        } else {
          // It may also go on waiting, which changes nothing.
          self.at = At::kCallsOff;
          self.seen = state.word;
        }
        return visit(next);
      }
      case At::kCallsOff:
        if (change(next, p, [&](RendezvousWord word) { return word.call_off(self.round, kProcessors); }, refused))
          self = {At::kAway, 0, 0, self.met};
        else if (refused)
          self.at = At::kWaits;  // it looks once more, and finds either
        return visit(next);
      case At::kMeets:
        if (state.here < kProcessors && state.here != 0) return;
        next.here = 0;  // for the next: all have come
        self.at = At::kEnds;
        self.seen = state.word;
        ++self.met;
        return visit(next);
      case At::kEnds:
        if (change(
                next, p, [&](RendezvousWord word) { return word.end(RendezvousWord(self.seen).round(), kProcessors); },
                refused) ||
            refused)
          self = {At::kAway, 0, 0, self.met};
        return visit(next);
    }
  }

  std::set<State> seen_;
  std::vector<State> open_;
  uint8_t most_met_ = 0;
};

TEST(RendezvousEngine, AllMeetOrNone) {
  Exploration all;
  all.run();
  std::printf("%zu states\n", all.states());
  EXPECT_GT(all.states(), 1000u);
  EXPECT_GE(all.most_met(), 2);
}

TEST(RendezvousEngine, TheWordKeepsRoundsApart) {
  const RendezvousWord none(0);
  EXPECT_EQ(RendezvousWord(*none.add(0, 2)).willing(), 1u);
  EXPECT_FALSE(none.add(1, 2));
  const RendezvousWord both(*RendezvousWord(*none.add(0, 2)).add(0, 2));
  EXPECT_FALSE(both.add(0, 2));
  EXPECT_FALSE(both.call_off(0, 2));
  EXPECT_EQ(RendezvousWord(*both.end(0, 2)).round(), 1u);
  EXPECT_EQ(RendezvousWord(*both.end(0, 2)).willing(), 0u);
  EXPECT_FALSE(none.end(0, 2));
  EXPECT_EQ(RendezvousWord(*none.call_off(0, 2)).round(), 1u);
}

}  // namespace
}  // namespace multigrain
