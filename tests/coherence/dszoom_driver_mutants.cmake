# The deliberate faults of DSZOOM's driver (dszoom_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL dszoom)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(operations)

# A mutant may give a step its operations in another order, or fewer or more of them.
mutate([[  for (const Operation& operation : step) under_way.start(operation);
]] [[  const Step as_mutated = explored::mutated(step);
  for (const Operation& operation : as_mutated) under_way.start(operation);
]])
mutate([[  for (const Operation& operation : step) {
    switch (operation.verb) {
      case Verb::kFill:
]] [[  const Step as_mutated = explored::mutated(step);
  for (const Operation& operation : as_mutated) {
    switch (operation.verb) {
      case Verb::kFill:
]])

# kIgnoresLock
mutate([[      outcome_.entry = entries_[0];
]] [[      outcome_.entry = is(Mutant::kIgnoresLock) ? entries_[0] & ~kLocked : entries_[0];
]])

# kForgetsReader
mutate([[void Driver::unlock(NodeId home, uint64_t line, uint64_t entry) {
]] [[void Driver::unlock(NodeId home, uint64_t line, uint64_t entry) {
  if (NodeSet have = holders(entry, home); is(Mutant::kForgetsReader) && have.size() > 1) {
    have.erase(self_);
    entry = make_entry(have, home);
  }
]])

# kRunOfOtherHolders
mutate([[run < entries.size() && holders(entries[run], line.home) == holders(entries[0], line.home))
]] [[run < entries.size() && (is(Mutant::kRunOfOtherHolders) ||
         holders(entries[run], line.home) == holders(entries[0], line.home)))
]])

# kKeepsRunLocked
mutate([[    if (!is_locked(i)) unlock(line.home, line.number + i, entries[i]);
]] [[    if (!is_locked(i) && !is(Mutant::kKeepsRunLocked)) unlock(line.home, line.number + i, entries[i]);
]])

# kUnlocksOthers
mutate([[  for (uint32_t i = run; i < entries.size(); ++i)
    if (!is_locked(i) &&]] [[  for (uint32_t i = run; i < entries.size(); ++i)
    if ((!is_locked(i) || is(Mutant::kUnlocksOthers)) &&]])

# kLooksAtFirstOfRun
mutate([[    if (covers(hazards[i], line.number, line.run, loads) && scan]] [[    if (covers(hazards[i], line.number, is(Mutant::kLooksAtFirstOfRun) ? 1 : line.run, loads) && scan]])

# kRevokesFirstOfRun
mutate([[        swap_words_of_run(operation.node, operation.word, ignored_);
]] [[        if (is(Mutant::kRevokesFirstOfRun))
          swap(operation.node, SegmentId::kLines, line_.number * sizeof(uint64_t), operation.word, ignored_[0]);
        else
          swap_words_of_run(operation.node, operation.word, ignored_);
]])

# kKnowsLate
mutate([[                           scans_[i].epoch_before, scan_, outcome_);
]] [[                           is(Mutant::kKnowsLate) ? driver_.epochs_of_[scans_[i].node.value].load() : scans_[i].epoch_before,
                           scan_, outcome_);
]])

# kFirstLookInVain
mutate([[  if (!epoch_validates(node, hazards[kEpochIndex], epoch_before, scan, outcome)) return;
]] [[  if (!epoch_validates(node, hazards[kEpochIndex], epoch_before, scan, outcome) && !is(Mutant::kFirstLookInVain)) return;
]])

# kTrustsOdd, kReplacesThenTakes
mutate([[  if (scan.has_scanned(node)) return true;
]] [[  if (is(Mutant::kReplacesThenTakes)) return true;
  if (is(Mutant::kTrustsOdd) && (epoch & ~uint64_t{MG_FINE_EPOCH_CACHED}) == before) return true;
  if (scan.has_scanned(node)) return true;
]])

in_file(driver)

# kWaitsWithHazard
mutate([[  miss.begin(step);
]] [[  miss.begin(step);
  if (is(Mutant::kWaitsWithHazard)) publish_hazard(make_hazard(line.number, 1, stores));
]])

# kClearsThenReads
mutate([[  miss(line, Wanted::kRightAhead, {});
]] [[  miss(line, Wanted::kRightAhead, {});
  if (is(Mutant::kClearsThenReads)) clear_hazard();
]])

in_file("")
