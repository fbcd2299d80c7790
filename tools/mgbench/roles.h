// mgbench measures primitives by roles. Each role is one run of the program mgbench-pages under mgrun. The floors are
// measured without the runtime.
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

// A process that measures prints a line with a summary of each series, which mgbench reads.
struct Summary {
  double p50 = 0, p99 = 0;  // ns
  size_t count = 0;
};
Summary summarise(std::vector<double> samples);
void print_series(const std::vector<Series>& all);

// How many measurements are made of each quantity.
struct Effort {
  unsigned pages = 256;  // pages touched one after the other in a round
  unsigned rounds = 20;
};

// Measures the floors: the bare operations of which primitives consist, as this machine makes them. It runs outside
// mgrun, on two cores.
//   "fault, read", "fault, upgrade"   a fault is taken, the handler grants rights, and the access is made
//   "fault, resident"                 the same for a page whose page-table entry was dropped
//   "rights, revoke"                  one page's rights are taken away
//   "copy"                            a page is copied that this core wrote
//   "copy, other core's"              a page is copied that another core has just written
//   "line round trip"                 a cache line goes to another core and back
//   "wake-up round trip"              a thread wakes a thread that sleeps in a futex, which wakes the first thread
//   "wake-up"                         half of that
std::vector<Series> measure_floors(AccessMechanism access, size_t page_size, const Effort& effort);

// The role "scan" reads this many bytes at once.
inline constexpr size_t kScanBytes = size_t{64} << 20;

// Runs a role, one of the names in roles(). main() of mgbench-pages calls it on node 0.
std::vector<Series> run_role(const std::string& role, const Effort& effort);

// A run of mgbench-pages: its role, the number of nodes, and how its nodes wait.
struct Role {
  const char* name;
  unsigned nodes;
  // The value of MULTIGRAIN_SPIN: for how many microseconds waiting processors poll. nullptr: the run chooses.
  const char* spin_us;
  unsigned processors = 1;  // of a node
  // If this is not nullptr, the role exists under hlrc only, with this as an additional option of --hlrc.
  const char* hlrc = nullptr;
  // If this is not nullptr, the role exists under placement only, with this policy. The others have all pages local there.
  const char* policy = nullptr;
};
const std::vector<Role>& roles();

}  // namespace multigrain::bench
