// HLRC's machines and mutants for the command `explore`.
#pragma once

#include "explore.h"

namespace multigrain::hlrc::explored {

// More states than any of the machines has.
inline constexpr size_t kMaxStates = 4'000'000;

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::hlrc::explored
