// What mgbench measures. Each role is one program run: under mgrun as a Multigrain program, or bare for the floors.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"

namespace multigrain::bench {

// One quantity, as individual measurements in nanoseconds.
struct Series {
  std::string name;
  std::vector<double> samples;
};

// What the processes that measure tell the one that prints, and the lines that they do it in.
struct Summary {
  double p50 = 0, p99 = 0;  // ns
  size_t count = 0;
};
Summary summarise(std::vector<double> samples);
void print_series(const std::vector<Series>& all);

// How many measurements of each quantity.
struct Effort {
  unsigned pages = 256;  // pages touched one after the other in a round
  unsigned rounds = 20;
};

// The floors: what this machine asks for the bare ingredients. Run outside mgrun, on two cores.
//   "fault, read", "fault, upgrade"   a fault taken, rights granted in the handler, the access made
//   "fault, resident"                 the same for a page-table entry that was dropped
//   "rights, revoke"                  taking one page's rights away
//   "copy"                            a page that this core wrote
//   "copy, other core's"              a page that another core has just written
//   "line round trip"                 a cache line to another core and back
//   "wake-up round trip"              a futex sleeper woken, who wakes the waker
//   "wake-up"                         half of that
std::vector<Series> measure_floors(AccessMechanism access, size_t page_size, const Effort& effort);

// What the role "scan" reads in one go.
inline constexpr size_t kScanBytes = size_t{64} << 20;

// The roles, which mgbench-role plays under mgrun; `role` is one of the names in roles(). Called from main() on node 0.
std::vector<Series> run_role(const std::string& role, const Effort& effort);

// A run of the program: its role, on how many nodes, and how its nodes wait.
struct Role {
  const char* name;
  unsigned nodes;
  // For MULTIGRAIN_SPIN, microseconds: how long waiting processors poll. nullptr: the run's own choice.
  const char* spin_us;
  unsigned processors = 1;  // of a node
  // Not nullptr: of hlrc alone, with this option of its.
  const char* hlrc = nullptr;
};
const std::vector<Role>& roles();

}  // namespace multigrain::bench
