// mgbench trace: what reading a trace and analysing it costs here.
#pragma once

namespace multigrain::bench {

// The whole subcommand; argv[0] is its name. Its value is the exit status.
int measure_traces(int argc, char** argv);

}  // namespace multigrain::bench
