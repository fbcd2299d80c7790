// These tests show that a run and the simulator of traces ask the same policies the same questions: the transitions of placed pages
// are given the references of random traces, one at a time, and place pages as the simulator says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "coherence/placement/cache_policy.h"
#include "coherence/placement/transitions.h"
#include "placement/policies.h"
#include "trace/model/policy_costs.h"
#include "trace/model_cases.h"

namespace multigrain::placement {
namespace {

using trace::Cases;
using trace::CostParts;

constexpr unsigned kNodes = 4;
constexpr unsigned kPages = 3;
constexpr uint64_t kBlock = 64;

NodeId node_id(unsigned node) {
  return NodeId(static_cast<uint16_t>(node));
}

// These are the nodes of a run that makes one reference after the other. It counts as the simulator does, for which global memory is
// no node's.
class Sequential {
 public:
  Sequential(Policy& policy, NodeId home) : policy_(policy), home_(home) {}

  void refer(unsigned page, NodeId node, Access access, uint64_t now) {
    now_ = now;
    Page& there = pages_[node.value][page];
    if (!there.allows(access)) {
      Actions actions;
      EXPECT_EQ(on_fault(there, context(node), access, actions), FaultOutcome::kWait);
      perform(page, node, actions);
      EXPECT_TRUE(there.allows(access));
      on_returned(there);
      end_hold(page, node);
    }
    ++(there.state == State::kGlobal ? parts_.global : parts_.local);
  }
  void thaw(unsigned page) {
    Actions actions;
    on_thaw(pages_[home_.value][page], context(home_), actions);
    perform(page, home_, actions);
  }
  [[nodiscard]] const CostParts& parts() const { return parts_; }

 private:
  [[nodiscard]] Context context(NodeId node) const { return {.self = node, .home = home_}; }

  void end_hold(unsigned page, NodeId node) {
    Actions actions;
    on_hold_over(pages_[node.value][page], context(node), actions);
    perform(page, node, actions);
  }
  void perform(unsigned page, NodeId node, const Actions& actions) {
    for (const Action& action : actions) {
      if (action.verb == Verb::kSend || action.verb == Verb::kSendPage) {
        Actions next;
        ASSERT_TRUE(on_message(pages_[action.node.value][page], context(action.node), node, action.message, next));
        perform(page, action.node, next);
      } else if (action.verb == Verb::kAskPolicy) {
        Actions next;
        on_decision(pages_[home_.value][page], context(home_), decide(page, action), next);
        perform(page, node, next);
      }
    }
  }
  Location decide(unsigned page, const Action& asked) {
    const Directory& entry = pages_[home_.value][page].directory;
    PageMemo& memo = memos_[page];
    const PageMemo before = memo;
    const bool has_copy = entry.placement != Placement::kGlobalWritable && entry.holders.contains(asked.node);
    const Location location = cache_policy(policy_, memo, entry, PageId(page), kNodes, asked.node, asked.access, now_);
    if (!before.is_placed) return location;
    if (location == Location::kLocal && !has_copy) ++(before.is_in_global ? parts_.global_moves : parts_.remote_moves);
    if (location == Location::kGlobal && !before.is_in_global) ++parts_.global_moves;
    return location;
  }

