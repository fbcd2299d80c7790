# The deliberate faults of placed pages (placement_driver_mutants.h); driver_mutants.cmake says how they are made.
set(PROTOCOL placement)
include(${CMAKE_CURRENT_LIST_DIR}/driver_mutants.cmake)

in_file(transitions)

# kNoHold, kHoldNotAwaited
mutate([[  if (p_.waits_for_hold())
    act(Verb::kAwaitHold);
  else
    answer_order();]] [[  if (p_.waits_for_hold() && !is(Mutant::kNoHold)) {
    if (!is(Mutant::kHoldNotAwaited)) act(Verb::kAwaitHold);
  } else {
    answer_order();
  }]])
# kOtherCopiesStay
mutate([[  if (d_.access == Access::kWrite) order(]] [[  if (d_.access == Access::kWrite && !is(Mutant::kOtherCopiesStay)) order(]])
# kOwnCopyStays
mutate([[  order(d_.holders, MessageKind::kFlush);
}

void Transition::writable_local() {]] [[  order(is(Mutant::kOwnCopyStays) ? d_.holders - NodeSet::of(d_.requester) : d_.holders, MessageKind::kFlush);
}

void Transition::writable_local() {]])
mutate([[  if (p_.state != State::kNone && (p_.state != State::kRead || m.right == State::kGlobal)) return false;]]
  [[  if (!is(Mutant::kOwnCopyStays) && p_.state != State::kNone && (p_.state != State::kRead || m.right == State::kGlobal)) return false;
  if (is(Mutant::kSyncedCopyRefused) && p_.state == State::kRead && m.right == State::kRead) return false;]])
# kReferenceHoldsNothing
mutate([[  ++p_.returning;
  p_.held = true;
  return]] [[  ++p_.returning;
  p_.held = p_.held || !is(Mutant::kReferenceHoldsNothing);
  return]])
# kSyncKeepsRight
mutate([[  act(keeps_copy ? Verb::kRevokeWrite : Verb::kRevoke);
  p_.state]] [[  if (is(Mutant::kAnswersFirst)) {
    // The rights are taken below.
  } else if (!keeps_copy || !is(Mutant::kSyncKeepsRight)) {
    act(keeps_copy ? Verb::kRevokeWrite : Verb::kRevoke);
  }
  p_.state]])
# kAnswersFirst
mutate([[                     .content = gives_back ? Content::kPage : Content::kNone});]] [[                     .content = gives_back ? Content::kPage : Content::kNone});
  if (is(Mutant::kAnswersFirst)) act(keeps_copy ? Verb::kRevokeWrite : Verb::kRevoke);]])
# kFlushBringsNothing
mutate([[  const bool gives_back = p_.state]] [[  const bool gives_back = (!is(Mutant::kFlushBringsNothing) || p_.order != MessageKind::kFlush) && p_.state]])
mutate([[  if (m.kind != expected || (m.content == Content::kPage) != brings_page) return false;]] [[  const bool is_lost = is(Mutant::kFlushBringsNothing) && m.content == Content::kNone;
  if (m.kind != expected || (!is_lost && (m.content == Content::kPage) != brings_page)) return false;]])
mutate([[  if (brings_page) act(Verb::kTakePage);]] [[  if (brings_page && m.content == Content::kPage) act(Verb::kTakePage);]])
# kMapsFirst
mutate([[  if (m.content == Content::kPage) act(Verb::kTakePage);
  if]] [[  if (is(Mutant::kMapsFirst)) {
    p_.state = m.right;
    map();
  }
  if (m.content == Content::kPage) act(Verb::kTakePage);
  if]])
