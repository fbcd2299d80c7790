// What placement policies cost: the simulator of [Bolosky], sections 4.1.3 and 5.1, which asks a policy (placement/policy.h)
// at the references of a trace, moves its blocks, and prices that with the cost model. A place is the memory of a processor
// of the machine, and a reference's time is its number in the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "placement/policies.h"
#include "trace/model/machine.h"
#include "trace/model/optimal.h"
#include "trace/model/pass.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

using placement::BlockState;
using placement::Decision;
using placement::Policy;
using placement::policy_names;

// The simulator passes a policy references of this type, for a policy that looks at more of a trace than a run has.
struct TracedReference : placement::Reference {
  TracedReference(const placement::Reference& reference, const trace::Reference& of_trace)
      : placement::Reference(reference), traced(of_trace) {}
  const trace::Reference& traced;
};

// These are PLATINUM's times unless its parameters name others: 10 ms and 1 s at a reference a microsecond. The thesis takes
// each program's references a second.
inline constexpr uint64_t kPlatinumT1 = 10'000;
inline constexpr uint64_t kPlatinumT2 = 1'000'000;

// Returns a policy by its name, with parameters or without (placement::make_policy), for this machine.
Result<std::unique_ptr<Policy>> make_policy(std::string_view text, const Machine& machine);

// Returns whether the policy of that name, with parameters or without, means something on the machine: static ones and
// those that freeze a block where it is need remote reference; "global" and "platinum-global" need global memory; "ace"
// needs one of the two.
bool policy_suits(std::string_view text, const Machine& machine);

// This says what to evaluate: one policy on one machine.
struct PolicyRun {
  Machine machine;
  std::shared_ptr<Policy> policy;  // used by this run alone, because runs are evaluated at once, on several threads
};

struct PolicyOptions : PassOptions {
  unsigned hot_blocks = 0;  // as in OptimalOptions
};

struct PolicyResult {
  Machine machine;
  std::string policy;
  double cost = 0;  // with private references; infinite if the policy refers remotely on a machine that cannot
  double mcpr = 1;
  CostParts parts;
  uint64_t references = 0;
  uint64_t private_references = 0;
  uint64_t blocks = 0;
  std::vector<BlockCost> hot;
};

// Makes one pass; there is a result for each run. No policy is below the optimal placement of optimal() with
// replication.
Result<std::vector<PolicyResult>> evaluate(TraceSource& source, std::span<const PolicyRun> runs,
                                           const PolicyOptions& options = {});

}  // namespace multigrain::trace
