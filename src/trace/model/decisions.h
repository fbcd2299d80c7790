// What the placement of a run did (mgrun --record): the log beside the run's trace, and what that placement costs.
//
// The log has the events of the run's pages, each at its place in the trace: how many references come before it. So it says which
// node could use which page at each reference, and that is checked: a log that does not fit its trace is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "placement/policy.h"
#include "record/streams.h"
#include "trace/model/machine.h"
#include "trace/model/pass.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

// An event, as record::EventRecord has it, which explains its fields.
struct PlacementEvent {
  uint64_t position = 0;  // so many references of the trace come before it
  uint64_t page = 0;      // address / page size
  uint64_t policy_page = 0;
  uint64_t now = 0;
  uint64_t holders = 0;
  uint16_t node = 0;
  record::EventKind kind{};
  uint8_t right = 0;
  uint8_t answer = 0;
  uint8_t placement = 0;
  uint8_t between_bursts = 0;  // 1: burst sampling left out what was referred to then
  uint8_t reserved = 0;
  friend bool operator==(const PlacementEvent&, const PlacementEvent&) = default;
};
static_assert(sizeof(PlacementEvent) == 48);

// A digest of a trace's references, in their order.
class TraceDigest {
 public:
  void add(const Reference& reference);
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

struct DecisionLog {
  unsigned nodes = 0;  // the trace's processors are the nodes
  uint64_t page_size = 0;
  std::string policy;  // as --policy names it, with parameters
  std::string program;
  uint64_t references = 0;             // of the trace
  uint64_t digest = 0;                 // TraceDigest
  std::vector<PlacementEvent> events;  // by position
};

// The log of the trace of that name.
std::string decisions_path(const std::string& trace);

// docs/internals/trace-format.md has the format. Writing replaces the file. Errors name the file; of reading also: it is no log; of
// another version; torn; damaged; what an event says is none.
Status write_decisions(const std::string& path, const DecisionLog& log);
Result<DecisionLog> read_decisions(const std::string& path);

// The policy of a run as the simulator of traces asks it: it has two answers (coherence/placement/cache_policy.h), is not asked
// about pinned pages, and its time is that of the run. The time at a reference lies between the times of the decisions before
// and behind it. `log` outlives the policy. Errors: the log's policy is none that a run can have.
Result<std::unique_ptr<placement::Policy>> policy_of_run(const DecisionLog& log);

// What the run's own placement costs.
struct RunPlacement {
  CostParts parts;  // with private references
  uint64_t references = 0;
  uint64_t private_references = 0;
  uint64_t decisions = 0;
  uint64_t writes = 0;  // of the references in the trace
  uint64_t global_writes = 0;
  uint64_t unreferenced_moves = 0;    // moves of pages for accesses that are not in the trace
  uint64_t moves_between_bursts = 0;  // that the parts do not have, since no reference of a burst is of such a page
};

// Follows the log through its trace. The trace has bursts of references: what moved between two of them has moved once, when the
// later one refers to it, and otherwise not at all; so it is a placement of the trace, too. Errors, which name the page and the event or reference: nodes would have rights at the same
// time that exclude each other; a reference is made without the right; the policy would not have answered so; the trace is
// another one.
Result<RunPlacement> follow(const DecisionLog& log, TraceSource& trace, const PassOptions& options = {});

}  // namespace multigrain::trace
