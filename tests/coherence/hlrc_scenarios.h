// The small machines and programs on which HLRC is explored.
#pragma once

#include <vector>

#include "hlrc_model.h"

namespace multigrain::hlrc::model {

[[nodiscard]] std::vector<Scenario> scenarios();

// What they refute.
[[nodiscard]] std::vector<Mutant> mutants();

}  // namespace multigrain::hlrc::model
