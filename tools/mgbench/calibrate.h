// mgbench --calibrate: this machine as a description of a machine for the counted clock.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "count/abi.h"
#include "roles.h"

namespace multigrain::bench {

// Nanoseconds of one instruction of each class: where each needs the result of the one before, and where none does. Where
// there is no such difference both are the same.
struct ProcessorTimes {
  std::array<Summary, MG_COUNT_CLASSES> chain, independent;
  Summary cycle;  // of the clock
};
ProcessorTimes measure_processor();

// What a call of a library function takes, ns; of one that handles bytes also each byte.
struct CallTime {
  const char* name;
  Summary fixed;
  Summary per_byte;
  bool has_bytes = false;
};
std::vector<CallTime> measure_calls();

// Measures everything, and writes the description to a file; an empty name: where `--machine here` reads it. Says what it does
// on standard error. Returns the exit status.
int calibrate(const std::string& file);

}  // namespace multigrain::bench
