// mgbench checks: what compiled access checks cost the workloads.
#pragma once

namespace multigrain::bench {

// The whole subcommand; argv[0] is its name. Its value is the exit status.
int measure_checks(int argc, char** argv);

}  // namespace multigrain::bench
