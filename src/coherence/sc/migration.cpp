// Pages that go from node to node, each of which reads them and then writes them: locks, queues, counters, sums. Where a
// page has done so, a thread that reads it gets the only copy, so that its write needs no second round trip. (Cox and Fowler,
// and Stenström, Brorsson and Sandberg, both 1993, do this in hardware, by the directory. Here each node does it for itself: what it
// needs to know it has seen.)
//
// The thread gets the right to read alone (D4): its write faults once more, inside the node. So a page that is taken away and
// was not written meanwhile shows, and is asked for as a copy again.
#include "coherence/sc/driver.h"

#ifndef MULTIGRAIN_LEARN
// What a node has learnt of a page, and acts on. In a test that explores the driver it is the scenario that says what, and it stays
// so: else no two states with different pasts were the same.
#define MULTIGRAIN_LEARN(statement) statement
#endif

namespace multigrain::sc {

Access Driver::access_of_reader(const Record& record) {
  record.lock.assume_held();
  return record.migrates >= kMigrates ? Access::kReadToWrite : Access::kRead;
}

void Driver::note_fault(Record& record, Access access, bool was_readable, bool asks) {
  if (access == Access::kWrite) {
    // It had a copy to read, and asks for the only one, or has it.
    const bool has_migrated = was_readable && (asks || record.for_reader);
    if (has_migrated && record.migrates < kMigrates) MULTIGRAIN_LEARN(++record.migrates);
    record.for_reader = false;
  } else if (asks) {
    record.for_reader = access == Access::kReadToWrite;
  }
}

// Of a copy that goes away.
void Driver::note_taken_away(Record& record) {
  const bool was_only_read = record.for_reader || (record.right == Right::kRead && record.migrates < kMigrates);
  if (was_only_read) MULTIGRAIN_LEARN(record.migrates = 0);
  record.for_reader = false;
}

}  // namespace multigrain::sc
