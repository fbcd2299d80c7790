// These are policies: on-line ones, which place blocks without knowing the future, evaluated with the cost model
// ([Bolosky], sections 4.1.3 and 5.1).
//
// To add a policy, write a class with a name and one decision:
//
//   class Third final : public Policy {  // fetches a block at every third reference from elsewhere
//    public:
//     std::string name() const override { return "third"; }
//     Decision on_reference(BlockState& block, const Reference&, uint64_t) override {
//       return ++block.memo[0] % 3 == 0 ? Decision::local() : Decision::stay();
//     }
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "trace/model/machine.h"
#include "trace/model/optimal.h"
#include "trace/model/pass.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This is what a policy sees of a block, and what it may remember about it.
struct BlockState {
  uint64_t block;                    // number: address / block size
  unsigned processors;               // the machine's number of processors
  bool in_global;                    // there is a copy in global memory
  std::span<const uint64_t> copies;  // a bit for each processor: it has a copy
  std::span<uint64_t, 4> memo;       // the policy's own memory; zero at first
  std::span<uint64_t> counters;      // one for each processor, the policy's own, if it asked for them; zero at first

  [[nodiscard]] bool has_copy(ProcessorId processor) const { return (copies[processor / 64] >> (processor % 64)) & 1; }
  [[nodiscard]] unsigned copy_count() const;
};

struct Decision {
  enum class Kind : uint8_t {
    // The block stays where it is, and the reference is remote or global. A write while there are several copies leaves
    // one: the writer's, or else the global one, or else that of the lowest processor.
    kStay,
    // This makes a copy for the processor that refers. On a write, it becomes the only one.
    kLocal,
    // The block goes to global memory, without other copies; on a machine without global memory, like kStay.
    kGlobal,
    // The block goes to processor `to`, without other copies.
    kMove,
  };
  Kind kind = Kind::kStay;
  ProcessorId to = 0;
  static Decision stay() { return {}; }
  static Decision local() { return {.kind = Kind::kLocal}; }
  static Decision global() { return {.kind = Kind::kGlobal}; }
  static Decision move(ProcessorId to) { return {.kind = Kind::kMove, .to = to}; }
};

class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  // Says where a block is at first, for nothing: at the processor that first refers to it, unless overridden. kStay is
  // kLocal.
  virtual Decision first(BlockState& block, const Reference& reference, uint64_t time);
  // Decides at reference number `time` of the trace: at one that is not local, or a write while there are several
  // copies; with wants_local(), at every one but a block's first.
  virtual Decision on_reference(BlockState& block, const Reference& reference, uint64_t time) = 0;
  [[nodiscard]] virtual bool wants_local() const { return false; }
  [[nodiscard]] virtual bool wants_counters() const { return false; }
};

// This policy replicates and migrates until a block has been invalidated `invalidations` times; then it is frozen in
// global memory, or where it is if there is none.
std::unique_ptr<Policy> ace_policy(unsigned invalidations = 4);
// This is the same policy, but a decision takes `references` references from a new location first.
std::unique_ptr<Policy> delay_policy(unsigned references = 100, unsigned invalidations = 4);
// This policy freezes a block where it is that one processor has invalidated and another processor refers to within t1
// references; thaws all frozen blocks every t2 references ([Bolosky], section 5.1). With back_off (the final version), a
// block that is frozen again soon after a thaw sleeps through twice as many of the next ones. With freeze_in_global,
// frozen blocks are in global memory, as the section says that they could be.
//
// The thesis has t1 = 10 ms and t2 = 1 s, by each program's references a second.
struct PlatinumOptions {
  uint64_t t1 = 10'000;     // 10 ms at a reference a microsecond
  uint64_t t2 = 1'000'000;  // 1 s
  bool back_off = false;
  bool freeze_in_global = false;
};
std::unique_ptr<Policy> platinum_policy(const PlatinumOptions& options = {});
// After [BlackSleator], this policy makes a copy for a processor when its remote reads have cost as much as the copy
// would; a move when its remote writes have, twice over, more than local references have made up for.
std::unique_ptr<Policy> competitive_policy(const Machine& machine);
// This policy migrates on every write and replicates on every read, as machines without remote reference must.
std::unique_ptr<Policy> always_migrate_policy();
std::unique_ptr<Policy> first_touch_policy();    // for ever at the processor that first touches it
std::unique_ptr<Policy> interleaved_policy();    // for ever at processor (block number mod processors)
std::unique_ptr<Policy> static_global_policy();  // for ever in global memory

// Returns a policy by its name: "ace", "delay", "platinum", "platinum-back-off", "platinum-global", "competitive",
// "always-migrate", "first-touch", "interleaved", "global"; an error lists them. Parameters may follow, as in
// "platinum:t1=2500:t2=250000", "ace:invalidations=2", "delay:references=50"; each is a whole number of at least 1.
const std::vector<std::string>& policy_names();
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
