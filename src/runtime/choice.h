// Says in words what Multigrain has chosen where it was left the choice, and why: the protocol, and whether pages move to lines.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/config.h"
#include "profile/report.h"
#include "runtime/compiled_checks.h"

namespace multigrain {

// Whether pages may move to lines in this run, and otherwise what keeps them from it.
enum class MovesToLines : uint8_t {
  kYes,
  kNotChosen,     // the protocol was named, or is not hlrc
  kHomesStay,     // --hlrc homes=stay: what nodes write is not compared at barriers
  kNoChecks,      // the program has no compiled checks
  kTooManyNodes,  // a line's directory entry has no room for them
  kHasGaps,       // some of its code may reach shared memory without them
  kIsHandedOut,   // a function without checks knows an address
  kHasThreads,    // the program has started threads of its own, which are no processors
};

// Whether they may when the run begins.
[[nodiscard]] MovesToLines decide_moves_to_lines(const Config& config, const CompiledChecks& checks);

// Sentences for the statistics; empty if everything was named.
[[nodiscard]] std::string tell_choice(const Config& config, MovesToLines moves, std::span<const NodeReport> reports);

}  // namespace multigrain
