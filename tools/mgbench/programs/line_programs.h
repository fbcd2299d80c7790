// The two halves of mgbench-lines.
#pragma once

namespace multigrain::bench {

// Each takes the words of main(), measures, prints, and returns the exit status.
int main_of_lines(int argc, char** argv);
int main_of_blocks(int argc, char** argv);

}  // namespace multigrain::bench
