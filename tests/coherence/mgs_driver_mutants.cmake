# The deliberate faults of MGS's driver (mgs_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL mgs)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(driver)

# These are in reads.cpp.
mutate([[// --- Start
]] [[void forget_readers(OwnWords& words, PageId page, bool& is_open);
NodeSet readers_found_late(OwnWords& words, PageId page, bool& is_open, NodeId home);

// --- Start
]])

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
mutate([[  if (!of.queue.empty()) return false;
]] [[  if (!of.queue.empty()) return false;
  if (is(Mutant::kIgnoreOtherReleases)) return true;
]])
mutate([[  if (released == 0 && releases.pending() == 0) return;
]] [[  if (released == 0 && (releases.pending() == 0 || is(Mutant::kIgnoreOtherReleases))) return;
]])

# kMarkBeforePages, kOneEpoch
mutate([[  const uint64_t limit = queue.pushed();
]] [[  const uint64_t early_mark = is(Mutant::kMarkBeforePages) ? releases.mark() : 0;
  const uint64_t limit = queue.pushed();
]])
mutate([[  const uint64_t mark = releases.mark();
]] [[  const uint64_t mark = is(Mutant::kMarkBeforePages) ? early_mark : releases.mark() - (is(Mutant::kOneEpoch) ? 1 : 0);
]])

# kForgetsToFinish, kSlotOfLastRelease, kJoinsOthers, kFinishesFirst
mutate([[        const bool joins = record.page.client.releasing.contains(domain);
        if (!joins) {
]] [[        const bool joins = is(Mutant::kJoinsOthers) ? record.page.client.release_pending : record.page.client.releasing.contains(domain);
        if (!joins || is(Mutant::kSlotOfLastRelease)) {
]])
mutate([[        if (joins || !must_wait) releases.finish(slot);
]] [[        if ((joins && !is(Mutant::kForgetsToFinish)) || !must_wait) releases.finish(slot);
]])
mutate([[      action.domains.for_each(
]] [[      if (is(Mutant::kFinishesFirst)) return domains_[action.domains.first().value].releases.finish(record.in_slot_1.contains(action.domains.first()) ? 1 : 0);
      action.domains.for_each(
]])

# kShootsOneDown
mutate([[    options_.mappings->unmap(domains, page);
]] [[    options_.mappings->unmap(is(Mutant::kShootsOneDown) ? DomainSet::of(domains.first()) : domains, page);
]])

# kActionsWithoutLock
mutate([[  const LockGuard hold(record.lock);
  close(page, record);
  if (!mgs::on_message]] [[  std::unique_lock hold(record.lock);
  if (kind == MessageKind::kRel && is(Mutant::kReadersForgottenAtRel)) forget_readers(words_, page, record.is_open);
  if (kind != MessageKind::kRel || !is(Mutant::kReadersFoundLate)) close(page, record);
  if (!mgs::on_message]])
mutate([[  perform(page, record, actions, &message);
  open(page, record);
}

// --- Actions]] [[  if (is(Mutant::kActionsWithoutLock)) hold.unlock();
  if (kind == MessageKind::kRel && is(Mutant::kReadersFoundLate)) record.page.server.read_dir = record.page.server.read_dir | readers_found_late(words_, page, record.is_open, self_);
  if (is(Mutant::kOpenBeforeMerge)) open(page, record);
  perform(page, record, actions, &message);
  if (!is(Mutant::kOpenBeforeMerge)) open(page, record);
}

// --- Actions]])

# kReadersForgottenAtGrant
mutate([[    close(page, record);
    const PageState state]] [[    if (is_write && is(Mutant::kReadersForgottenAtGrant)) forget_readers(words_, page, record.is_open);
    close(page, record);
    const PageState state]])

# kMapBeforeQueue, kDiffBeforeUnmap
mutate([[  bool left_readable = false;
  while (true) {
    DomainSet unmapped;
]] [[  for (size_t i = 1; i < actions.size() && is(Mutant::kMapBeforeQueue); ++i)
    if (actions[i - 1].verb == Verb::kQueue && actions[i].verb == Verb::kMapWrite)
      std::swap(const_cast<Action&>(actions[i - 1]), const_cast<Action&>(actions[i]));
  DomainSet unmaps_late;
  bool left_readable = false;
  while (true) {
    DomainSet unmapped;
]])
mutate([[      if (action.verb == Verb::kUnmap) {
]] [[      if (action.verb == Verb::kUnmap && is(Mutant::kDiffBeforeUnmap)) {
        unmapped = unmaps_late = to_unmap(actions);
      } else if (action.verb == Verb::kUnmap) {
]])
mutate([[    if (unmapped.empty()) return;
]] [[    if (unmapped.empty() && !unmaps_late.empty()) unmap(page, record, unmaps_late);
    if (unmapped.empty()) return;
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

in_file(reads)

# kReadersForgottenAtRel, kReadersForgottenAtGrant, kReadersFoundLate: what driver.cpp calls for them
mutate([[void Driver::close(PageId page, Record& record) {
]] [[void forget_readers(OwnWords& words, PageId page, bool& is_open) {
  if (is_open) words.exchange(PageWord::at(page), PageWord::kClosed);
  is_open = false;
}

NodeSet readers_found_late(OwnWords& words, PageId page, bool& is_open, NodeId home) {
  if (!is_open) return {};
  is_open = false;
  return PageWord(words.exchange(PageWord::at(page), PageWord::kClosed), home).readers();
}

void Driver::close(PageId page, Record& record) {
]])

# kKeepsReaders
mutate([[  words_.exchange(PageWord::at(page), PageWord::bit(self_));
]] [[  uint64_t word = PageWord::bit(self_);
  if (is(Mutant::kKeepsReaders)) word |= record.page.server.read_dir.bits();
  words_.exchange(PageWord::at(page), word);
]])

# kReadsClosed, kGetsClosed
mutate([[    if (!fetch[i].is_open()) {
]] [[    if (!fetch[i].is_open() && !is(Mutant::kReadsClosed)) {
]])
mutate([[    if (!fetch[i].is_open()) continue;
]] [[    if (!fetch[i].is_open() && !is(Mutant::kReadsClosed) && !is(Mutant::kGetsClosed)) continue;
]])

# kGetBeforeAdd
mutate([[  for (uint32_t i = 0; i < fetch.size(); ++i) {
    Fetch::Part& part = fetch[i];
]] [[  for (uint32_t i = 0; i < fetch.size(); ++i) {
    Fetch::Part& part = fetch[i];
    if (is(Mutant::kGetBeforeAdd))
      fabric.start_get(part.home, SegmentId::kFrames, offset(part.page), {frame(part.page), page_size_});
]])
mutate([[    gets[started++] = fabric.start_get(]] [[    if (!is(Mutant::kGetBeforeAdd)) gets[started++] = fabric.start_get(]])

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

# kMapsVoid
mutate([[  if (client_.fetch_is_void) {
    client_.fetch_is_void = false;
    refused();
]] [[  if (client_.fetch_is_void && is(Mutant::kMapsVoid)) client_.fetch_is_void = false;
  if (client_.fetch_is_void) {
    client_.fetch_is_void = false;
    refused();
]])

# kOpenUnderSingleWriter
mutate([[  return page.server.state == ServerState::kRead || page.server.state == ServerState::kWrite;
]] [[  if (is(Mutant::kOpenUnderSingleWriter) && page.server.state == ServerState::kSwrite) return true;
  return page.server.state == ServerState::kRead || page.server.state == ServerState::kWrite;
]])

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
