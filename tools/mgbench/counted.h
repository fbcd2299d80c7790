// mgbench --clock counted: the tables of the MGS and the GeNIMA paper, and the latencies of the DSZOOM and the Shasta paper, on a
// machine of the counted clock, row by row. Each row is
// brought about and timed in a run (programs/counted.cpp, counted_fabric.cpp), and stands beside the paper's figure and
// beside the sum of the prices of its steps (counted_rows.cpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulation/machine_description.h"
#include "program_run.h"

namespace multigrain::bench {

struct CountedRow {
  std::string name;
  std::string steps;  // of which the sum is made, for people
  double sum = 0;
  std::optional<double> paper;  // the paper's figure; nothing if the machine is not the paper's
  double here = 0;
  std::string unit;  // of all figures: "cycles", "us" or "MB/s"
};

struct CountedTable {
  std::string key;    // in JSON
  std::string title;  // for people
  std::vector<CountedRow> rows;
  std::vector<std::string> notes;
};

// What a run has measured, in nanoseconds, or in bytes a nanosecond.
struct RemoteOperations {
  double word_send = 0, word_fetch = 0, page_send = 0, page_fetch = 0;  // one way; there and back
  double send_rate = 0, fetch_rate = 0;
};

// Carries out remote operations of a node by themselves, without a runtime, in counted time. To be called once in a process.
RemoteOperations measure_remote_operations(const MachineDescription& machine);

// The rows of MGS's Table 1, of which `measured` has the times. `is_translated`: with pages of 1 KiB, which compiled code
// translates, and a translation table for each processor; otherwise with the hardware's pages. `is_papers`: the machine is the
// paper's.
CountedTable mgs_table(const MachineDescription& machine, bool is_translated, bool is_papers,
                       const Summaries& measured);

// The rows of MGS's Table 1 that are misses of caches, of which `measured` has the times. The machine has caches.
CountedTable hardware_table(const MachineDescription& machine, bool is_papers, const Summaries& measured);

// The rows of GeNIMA's Table I. `pages` has the times of mgs's page faults, and `locks` those of hlrc's locks. `paper`: the name
// of the machine if it is one of the paper's two, or nothing.
CountedTable genima_table(const MachineDescription& machine, const std::string& paper,
                          const RemoteOperations& operations, const Summaries& pages, const Summaries& locks);

// What misses of lines cost under dszoom. `measured` has their times. `is_papers`: the machine is the paper's.
CountedTable dszoom_table(const MachineDescription& machine, bool is_papers, const Summaries& measured);

// The same under shasta, and its locks, which messages hand on. `locks` has their times.
CountedTable shasta_table(const MachineDescription& machine, bool is_papers, const Summaries& measured,
                          const Summaries& locks);

// Measures and prints all of that for a machine (a name, a file or a description). Returns the exit status.
int measure_counted(const std::string& machine, bool json);

}  // namespace multigrain::bench
