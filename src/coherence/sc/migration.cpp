// Migratory pages go from node to node, each of which reads them and then writes them, such as those of locks, queues,
// counters and sums. When threads of this node have used a page in that way, a thread that reads it gets the only copy,
// so that its write needs no second round trip. (Cox and Fowler, and Stenström, Brorsson and Sandberg, both 1993, do
// this in hardware, in the directory. Here each node does it for itself: it has seen all that it needs to know.)
//
// The thread gets the right to read alone (D4), so its write faults once more, inside the node. A page that is taken
// away without having been written shows by that, and is asked for as a copy again.
#include "coherence/sc/driver.h"

#ifndef MULTIGRAIN_LEARN
// Executes a statement that changes what a node has learnt of a page. A test that explores the driver defines it to do
// nothing: there the scenario says what the node has learnt, because otherwise no two states with different pasts would
// be the same.
#define MULTIGRAIN_LEARN(statement) statement
#endif

namespace multigrain::sc {

Access Driver::access_of_reader(const Record& record) {
  record.lock.assume_held();
  return record.migrates >= kMigrates ? Access::kReadToWrite : Access::kRead;
}

void Driver::note_fault(Record& record, Access access, bool was_readable, bool asks) {
  if (access == Access::kWrite) {
    // The node had a copy to read, and now asks for the only copy, or has it.
    const bool has_migrated = was_readable && (asks || record.for_reader);
    if (has_migrated && record.migrates < kMigrates) MULTIGRAIN_LEARN(++record.migrates);
    record.for_reader = false;
  } else if (asks) {
    record.for_reader = access == Access::kReadToWrite;
  }
}

// Called for a copy that goes away.
void Driver::note_taken_away(Record& record) {
  const bool was_only_read = record.for_reader || (record.right == Right::kRead && record.migrates < kMigrates);
  if (was_only_read) MULTIGRAIN_LEARN(record.migrates = 0);
  record.for_reader = false;
}

}  // namespace multigrain::sc
