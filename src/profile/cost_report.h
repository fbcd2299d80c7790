// Makes of the nodes' tables of costs (status/costs.h) what a user reads: which memory, which lines of the program and which
// objects of synchronisation cost most, and, for each, one sentence of advice with the command that tries it. The rules of the
// advice are in docs/user/profile.md; they look at nothing but what is here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "status/costs.h"

namespace multigrain {

struct Advice {
  std::string sentence;
  std::string command;  // what the user can type
};

// Memory that one line of the program allocates, or a global variable.
struct MemoryCost {
  std::string name;     // "grid.c:52", "the global bins (hist.c:18)"
  uint64_t blocks = 0;  // of which anything is known; 0: it is no block
  uint64_t bytes = 0;   // of those
  bool by_lines = false;
  uint64_t reads = 0;  // faults; of lines, misses
  uint64_t writes = 0;
  uint64_t diffs = 0;
  uint64_t diff_bytes = 0;
  uint64_t ns = 0;
  uint64_t pages = 0;             // that had faults or diffs
  uint64_t visits = 0;            // the same, for each node that had them
  uint64_t written = 0;           // pages that any node wrote
  uint64_t written_by_many = 0;   // of these, by two or more nodes
  uint64_t written_remotely = 0;  // of these, by one node which is not the page's home
  unsigned nodes = 0;             // that had faults or diffs
  Advice advice;
};

struct LineOfFaults {
  std::string place;   // "relax at grid.c:17"
  std::string memory;  // the name of the memory in which its last fault was
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t ns = 0;
  unsigned nodes = 0;
  Advice advice;
};

struct ObjectOfWaits {
  std::string name;   // "lock of water.c:31"
  std::string place;  // the call
  bool is_lock = false;
  bool is_barrier = false;
  uint64_t waits = 0;
  uint64_t fetched = 0;
  uint64_t longest_ns = 0;
  uint64_t ns = 0;
  unsigned nodes = 0;
  Advice advice;
};

// What cost most comes first; each list has at most kMost entries.
struct CostReport {
  static constexpr size_t kMost = 8;
  std::vector<MemoryCost> memory;
  std::vector<LineOfFaults> lines;
  std::vector<ObjectOfWaits> waits;
  // What the lists have no room for, and what found no entry in the nodes' tables, in the lists' order.
  uint64_t other_ns[3] = {0, 0, 0};
  bool empty() const { return memory.empty() && lines.empty() && waits.empty(); }
};

// The command line that would start the run again.
struct RunCommand {
  std::vector<std::pair<std::string, std::string>> options;  // of mgrun, with their values; a flag's is empty
  std::vector<std::string> program;                          // with its arguments
  // Returns the command with this option in place of what was said of it.
  [[nodiscard]] std::string with(const std::string& option, const std::string& value) const;
};

// Names what the tables know by numbers.
struct CostNames {
  struct Block {
    std::string name;
    uint64_t begin = 0;  // 0: it is no block
    uint64_t size = 0;
  };
  std::function<Block(uint64_t address)> block;
  std::function<std::string(uint64_t address)> instruction;
  std::function<std::string(uint64_t return_address)> call;
  std::function<std::string(uint32_t call, uint64_t object)> object;
};

// What the advice depends on besides the counts.
struct CostContext {
  unsigned nodes = 1;
  size_t page_size = 4096;
  size_t line_size = 64;
  unsigned prefetch = 16;
  ProtocolKind protocol = ProtocolKind::kHlrc;
  HomePolicy home = HomePolicy::kInterleaved;
  bool has_checks = false;     // of mgcc
  uint64_t processors_ns = 0;  // the measured time of all processors added up
  RunCommand command;
  std::function<uint64_t(uint64_t page)> address_of;
  std::function<std::optional<NodeId>(uint64_t page)> home_of;  // nullopt: not known here
  std::function<bool(uint64_t page)> is_by_lines;
};

CostReport make_cost_report(const costs::Rows& rows, const CostContext& context, const CostNames& names);

// Returns the advice for one entry, for tests; make_cost_report() has given it to each.
Advice advise(const MemoryCost& cost, const CostContext& context);
Advice advise(const ObjectOfWaits& cost, const CostContext& context);

// Renders the report for people, or returns nothing if it is empty.
std::string render_costs(const CostReport& report, uint64_t processors_ns);

}  // namespace multigrain
