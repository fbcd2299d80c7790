// Without a subcommand, mgbench measures the cost of each primitive under one protocol, beside its floor. The files
// that do so share these declarations.
#pragma once

#include <string>

#include "program_run.h"
#include "roles.h"

namespace multigrain::bench {

struct PrimitivesOptions {
  std::string access = "auto", net = "ideal", page_size = "4096", fabric = "shm", protocol = "mgs", model = "sc";
  std::string only, clock_scale, clock, machine;
  std::string calibrate;  // a file; empty: where --machine here finds it
  Effort effort;
  bool json = false, list = false;
};

// Measures page faults and reading ahead over UCX, each transport beside ucx_perftest, one after the other in one run.
// This function and the next two return the exit status.
int compare_with_ucx(const PrimitivesOptions& options, const Summaries& floors);

// Measures a miss of a line under dszoom beside its floor, and false sharing under each protocol.
int measure_lines(const PrimitivesOptions& options);

// Measures blocks as [Shasta] does (section 6.1, Table 1), and the gain by larger blocks.
int measure_blocks(const PrimitivesOptions& options);

}  // namespace multigrain::bench
