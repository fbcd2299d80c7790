# The deliberate faults of Shasta's driver (shasta_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL shasta)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(messages)

# kIgnoresAcks
mutate([[  Arrival arrival{
]] [[  if (is(Mutant::kIgnoresAcks) && kind == MessageKind::kInvalidated) return;
  Arrival arrival{
]])
mutate([[.acks = static_cast<uint16_t>(header.extra)}]]
       [[.acks = static_cast<uint16_t>(is(Mutant::kIgnoresAcks) ? 0 : header.extra)}]])

# kTouchedBeforeLock
mutate([[  bool wakes = false;
  {
    const Hold hold_blocks(lock_);
]] [[  bool wakes = false;
  if (is(Mutant::kTouchedBeforeLock)) MULTIGRAIN_STEP(&pages_[page_of(at.first)].touched);
  const bool is_touched = pages_[page_of(at.first)].touched.load();
  {
  const Hold hold_blocks(lock_);
  struct Found {
    explored::Found& found;
    Found(NodeId node, bool value) : found(explored::found_touched[node.value]) {
      if (is(Mutant::kTouchedBeforeLock)) found = value ? explored::Found::kTouched : explored::Found::kUntouched;
    }
    ~Found() { found = explored::Found::kNothing; }
  } const found(self_, is_touched);
]])

# kOvertakesDeferred
mutate([[      if (deferred_count_.load(std::memory_order_relaxed) != 0 || !carry_out]]
       [[      if (is(Mutant::kOvertakesDeferred) && carry_out(at, &arrival)) {
      } else if (deferred_count_.load(std::memory_order_relaxed) != 0 || !carry_out]])

in_file(pages)

# kPublishesWithoutLock
mutate([[  // The home has every block that no other node has asked for. Compiled checks need to see that.
  const Hold hold_blocks(lock_);
]] [[  std::optional<Hold> hold_blocks;
  if (!is(Mutant::kPublishesWithoutLock)) hold_blocks.emplace(lock_);
]])

# kClaimAlwaysWins
mutate([[    home = services_.homes.claim_home(page);
]] [[    home = services_.homes.claim_home(page);
    if (is(Mutant::kClaimAlwaysWins)) home = self_;
]])

# kTouchedBeforeFlags
mutate([[  // No other thread writes to this frame before this node has asked for a block, for which the page must be touched.
  if (home != self_) fill]] [[  if (is(Mutant::kTouchedBeforeFlags)) {
    services_.rights.grant_write(page, 1);
    record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_relaxed);
    MULTIGRAIN_STEP(&record.touched);
    record.touched.store(true, std::memory_order_release);
  }
  if (home != self_) fill]])

in_file(rights)

# kTouchedBeforeLock
mutate([[      touched.load(std::memory_order_acquire) ? bits_of]]
       [[      (explored::found_touched[self_.value] != explored::Found::kNothing
               ? explored::found_touched[self_.value] == explored::Found::kTouched
               : touched.load())
          ? bits_of]])

# kHazardsBeforeWords, kFirstWordOnly
mutate([[  for (uint64_t line = at.first; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  // Either]] [[  const bool cleared = !is(Mutant::kHazardsBeforeWords) || have_cleared(at, rights == 0, then);
  for (uint64_t line = at.first; line < at.first + (is(Mutant::kFirstWordOnly) ? 1 : at.lines); ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  if (is(Mutant::kHazardsBeforeWords)) return cleared;
  // Either]])

# kDoesNotWaitForHazards, kLoadsNotWaitedFor, kDoesNotForget, kForgetsLate
mutate([[  lines_.hazards.invalidate_rights_cache();
  return have_cleared(at, rights == 0, then);]] [[  if (!is(Mutant::kDoesNotForget) && !is(Mutant::kForgetsLate)) lines_.hazards.invalidate_rights_cache();
  if (is(Mutant::kDoesNotWaitForHazards)) return true;
  const bool have = have_cleared(at, rights == 0 && !is(Mutant::kLoadsNotWaitedFor), then);
  if (is(Mutant::kForgetsLate)) MULTIGRAIN_STEP(&lines_.hazards.rights_epoch());
  if (is(Mutant::kForgetsLate)) lines_.hazards.invalidate_rights_cache();
  return have;]])

# kWaitsInHandler
mutate([[    if (then == UnderHazards::kDefers) awaited_]] [[    if (is(Mutant::kWaitsInHandler)) {
      MULTIGRAIN_CHANGE_STEP(seen.word, seen.hazard);
      return;
    }
    if (then == UnderHazards::kDefers) awaited_]])

in_file(deferred_messages)

# kDoesNotAwait
mutate([[    if (!awaited_have_cleared()) return;
]] [[    if (is(Mutant::kDoesNotAwait)) awaited_count_ = 0;
    if (!awaited_have_cleared()) return;
]])

# kRetryIsLost
mutate([[  return !services_.fabric.is_attended();
]] [[  return !services_.fabric.is_attended() && !is(Mutant::kRetryIsLost);
]])

in_file(actions)

# kDoesNotUndo
mutate([[  block = undo_.block;
]] [[  if (!is(Mutant::kDoesNotUndo)) block = undo_.block;
]])

# kRestIsForgotten
mutate([[      if (record == nullptr) records_.add(at.first, block);
    }
    return]] [[      if (record == nullptr && !is(Mutant::kRestIsForgotten)) records_.add(at.first, block);
    }
    return]])

# kFlagsBeforeCopy
mutate([[    case Verb::kCopy:
]] [[    case Verb::kCopy:
      if (is(Mutant::kFlagsBeforeCopy) && (word(at.first).load() & kReadable) == 0) fill_with_flags(frame, bytes_of(at));
]])

# kNotMasked
mutate([[    case Verb::kMask: {
]] [[    case Verb::kMask: {
      if (is(Mutant::kNotMasked)) return;
]])

# kMasksUnderHazards
mutate([[!lower(at, rights, run.then)) {]] [[!lower(at, rights, run.then) &&
      !(is(Mutant::kMasksUnderHazards) && rights == 0 && block.is_readable())) {]])

# kNoFlags
mutate([[    case Verb::kWriteFlags:
]] [[    case Verb::kWriteFlags:
      if (is(Mutant::kNoFlags)) return;
]])

# kRecordRemovedEarly
mutate([[  if (!block.is_at_rest()) {
    if (record == nullptr)]] [[  if (is(Mutant::kRecordRemovedEarly) ? block.pending != Pending::kNone : !block.is_at_rest()) {
    if (record == nullptr)]])

# kNobodyIsWoken
mutate([[    if (slots_[i].wakes_on_any) wake(slots_[i]);
]] [[    if (slots_[i].wakes_on_any && !is(Mutant::kNobodyIsWoken)) wake(slots_[i]);
]])

# kOutstandingLate
mutate([[now > outstanding_.load(std::memory_order_relaxed))
]]     [[now > outstanding_.load(std::memory_order_relaxed) && !is(Mutant::kOutstandingLate))
]])

in_file(processor_slots)

# kRaisesFrozen
mutate([[  while (driver_.is_frozen(at)) wait(true);
]] [[  while (driver_.is_frozen(at) && !is(Mutant::kRaisesFrozen)) wait(true);
]])

# kLooksLate
mutate([[  slot.wakes_on_any = wakes_on_any;
  {]] [[  if (is(Mutant::kLooksLate)) {
    lock_.unlock();
    MULTIGRAIN_STEP(&deferred_count_);
    take(lock_);
  }
  slot.wakes_on_any = wakes_on_any;
  {]])

in_file(driver)

# kOpensWithoutLock, kDoesNotHold
mutate([[    MG_CHECK(word(line).load(std::memory_order_relaxed) == kExclusive, line);
    publish_hazard(store_hazard(line));
    if (*outcome]] [[    if (!is(Mutant::kOpensWithoutLock)) publish_hazard(store_hazard(line));
    if (is(Mutant::kDoesNotHold)) return;
    if (*outcome]])
mutate([[        records_.remove(at->first);
      }
    }
  }
  if (wakes)]] [[        records_.remove(at->first);
      }
    }
  }
  if (is(Mutant::kOpensWithoutLock)) publish_hazard(store_hazard(line));
  if (wakes)]])

# kForgetsForwarded
mutate([[        wakes = defer(*at, nullptr);
]] [[        wakes = !is(Mutant::kForgetsForwarded) && defer(*at, nullptr);
]])

in_file(transitions)

# kAnswersEarly
mutate([[void Transition::on_invalidate_reading(NodeId requester) {
]] [[void Transition::on_invalidate_reading(NodeId requester) {
  if (is(Mutant::kAnswersEarly)) return to(requester, {.kind = MessageKind::kInvalidated, .requester = requester});
]])

# kUpgradesAlways
mutate([[  const bool is_sharer = b_.sharers.contains(from);
]] [[  if (is(Mutant::kUpgradesAlways) && kind == MessageKind::kUpgrade) b_.sharers.insert(from);
  const bool is_sharer = b_.sharers.contains(from);
]])

# kFencesOwnOnly
mutate([[  if (!me.queue.empty()) return false;
]] [[  if (is(Mutant::kFencesOwnOnly)) return me.queue.empty();
  if (!me.queue.empty()) return false;
]])

# kDoesNotStall
mutate([[  const bool masks = is_rc() && what]] [[  const bool masks = (is_rc() || is(Mutant::kDoesNotStall)) && what]])

# kDoesNotHold
mutate([[      b_.granted.insert(p);
]] [[      if (!is(Mutant::kDoesNotHold)) b_.granted.insert(p);
]])
mutate([[bool on_hazard_published(Block& block, unsigned processor) {
]] [[bool on_hazard_published(Block& block, unsigned processor) {
  if (is(Mutant::kDoesNotHold)) return false;
]])

in_file("")
