// The machines that DSZOOM is explored on; shared by the test and by the command `explore`.
#pragma once

#include <vector>

#include "dszoom_model.h"
#include "explore.h"

namespace multigrain::dszoom::model {

// More states than any of them has.
inline constexpr size_t kMaxStates = 4'000'000;

[[nodiscard]] std::vector<Scenario> scenarios();
// Machines whose checks cache lines that they looked at. Their names say what they are made for.
[[nodiscard]] std::vector<Scenario> scenarios_with_rights_cache();

// What scenarios() refutes, and what scenarios_with_rights_cache() does.
[[nodiscard]] std::vector<Mutant> mutants();
[[nodiscard]] std::vector<Mutant> mutants_of_rights_cache();

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::dszoom::model
