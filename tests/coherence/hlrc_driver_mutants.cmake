# The deliberate faults of HLRC's driver (hlrc_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL hlrc)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(driver)

# kIgnoreFetchLog
mutate([[written_.empty() && fetch_log_.is_empty();]]
       [[written_.empty() && (is(Mutant::kIgnoreFetchLog) || fetch_log_.is_empty());]])

# kIgnoreOtherReleases, kPublishBeforeDeposit
mutate([[  end_interval(pages);
]] [[  if (is(Mutant::kIgnoreOtherReleases)) written_.published(pages.size());
  if (is(Mutant::kPublishBeforeDeposit)) {
    for (const PageId page : pages) append(notices_.add(page));
    append(notices_.close());
    raise_timestamp(self_, notices_.end());
  }
  end_interval(pages);
]])
mutate([[  written_.published(pages.size());
  count]] [[  if (!is(Mutant::kIgnoreOtherReleases)) written_.published(pages.size());
  count]])
mutate([[    if (noticed[i] == 0) continue;]] [[    if (noticed[i] == 0 || is(Mutant::kPublishBeforeDeposit)) continue;]])

# kKeepUnshared
mutate([[  on_fetched_elsewhere(record.page, actions);
  if (record.opened]] [[  if (!is(Mutant::kKeepUnshared) || record.page.state == PageState::kWrite)
    on_fetched_elsewhere(record.page, actions);
  if (record.opened]])

# kDiffBeforeRevoke
mutate([[    if (actions.contains(Verb::kRevokeWrite)) protect]]
       [[    if (actions.contains(Verb::kRevokeWrite) && !(is(Mutant::kDiffBeforeRevoke) && deposits[i])) protect]])
mutate([[      if (deposits[i]) deposit(pages[i], record_of(i), is_kept[i], under_way);
]] [[      if (deposits[i]) deposit(pages[i], record_of(i), is_kept[i], under_way);
    for (size_t i = 0; i < pages.size(); ++i)
      if (is(Mutant::kDiffBeforeRevoke) && deposits[i]) revoke_write(pages[i], 1);
]])

# kNoTwin
mutate([[  const Deposits::Change change]]
       [[  for (size_t i = 0; i < page_size_ && is(Mutant::kNoTwin); ++i) record.twin[i] = ~frame(page)[i];
  const Deposits::Change change]])

# kKeepUnlisted
mutate([[    if (actions.contains(Verb::kQueue)) written_.push(pages[i]);
]] [[    if (actions.contains(Verb::kQueue) && !is(Mutant::kKeepUnlisted)) written_.push(pages[i]);
]])

# kKeepTwin
mutate([[.updates_twin = is_kept};
]] [[.updates_twin = is_kept && !is(Mutant::kKeepTwin)};
]])

in_file(faults)

# kGrantBeforeQueue
mutate([[  // Before any of them becomes writable (H2).
]] [[  if (is(Mutant::kGrantBeforeQueue)) grant(run);
]])

# kForgetRest
mutate([[    return true;
  }
  record.page = before;
]] [[    return true;
  }
  if (!is(Mutant::kForgetRest)) record.page = before;
]])

in_file(acquires)

# kKnownBeforeInvalid
mutate([[    invalidate_runs(*runs);
]] [[    if (is(Mutant::kKnownBeforeInvalid))
      news.for_each([&](NodeId node) { known_[node.value].store(timestamp.time()[node.value]); });
    invalidate_runs(*runs);
]])

# kLogOnce, kKeepPrefetched
mutate([[  on_notice(record.page, context(record), is_used(record), actions);
]] [[  const Page before = record.page;
  on_notice(record.page, context(record), is_used(record), actions);
  if (is(Mutant::kLogOnce)) record.page.logged = before.logged;
  if (is(Mutant::kKeepPrefetched) && before.state == PageState::kPrefetched) record.page.state = before.state;
]])

# kNoDepositAtNotice, kForgetEarlyDeposit
mutate([[      if (!has(i, Verb::kDeposit)) continue;
      deposit(group.pages[i], records_[group.pages[i].value], false, under_way);
]] [[      if (!has(i, Verb::kDeposit)) continue;
      Record& record = records_[group.pages[i].value];
      if (is(Mutant::kNoDepositAtNotice)) {
        drop_twin(record);
        continue;
      }
      const Page before = record.page;
      deposit(group.pages[i], record, false, under_way);
      if (is(Mutant::kForgetEarlyDeposit)) record.page.notice_pending = before.notice_pending;
]])

# kMergeWhole, kMergeFrameOnly
mutate([[  const DepositedChanges changed = deposit_changes(frame(page), home_copy, record.twin, page_size_, true);]]
       [[  if (is(Mutant::kMergeWhole)) std::memcpy(frame(page), home_copy, page_size_);
  const DepositedChanges changed =
      deposit_changes(frame(page), home_copy, record.twin, page_size_, !is(Mutant::kMergeFrameOnly));]])

# kUpdateUnlogged
mutate([[      fetch.log = fetch_log_.start_append(home, {page, 1}, fetch.replaced);
]] [[      if (!is(Mutant::kUpdateUnlogged)) fetch.log = fetch_log_.start_append(home, {page, 1}, fetch.replaced);
]])

# kCatchUpAtBarrier
mutate([[left_ != arrived_.load(std::memory_order_acquire)) return;]]
       [[left_ != arrived_.load(std::memory_order_acquire) && !is(Mutant::kCatchUpAtBarrier)) return;]])

