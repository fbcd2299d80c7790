// MGS's machines and mutants for the command `explore`.
#pragma once

#include "explore.h"

namespace multigrain::mgs::explored {

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::mgs::explored
