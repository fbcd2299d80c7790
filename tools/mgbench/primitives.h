// What mgbench does without a subcommand: the cost of each primitive under one protocol, beside its floor.
#pragma once

#include <string>

#include "program_run.h"
#include "roles.h"

namespace multigrain::bench {

struct PrimitivesOptions {
  std::string access = "auto", net = "ideal", page_size = "4096", fabric = "shm", protocol = "mgs", model = "sc";
  std::string only, clock_scale;
  Effort effort;
  bool json = false, list = false;
};

// Page faults and reading ahead over UCX, each transport beside ucx_perftest, one after the other in one run. The value
// of this function and of the next two is the exit status.
int compare_with_ucx(const PrimitivesOptions& options, const Summaries& floors);

// A miss of a line under dszoom beside what it cannot do without, and false sharing under each protocol.
int measure_lines(const PrimitivesOptions& options);

// What [Shasta] measures of blocks (section 6.1, Table 1), and what larger blocks bring.
int measure_blocks(const PrimitivesOptions& options);

}  // namespace multigrain::bench
