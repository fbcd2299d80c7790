# The deliberate faults of MGS's driver (mgs_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL mgs)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(driver)

# kPrepareAfterTransition
mutate([[  const uint32_t seen = record.changed.prepare();
]] [[  uint32_t seen = record.changed.prepare();
]])
mutate([[  // This comes before the wait, so that the home, if it has to be woken, finds all requests at once.
]] [[  if (is(Mutant::kPrepareAfterTransition)) {
    MULTIGRAIN_LOCK_STEP(record.lock);
    seen = record.changed.prepare();
  }
]])

# kIgnoreOtherReleases
mutate([[  if (!queue_.empty()) return false;
]] [[  if (!queue_.empty()) return false;
  if (is(Mutant::kIgnoreOtherReleases)) return true;
]])
mutate([[  if (released == 0 && releases_.pending() == 0) return;
]] [[  if (released == 0 && (releases_.pending() == 0 || is(Mutant::kIgnoreOtherReleases))) return;
]])

# kMarkBeforePages, kOneEpoch
mutate([[  const uint64_t limit = queue_.pushed();
]] [[  const uint64_t early_mark = is(Mutant::kMarkBeforePages) ? releases_.mark() : 0;
  const uint64_t limit = queue_.pushed();
]])
mutate([[  const uint64_t mark = releases_.mark();
]] [[  const uint64_t mark = is(Mutant::kMarkBeforePages) ? early_mark : releases_.mark() - (is(Mutant::kOneEpoch) ? 1 : 0);
]])

# kForgetsToFinish, kSlotOfLastRelease
mutate([[        if (joins || !must_wait) releases_.finish(slot);
]] [[        if ((joins && !is(Mutant::kForgetsToFinish)) || !must_wait) releases_.finish(slot);
]])
mutate([[        if (!joins) record.release_slot = slot;
]] [[        if (!joins || is(Mutant::kSlotOfLastRelease)) record.release_slot = slot;
]])

# kActionsWithoutLock
mutate([[  const LockGuard hold(record.lock);
  if (!mgs::on_message]] [[  std::unique_lock hold(record.lock);
  if (!mgs::on_message]])
mutate([[  perform(page, record, actions, &message);
}

// --- Actions]] [[  if (is(Mutant::kActionsWithoutLock)) hold.unlock();
  perform(page, record, actions, &message);
}

// --- Actions]])

# kMapBeforeQueue, kDiffBeforeUnmap
mutate([[  bool left_readable = false;
  while (true) {
    bool unmapped = false;
]] [[  for (size_t i = 1; i < actions.size() && is(Mutant::kMapBeforeQueue); ++i)
    if (actions[i - 1].verb == Verb::kQueue && actions[i].verb == Verb::kMapWrite)
      std::swap(const_cast<Action&>(actions[i - 1]), const_cast<Action&>(actions[i]));
  bool unmaps_late = false;
  bool left_readable = false;
  while (true) {
    bool unmapped = false;
]])
mutate([[      if (action.verb == Verb::kUnmap) {
]] [[      if (action.verb == Verb::kUnmap && is(Mutant::kDiffBeforeUnmap)) {
        unmapped = unmaps_late = true;
      } else if (action.verb == Verb::kUnmap) {
]])
mutate([[    if (!unmapped) return;
]] [[    if (!unmapped && unmaps_late) unmap(page, record);
    if (!unmapped) return;
]])

# kMergeDiffAtOnce
mutate([[      keep_diff(page, record, *message);
      return;
]] [[      if (is(Mutant::kMergeDiffAtOnce)) return merge(page, message->payload, message->from);
      keep_diff(page, record, *message);
      return;
]])

# kLoseWake
mutate([[      record.changed.notify();
]] [[      if (!is(Mutant::kLoseWake)) record.changed.notify();
]])

# kForgetQueueEntry, kNoTwin
mutate([[  std::byte* const buffer = diffs_.acquire();
]] [[  if (is(Mutant::kForgetQueueEntry)) record.page.client.queued.clear();
  for (size_t i = 0; i < explored::kBytesUsed && is(Mutant::kNoTwin); ++i) record.twin[i] = ~frame(page)[i];
  std::byte* const buffer = diffs_.acquire();
]])

in_file(delayed_update_queue)

# kUncountedPages
mutate([[  const LockGuard hold(lock_);
  size_t n = 0;
]] [[  std::unique_lock hold(lock_);
  size_t n = 0;
]])
mutate([[  if (n != 0) slot = releases.begin(static_cast<uint32_t>(n));
]] [[  if (is(Mutant::kUncountedPages)) {
    size_.store(tail_ - head_, std::memory_order_release);
    hold.unlock();
  }
  if (n != 0) slot = releases.begin(static_cast<uint32_t>(n));
  if (is(Mutant::kUncountedPages)) return n;
]])

in_file(transitions)

# kUpgradeBehindRelease
mutate([[  if (client_.release_pending) return false;
  client_.state]] [[  if (client_.release_pending && !is(Mutant::kUpgradeBehindRelease)) return false;
  client_.state]])

# kDataBeforeRack
mutate([[  to(released, MessageKind::kRack);
  to(server_.read_dir, MessageKind::kRdat, Verb::kSendPage);
  to(server_.write_dir, MessageKind::kWdat, Verb::kSendPage);
]] [[  if (!is(Mutant::kDataBeforeRack)) to(released, MessageKind::kRack);
  to(server_.read_dir, MessageKind::kRdat, Verb::kSendPage);
  to(server_.write_dir, MessageKind::kWdat, Verb::kSendPage);
  if (is(Mutant::kDataBeforeRack)) to(released, MessageKind::kRack);
]])

in_file("")
