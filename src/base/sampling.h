// What users say of bursts: the value of --sample.
#pragma once

#include <string_view>

#include "base/bursts.h"
#include "base/error.h"

namespace multigrain {

// Reads "BURST/INTERVAL", two numbers of references. Errors: it is something else; no burst, or no smaller than the interval. Thread
// safe.
Result<Bursts> parse_sampling(std::string_view text);

}  // namespace multigrain
