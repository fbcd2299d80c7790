// mgbench rights: what a change of access rights costs when several processors of a node change rights at once.
#pragma once

namespace multigrain::bench {

// Runs "mgbench rights [--threads N,N...] [--rounds N] [--json]" and returns its exit status.
int measure_rights(int argc, char** argv);

}  // namespace multigrain::bench
