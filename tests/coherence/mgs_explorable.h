// MGS's machines and mutants for the command `explore`.
#pragma once

#include "explore.h"

namespace multigrain::mgs::model {

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::mgs::model
