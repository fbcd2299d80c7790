// This gives the command `explore` the machines and mutants of MGS.
#pragma once

#include "explore.h"

namespace multigrain::mgs::explored {

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::mgs::explored