# kUnmapForgotten
mutate([[void Transition::global_local() {
  order(]] [[void Transition::global_local() {
  if (!is(Mutant::kUnmapForgotten)) order(]])
# kGrantsTooEarly
mutate([[  d_.awaited.erase(from);
  if (d_.awaited.empty()) complete();]] [[  d_.awaited.erase(from);
  if (d_.awaited.empty() || is(Mutant::kGrantsTooEarly)) complete();]])
# kZerosAfterWrite
mutate([[: d_.is_written ? Content::kPage]] [[: d_.is_written && !is(Mutant::kZerosAfterWrite) ? Content::kPage]])
# kStaleUpgrade
mutate([[  const bool has_copy = d_.placement == Placement::kReadOnly && d_.holders.contains(n);]] [[  const bool has_copy = (is(Mutant::kStaleUpgrade) && d_.access == Access::kWrite) || (d_.placement == Placement::kReadOnly && d_.holders.contains(n));]])
mutate([[  if ((m.content == Content::kNone) == (uses]] [[  if (!is(Mutant::kStaleUpgrade) && (m.content == Content::kNone) == (uses]])
# kReadersForgotten
mutate([[  grant(p_.waiting_to_read, Verb::kWakeReaders);]] [[  if (!is(Mutant::kReadersForgotten) || !p_.allows(Access::kWrite)) grant(p_.waiting_to_read, Verb::kWakeReaders);]])
# kWritersForgotten
mutate([[  else if (p_.waiting_to_write != 0)
    request(]] [[  else if (p_.waiting_to_write != 0 && !is(Mutant::kWritersForgotten))
    request(]])
# kRequestForgotten
mutate([[  (access == Access::kRead ? d_.readers : d_.writers).insert(from);]] [[  if (is(Mutant::kRequestForgotten) && d_.work != Work::kNone) return true;
  (access == Access::kRead ? d_.readers : d_.writers).insert(from);]])
# kOneRequestForAll
mutate([[  d_.work = Work::kDecide;
]] [[  d_.work = Work::kDecide;
  if (is(Mutant::kOneRequestForAll)) {
    d_.readers.clear();
    d_.writers.clear();
  }
]])
# kPinIgnored
mutate([[  else if (d_.pin == Pin::kGlobal && d_.placement]] [[  else if (!is(Mutant::kPinIgnored) && d_.pin == Pin::kGlobal && d_.placement]])
# kThawTellsNobody
mutate([[  if (stays) return;]] [[  if (is(Mutant::kThawTellsNobody) && !stays) d_.holders.clear();
  if (stays || is(Mutant::kThawTellsNobody)) return;]])
# kThawForgotten
mutate([[  else if (d_.has_to_thaw)]] [[  else if (d_.has_to_thaw && !is(Mutant::kThawForgotten))]])
# kDiscardKeepsCopies
mutate([[  d_.work = Work::kDiscard;
  order(]] [[  d_.work = Work::kDiscard;
  if (!is(Mutant::kDiscardKeepsCopies)) order(]])
# kDiscardKeepsContents
mutate([[  act(Verb::kFillZeros);
  act(Verb::kForget);]] [[  if (!is(Mutant::kDiscardKeepsContents)) act(Verb::kFillZeros);
  act(Verb::kForget);]])
# kDiscarderForgotten
mutate([[[&](NodeId n) { actions_.push({.verb = Verb::kSend, .node = n]] [[[&](NodeId n) { if (!is(Mutant::kDiscarderForgotten)) actions_.push({.verb = Verb::kSend, .node = n]])
# kHolderForgotten
mutate([[  if (!are_joined) d_.holders.clear();]] [[  if (!are_joined || is(Mutant::kHolderForgotten)) d_.holders.clear();]])
in_file(driver)

# kDataBeforeRights, kAnswerBeforeRights, kMapsBeforeData
mutate([[    for (const Action& action : actions) perform_one(page, record, action, message);
]] [[    const auto is_early = [](const Action& action) {
      return is(Mutant::kDataBeforeRights)     ? action.verb == Verb::kSendPage
             : is(Mutant::kAnswerBeforeRights) ? action.verb == Verb::kSend
             : is(Mutant::kMapsBeforeData)     ? action.verb == Verb::kMapRead || action.verb == Verb::kMapWrite
                                               : true;
    };
    for (const Action& action : actions) if (is_early(action)) perform_one(page, record, action, message);
    for (const Action& action : actions) if (!is_early(action)) perform_one(page, record, action, message);
]])
# kHoldNotListed, kListedTwice
mutate([[  if (record.is_listed || record.page.returning != 0) return;
]] [[  if (is(Mutant::kHoldNotListed)) return;
  if ((record.is_listed && !is(Mutant::kListedTwice)) || record.page.returning != 0) return;
]])
# kNextReadLate
mutate([[    else if (record.page.waits_for_hold())
      await_hold(page, record);
]] [[    else if (record.page.waits_for_hold())
      await_hold(page, record);
    if (is(Mutant::kNextReadLate)) next = record.next_listed;
]])
# kReturningForgotten
mutate([[  return record.page.held && record.page.returning == 0 &&]] [[  return record.page.held && (record.page.returning == 0 || is(Mutant::kReturningForgotten)) &&]])
# kReturnedNotListed
mutate([[  if (is_held && record.page.held) set_hold(record);
  if (record.page.waits_for_hold()) await]] [[  if (is_held && record.page.held) set_hold(record);
  if (record.page.waits_for_hold() && !is(Mutant::kReturnedNotListed)) await]])
# kWakesNobody
mutate([[      record.readers.notify();]] [[      if (!is(Mutant::kWakesNobody)) record.readers.notify();]])
# kGrantSeenLate
mutate([[  {
    const CategoryScope waiting(profile, Category::kDataWait);]] [[  if (is(Mutant::kGrantSeenLate)) {
    MULTIGRAIN_STEP(&listed_);
    seen = granted.prepare();
  }
  {
    const CategoryScope waiting(profile, Category::kDataWait);]])
# kStaysElsewhere
mutate([[  } else if (is_elsewhere(record)) {
    // The node's own]] [[  } else if (record.right == State::kGlobal && is(Mutant::kStaysElsewhere)) {
  } else if (is_elsewhere(record)) {
    // The node's own]])
# kOwnFrameForGlobal
mutate([[  } else if (right == State::kGlobal && record.home() != self_) {
    map_global]] [[  } else if (right == State::kGlobal && record.home() != self_ && !is(Mutant::kOwnFrameForGlobal)) {
    map_global]])
# kAnswerForgotten
mutate([[ask_policy(page, record, last, actions);
]] [[ask_policy(page, record, last, actions);
    if (is(Mutant::kAnswerForgotten)) actions.clear();
]])
# kNotToThaw, kThawListedTwice
mutate([[  if (is_global && needs_to_catch_up() && !std::exchange(record.is_to_thaw, true)) {]] [[  if (is_global && needs_to_catch_up() && !is(Mutant::kNotToThaw) &&
      (!std::exchange(record.is_to_thaw, true) || is(Mutant::kThawListedTwice))) {]])
# kThawedStaysListed
mutate([[    record.is_to_thaw = false;]] [[    if (!is(Mutant::kThawedStaysListed)) record.is_to_thaw = false;]])
# kNotPinned
mutate([[  if (pin == Pin::kNone) return;]] [[  if (pin == Pin::kNone || is(Mutant::kNotPinned)) return;]])
# kReferenceEndsEarly
mutate([[    operation(at);
  }
  end_use(]] [[    if (is(Mutant::kReferenceEndsEarly)) end_use(page, record, false);
    operation(at);
  }
  if (!is(Mutant::kReferenceEndsEarly)) end_use(]])
# kRefersToOwnFrame
mutate([[  return record.right == State::kGlobal ? record.home() : self_;]] [[  return record.right == State::kGlobal && !is(Mutant::kRefersToOwnFrame) ? record.home() : self_;]])
# kSaidRemoteForGood
mutate([[    remote_pages_[page].store(0, std::memory_order_relaxed);]] [[    if (!is(Mutant::kSaidRemoteForGood)) remote_pages_[page].store(0, std::memory_order_relaxed);]])
in_file("")
