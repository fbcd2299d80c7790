// The futexes of a guest are explored in these machines.
#pragma once

#include <vector>

#include "futex_model.h"

namespace multigrain::futex_model {

std::vector<Scenario> scenarios();

}  // namespace multigrain::futex_model
