# The deliberate faults of sequentially consistent pages (sc_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL sc)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(transitions)

# kHoldsWhileAsking
mutate([[  p_.pending = what;
  p_.held = false;]] [[  p_.pending = what;
  if (!is(Mutant::kHoldsWhileAsking)) p_.held = false;]])
# kAsksWhileToGo
mutate([[  ++p_.waiting_to_write;
  if (!p_.is_to_go()) request]] [[  ++p_.waiting_to_write;
  if (!p_.is_to_go() || is(Mutant::kAsksWhileToGo)) request]])
# kNoAcknowledgements
mutate([[  if (p_.acks < 0) return false;
  if (p_.acks == 0) on_complete();]] [[  if (is(Mutant::kNoAcknowledgements)) p_.acks = 0;
  if (p_.acks < 0) return false;
  if (p_.acks == 0) on_complete();]])
mutate([[  if (p_.replied && p_.acks <= 0) return false;
]] [[  if (is(Mutant::kNoAcknowledgements)) return true;
  if (p_.replied && p_.acks <= 0) return false;
]])
mutate([[p_.pending == Pending::kWrite;
  const bool from_home]] [[p_.pending == Pending::kWrite || is(Mutant::kNoAcknowledgements);
  const bool from_home]])
# kServedTooEarly, kNoHold
mutate([[  if (p_.replied || p_.state == State::kInvalid) return;
]] [[  if ((p_.replied && !is(Mutant::kServedTooEarly)) || p_.state == State::kInvalid) return;
  if (is(Mutant::kNoHold)) p_.held = false;
]])
# kInvalidationLost
mutate([[  p_.has_invalidation = true;
  p_.invalidation = requester;
]] [[  if (is(Mutant::kInvalidationLost) && p_.state == State::kInvalid) {
    to(requester, {.kind = MessageKind::kInvalidated, .requester = requester});
    return true;
  }
  p_.has_invalidation = true;
  p_.invalidation = requester;
]])
# kReadersForgotten
mutate([[  act(Verb::kMapWrite);
  grant_readers();]] [[  act(Verb::kMapWrite);
  if (!is(Mutant::kReadersForgotten)) grant_readers();]])
# kReaderNotGranted
mutate([[  ++p_.waiting_to_read;
  request(wanted);]] [[  if (!is(Mutant::kReaderNotGranted) || wanted == Pending::kRead) ++p_.waiting_to_read;
  request(wanted);]])
