// Descriptions of machines: what an emulated machine's processor, network and protocol software cost, as JSON files with a
// source for each figure. docs/user/machines.md says how to write one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/machine_costs.h"
#include "base/network_model.h"
#include "count/instruction_costs.h"
#include "emulation/cache_model.h"

namespace multigrain {

struct MachineDescription {
  std::string name;
  std::string what;    // in a few words
  std::string source;  // where most of the figures are from; each figure of a file has its own besides
  double clock_mhz = 0;
  counting::InstructionCosts instructions;  // what the program's own code costs
  NetworkModel network;                     // --net replaces it. Its handler_ns is 0: see MachineCosts::interrupt
  MachineCosts costs;                       // everything else
  std::optional<CacheDescription> caches;   // nothing: the price of a load includes what it misses
  // How many messages a node handles at the same time: one, as a node whose interface has one protocol handler, or one on each
  // of its processors, as a node that is made of processors with interfaces of their own ([MGS], section 4).
  enum class Handlers : uint8_t { kOne, kEachProcessor };
  Handlers handlers = Handlers::kOne;
};

// Reads a description. `where` is the file's name, with which errors begin: "FILE, line N: KEY: ..." in one sentence. Errors:
// the text is no JSON; a figure is missing, unknown, there twice, no number, negative, too large, or too small to be a
// picosecond; it has no unit or the wrong one, or no source; the clock or the bandwidth is 0; the points of a curve are not
// in order; caches of that size, line and ways cannot be.
Result<MachineDescription> parse_machine(std::string_view text, std::string_view where);

// Writes the description as parse_machine() reads it, in one line, with the same figures to the picosecond. Each figure's
// source is the whole's.
std::string compact(const MachineDescription& machine);

// The names of the prices of MachineCosts in a description, in its order. May be called by any thread.
std::span<const std::string_view> price_names();

}  // namespace multigrain