  Policy& policy_;
  const NodeId home_;
  std::array<std::array<Page, kPages>, kNodes> pages_;
  std::array<PageMemo, kPages> memos_;
  uint64_t now_ = 0;
  CostParts parts_;
};

TEST(PlacementPolicies, PlaceThePagesOfARunAsTheSimulatorSays) {
  trace::Machine machine = trace::find_machine("ace")->with_block_size(kBlock);
  machine.processors = kNodes;
  uint64_t global = 0, moves = 0;
  for (const char* const text :
       {"ace", "ace:invalidations=1", "always-migrate", "global", "platinum-global:t1=3:t2=20"}) {
    Cases cases(202);
    for (int i = 0; i < 500; ++i) {
      const std::vector<trace::Reference> references = cases.trace(kNodes, 300);
      auto source = trace::source_of(references, kNodes);
      const trace::PolicyRun simulated{machine, *trace::make_policy(text, machine)};
      const auto expected = trace::evaluate(source, {&simulated, 1});
      ASSERT_TRUE(expected) << expected.error().message;
      const auto policy = make_policy(text, kRunSetting);
      ASSERT_TRUE(policy) << policy.error().message;
      Sequential run(**policy, node_id(static_cast<unsigned>(i) % kNodes));
      const uint64_t thaws = (*policy)->reconsiders_after();
      for (uint64_t n = 0; n < references.size(); ++n) {
        const trace::Reference& r = references[n];
        if (thaws != 0 && n % thaws == 0)
          for (unsigned page = 0; page < kPages; ++page) run.thaw(page);
        run.refer(static_cast<unsigned>(r.address / kBlock), NodeId(r.processor),
                  r.access == trace::Access::kWrite ? Access::kWrite : Access::kRead, n);
      }
      ASSERT_EQ(run.parts(), expected->front().parts) << text << ", case " << i;
      global += run.parts().global;
      moves += run.parts().remote_moves + run.parts().global_moves;
    }
  }
  EXPECT_GT(global, 100'000u);
  EXPECT_GT(moves, 10'000u);
}

TEST(PlacementPolicies, WhatTheyLeaveWhereItIsIsInGlobalMemory) {
  const auto policy = first_touch_policy();
  PageMemo memo;
  Directory entry;
  const auto ask = [&](unsigned node) {
    return cache_policy(*policy, memo, entry, PageId(7), kNodes, node_id(node), Access::kWrite, 1);
  };
  EXPECT_EQ(ask(1), Location::kLocal);
  entry.placement = Placement::kLocalWritable;
  entry.holders = NodeSet::of(node_id(1));
  EXPECT_EQ(ask(2), Location::kGlobal);
  // Page 7 is to be at node 3 of four.
  const auto interleaved = interleaved_policy();
  for (const unsigned node : {0u, 1u, 3u}) {
    PageMemo first;
    EXPECT_EQ(cache_policy(*interleaved, first, {}, PageId(7), kNodes, node_id(node), Access::kRead, 1),
              node == 3 ? Location::kLocal : Location::kGlobal);
  }
}

TEST(PlacementPolicies, TimesAreNanosecondsInARun) {
  const auto policy = make_policy("platinum", kRunSetting);
  ASSERT_TRUE(policy);
  EXPECT_EQ((*policy)->reconsiders_after(), 1'000'000'000u);
  PageMemo memo;
  Directory entry;
  const auto write = [&](unsigned node, uint64_t now) {
    const Location location =
        cache_policy(**policy, memo, entry, PageId(0), kNodes, node_id(node), Access::kWrite, now);
    entry.placement = location == Location::kLocal ? Placement::kLocalWritable : Placement::kGlobalWritable;
    entry.holders = NodeSet::of(node_id(node));
    return location;
  };
  EXPECT_EQ(write(0, 0), Location::kLocal);
  EXPECT_EQ(write(1, 5'000'000), Location::kLocal);     // invalidates node 0's
  EXPECT_EQ(write(0, 15'000'001), Location::kLocal);    // 10 ms and 1 ns later
  EXPECT_EQ(write(1, 25'000'001), Location::kGlobal);   // 10 ms later: frozen
  EXPECT_EQ(write(2, 999'999'999), Location::kGlobal);  // until a second is over
  EXPECT_EQ(write(2, 1'000'000'000), Location::kLocal);
}

TEST(PlacementPolicies, ThoseThatCountReferencesAreRefused) {
  for (const std::string& name : policy_names()) {
    ASSERT_TRUE(make_policy(name, kRunSetting)) << name;
    const auto policy = make_policy_of_run(name);
    if (name == "delay" || name == "competitive") {
      ASSERT_FALSE(policy) << name;
      EXPECT_THAT(policy.error().message, testing::HasSubstr("counts references"));
      EXPECT_THAT(render_policies_of_runs(), testing::Not(testing::HasSubstr("\n  " + name + " ")));
    } else {
      EXPECT_TRUE(policy) << name;
      EXPECT_THAT(render_policies_of_runs(), testing::HasSubstr("\n  " + name + " "));
    }
  }
}

}  // namespace
}  // namespace multigrain::placement