# kSupplierKeepsRight
mutate([[  if (p_.state == State::kExclusive) act]] [[  if (p_.state == State::kExclusive && !is(Mutant::kSupplierKeepsRight)) act]])
# kReturningForgotten
mutate([[  MG_CHECK(p_.held && p_.returning == 0, p_.returning);]] [[  MG_CHECK(p_.held && (p_.returning == 0 || is(Mutant::kReturningForgotten)), p_.returning);]])
# kStaleSupplier
mutate([[  return p_.sharers.contains(context_.self) && p_.is_readable() ?]] [[  return (p_.sharers.contains(context_.self) || is(Mutant::kStaleSupplier)) && p_.is_readable() ?]])
# kClearsOneCopy, kClearsWhileHeld
mutate([[  if (has_no_request() && p_.state == State::kExclusive && !p_.held) {]] [[  const bool is_alone = p_.state == State::kExclusive || (is(Mutant::kClearsOneCopy) && p_.state == State::kShared);
  if (has_no_request() && is_alone && (!p_.held || is(Mutant::kClearsWhileHeld))) {]])
mutate([[  MG_CHECK(p_.returning == 0 && p_.waiting_to_read]] [[  MG_CHECK((p_.returning == 0 || is(Mutant::kClearsWhileHeld)) && p_.waiting_to_read]])
# kClearedReadable
mutate([[  act(Verb::kRevoke);
  act(Verb::kClear);]] [[  if (!is(Mutant::kClearedReadable)) act(Verb::kRevoke);
  act(Verb::kClear);]])
in_file(discards)

# kDiscardForgotten
mutate([[  answer.word[0] = deferred;]] [[  answer.word[0] = is(Mutant::kDiscardForgotten) ? 0 : deferred;]])
in_file(driver)

# kReturningForgotten
mutate([[return returning == 0 &&]] [[return (returning == 0 || is(Mutant::kReturningForgotten)) &&]])
# kDataBeforeRights, kAckBeforeRights
mutate([[  for (const Action& action : actions) {
    switch (action.verb) {]] [[  Actions reordered;
  const bool late = is(Mutant::kDataBeforeRights) || is(Mutant::kAckBeforeRights);
  const Verb early = is(Mutant::kDataBeforeRights) ? Verb::kSendPage : Verb::kSend;
  if (late) {
    for (const Action& action : actions) if (action.verb == early) reordered.push(action);
    for (const Action& action : actions) if (action.verb != early) reordered.push(action);
  } else if (is(Mutant::kMapsBeforeData)) {
    for (const Action& action : actions) if (action.verb == Verb::kMapRead || action.verb == Verb::kMapWrite) reordered.push(action);
    for (const Action& action : actions) if (action.verb != Verb::kMapRead && action.verb != Verb::kMapWrite) reordered.push(action);
  } else {
    for (const Action& action : actions) reordered.push(action);
  }
  for (const Action& action : reordered) {
    switch (action.verb) {]])
# kHoldNotAwaited, kListedTwice
mutate([[  if (record.is_listed || outstanding.waiting.returning != 0) return;
]] [[  if (is(Mutant::kHoldNotAwaited)) return;
  if ((record.is_listed && !is(Mutant::kListedTwice)) || outstanding.waiting.returning != 0) return;
]])
# kOnePageOfRun
mutate([[        take_pages(first, count, *message]] [[        take_pages(first, is(Mutant::kOnePageOfRun) ? 1 : count, *message]])
# kWakesNobody
mutate([[{ records_.outstanding(record).readers.notify(); }]] [[{ if (!is(Mutant::kWakesNobody)) records_.outstanding(record).readers.notify(); }]])
# kGrantSeenLate
mutate([[  if (resolved) return true;
  {
    const CategoryScope]] [[  if (resolved) return true;
  if (is(Mutant::kGrantSeenLate)) {
    MULTIGRAIN_STEP(&listed_);
    seen = granted->prepare();
  }
  {
    const CategoryScope]])
in_file(records)

# kGrantedForgotten, kListForgotten
mutate([[  if (!page.nothing_waits() || record.is_listed)]] [[  Page as_kept = page;
  if (is(Mutant::kGrantedForgotten)) as_kept.returning = 0;
  if (!as_kept.nothing_waits() || (record.is_listed && !is(Mutant::kListForgotten)))]])
in_file(run)

# kUnlikeInRun, kUnlikeRightsInRun
mutate([[record.right == right_ && record.is_prefetched == is_prefetched_ &&
                        record.for_reader == for_reader_ && std::ranges::equal(asked, lists_[current_]);]] [[(is(Mutant::kUnlikeRightsInRun) || (record.right == right_ && record.is_prefetched == is_prefetched_ && record.for_reader == for_reader_)) &&
                        (is(Mutant::kUnlikeInRun) || std::ranges::equal(asked, lists_[current_]));]])
# kRunUnlockedEarly
mutate([[  if (count_ == 0) return;
  driver_.perform]] [[  if (count_ == 0) return;
  if (is(Mutant::kRunUnlockedEarly)) {
    for (uint32_t i = 0; i < count_; ++i) driver_.records_[PageId(first_.value + i)].lock.unlock();
    driver_.perform(first_, std::exchange(count_, 0), lists_[current_], message_);
    return;
  }
  driver_.perform]])
in_file(prefetch)

# kOpensWhatIsNotHere
mutate([[record.is_prefetched && is_here &&]] [[record.is_prefetched && (is_here || is(Mutant::kOpensWhatIsNotHere)) &&]])
in_file("")
