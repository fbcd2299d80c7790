// What mgrun --check-races asks for (docs/user/races.md). These are settings of the run like those of Config (config.h), of which
// only mgrun and the start of a node know; everything else asks whether there is a detector.
#pragma once

#include <cstdint>

namespace multigrain {

struct CheckRaces {
  // A clock has an entry for each processor, and for threads beside processors.
  static constexpr unsigned kMaxProcessors = 223;
  static constexpr unsigned kMaxBeside = 32;

  bool is_on = false;   // MULTIGRAIN_CHECK_RACES: 0 or 1
  uint64_t memory = 0;  // MULTIGRAIN_RACES_MEMORY, bytes; 0: half of the machine's
  int fd = -1;          // MULTIGRAIN_RACES_FD: a memfd that all nodes share, which a launcher sets
};

// This process's. Reading the settings sets it, before there is a second thread.
inline CheckRaces& check_races() {
  static constinit CheckRaces the_only_one;
  return the_only_one;
}

}  // namespace multigrain