in_file(notice_reader)

# kIgnoreLap
mutate([[    if (!piece) {
      overwritten = true;
]] [[    if (!piece) {
      overwritten = !is(Mutant::kIgnoreLap);
]])
mutate([[      case NoticesRead::kOverwritten:
        overwritten = true;
]] [[      case NoticesRead::kOverwritten:
        overwritten = overwritten || !is(Mutant::kIgnoreLap);
]])

in_file(fetch_log)

# kIgnoreOverflow
mutate([[  return read_fetch_log(]] [[  const FetchLogEntry entry = read_fetch_log(]])
mutate([[position, capacity());
}

}  // namespace]] [[position, capacity());
  if (is(Mutant::kIgnoreOverflow) && entry.is == FetchLogEntry::Is::kOverwritten) return {};
  return entry;
}

}  // namespace]])

in_file(barriers)

# kNoticesBeforeMoves
mutate([[  // If one node alone]] [[  if (is(Mutant::kNoticesBeforeMoves)) apply_news(timestamp);
  // If one node alone]])

# kLinesBeforeHomes
mutate([[  // If one node alone]] [[  if (is(Mutant::kLinesBeforeHomes) && to_lines_ && to_lines_->lists())
    for_each_named_run(*to_lines_->lists(), [this](const NoticeRun& run, std::optional<NodeId>) { move_to_lines(run); });
  // If one node alone]])

# kMoveByKnowledge
mutate([[    if (on_episode_end(record.writers, writer) &&]]
       [[    if (is(Mutant::kMoveByKnowledge) && writer && home_plus_one == writer->value + 1u) continue;
    if (on_episode_end(record.writers, writer) &&]])

# kNewsOfOwnEpisode
mutate([[  invalidate_runs(gathered_->notices_for(self_, news));
]] [[  NodeSet unknown;
  news.for_each([&](NodeId node) {
    if (known_[node.value].load() == 0) unknown.insert(node);
  });
  invalidate_runs(gathered_->notices_for(self_, is(Mutant::kNewsOfOwnEpisode) ? unknown : news));
]])

# kOldHomeWrites
mutate([[    on_home_leaves(record.page, actions);
]] [[    if (is(Mutant::kOldHomeWrites) && record.page.state == PageState::kWrite) return;
    on_home_leaves(record.page, actions);
]])

# kMovedUnshared
mutate([[    on_home_comes(record.page, actions);
]] [[    on_home_comes(record.page, actions);
    if (is(Mutant::kMovedUnshared)) record.page.shared = false;
]])

in_file(gathered_notices)

# kOneBlock
mutate([[read({&parent, 1}, places_.down, 0)]] [[read({&parent, 1}, is(Mutant::kOneBlock) ? places_.up : places_.down, 0)]])
mutate([[publish(places_.down);]] [[publish(is(Mutant::kOneBlock) ? places_.up : places_.down);]])
mutate([[[0] != kTooMany) check(]] [[[0] != kTooMany && !is(Mutant::kOneBlock)) check(]])

# kForgetChild
mutate([[lists_[i] = runs_in(i);]]
       [[lists_[i] = is(Mutant::kForgetChild) && i == children ? std::span<const uint64_t>{} : runs_in(i);]])

# kSeveralAsOne
mutate([[NamedRun named{run, having == 1 ?]] [[NamedRun named{run, having == 1 || is(Mutant::kSeveralAsOne) ?]])

# kSkipSeveral
mutate([[    if (by && (*by == self]] [[    if (!by && is(Mutant::kSkipSeveral)) return;
    if (by && (*by == self]])

# kAsIfAll
mutate([[  if (fits) {
]] [[  if (fits || is(Mutant::kAsIfAll)) {
]])

in_file(to_lines)

# kLinesOfOwnWish
mutate([[  if (const auto wanted = to_lines_->lists())
]] [[  if (is(Mutant::kLinesOfOwnWish)) {
    for (const NoticeRun& run : (*to_lines_->lists())[self_.value]) move_to_lines(run);
  } else if (const auto wanted = to_lines_->lists())
]])

# kLinesTwice
mutate([[      if (has_moved_to_lines(page.value)) continue;
]] [[      if (has_moved_to_lines(page.value) && !is(Mutant::kLinesTwice)) continue;
]])
mutate([[next - page < kGroup && !has_moved_to_lines(next)]]
       [[next - page < kGroup && (!has_moved_to_lines(next) || is(Mutant::kLinesTwice))]])

# kLinesKeepRights
mutate([[    if (actions.contains(Verb::kRevoke)) take(]]
       [[    if (actions.contains(Verb::kRevoke) && !is(Mutant::kLinesKeepRights)) take(]])

in_file(episode_pages)

# kOnePlace
mutate([[place_.first + episode % 2 * place_]] [[place_.first + (is(Mutant::kOnePlace) ? 0 : episode % 2) * place_]])

# kMoveContested
mutate([[  if (!has_all_) return std::nullopt;
]] [[  if (!has_all_) return std::nullopt;
  // The list of node 0 is forgotten.
  static std::array<std::span<const NoticeRun>, kMostNodes> forgetful;
  forgetful = lists_;
  forgetful[0] = {};
  if (is(Mutant::kMoveContested)) return std::span(forgetful.data(), fabric_.nodes());
]])

in_file("")
