// mgbench-lines has two halves: one measures misses of lines under dszoom, the other misses of blocks under shasta.
#pragma once

namespace multigrain::bench {

// Each takes the arguments of main(), measures, prints, and returns the exit status.
int main_of_lines(int argc, char** argv);
int main_of_blocks(int argc, char** argv);

}  // namespace multigrain::bench
