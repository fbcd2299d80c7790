// These are the policies that there are (policy.h), and their names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "placement/policy.h"

namespace multigrain::placement {

// This policy replicates and migrates until a block has been invalidated `invalidations` times; then it is frozen in
// global memory, or where it is if there is none.
std::unique_ptr<Policy> ace_policy(unsigned invalidations = 4);
// This is the same policy, but a decision takes `references` references from a new location first.
std::unique_ptr<Policy> delay_policy(unsigned references = 100, unsigned invalidations = 4);
// This policy freezes a block where it is that one place has invalidated and another place refers to within t1; it thaws all
// frozen blocks every t2 ([Bolosky], section 5.1). With back_off (the final version), a block that is frozen again soon after a
// thaw sleeps through twice as many of the next ones. With freeze_in_global, frozen blocks are in global memory, as the
// section says that they could be.
struct PlatinumOptions {
  uint64_t t1 = 0;  // in the unit of Reference::time, as t2 is; at least 1
  uint64_t t2 = 0;
  bool back_off = false;
  bool freeze_in_global = false;
};
std::unique_ptr<Policy> platinum_policy(const PlatinumOptions& options);
// After [BlackSleator], this policy makes a copy for a place when its remote reads have cost as much as the copy would; a
// move when its remote writes have, twice over, more than local references have made up for. A move costs as much more than
// nothing as `worth_of_move` remote references cost more than local ones; with 0 the block moves at once.
std::unique_ptr<Policy> competitive_policy(uint64_t worth_of_move);
// This policy migrates on every write and replicates on every read, as machines without remote reference must.
std::unique_ptr<Policy> always_migrate_policy();
std::unique_ptr<Policy> first_touch_policy();    // for ever at the place that first touches it
std::unique_ptr<Policy> interleaved_policy();    // for ever at place (block number mod places)
std::unique_ptr<Policy> static_global_policy();  // for ever in global memory

// Whoever asks policies says this of itself, so that a policy's name means the same to all of them.
struct Setting {
  // The thesis's times of PLATINUM, 10 ms and 1 s ([Bolosky], section 5.1), in the unit of Reference::time. In a trace they
  // depend on how many references a second the program makes; the simulator takes one a microsecond unless told otherwise.
  uint64_t t1 = 0;
  uint64_t t2 = 0;
  uint64_t worth_of_move = 0;  // as in competitive_policy()
};
// The setting of a run: time in nanoseconds. Nothing in a run says what a move is worth, and the policy that asks for it
// cannot be used there.
inline constexpr Setting kRunSetting{.t1 = 10'000'000, .t2 = 1'000'000'000, .worth_of_move = 0};

// Returns a policy by its name: "ace", "delay", "platinum", "platinum-back-off", "platinum-global", "competitive",
// "always-migrate", "first-touch", "interleaved", "global"; an error lists them. Parameters may follow, as in
// "platinum:t1=2500:t2=250000", "ace:invalidations=2", "delay:references=50"; each is a whole number of at least 1, and a
// time is in the unit of Reference::time.
const std::vector<std::string>& policy_names();
Result<std::unique_ptr<Policy>> make_policy(std::string_view text, const Setting& setting);

// Does the same for a run, which sees only references that fault. Errors: also a policy that has to count the others.
Result<std::unique_ptr<Policy>> make_policy_of_run(std::string_view text);
// Returns the policies that a run can ask, a line each.
std::string render_policies_of_runs();

}  // namespace multigrain::placement
