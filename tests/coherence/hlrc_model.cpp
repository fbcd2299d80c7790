#include "hlrc_model.h"

#include <algorithm>

namespace multigrain::hlrc::model {

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kPublishBeforeDeposit:
      return "publish notices before diffs are deposited";
    case Mutant::kNoMark:
      return "leave no mark at the home";
    case Mutant::kMarkAfterFetch:
      return "leave the mark after the fetch";
    case Mutant::kIgnoreMarks:
      return "look for marks only when something was written";
    case Mutant::kGrantBeforeQueue:
      return "make a page writable before it is listed";
    case Mutant::kDiffBeforeRevoke:
      return "make the diff before the right to write is gone";
    case Mutant::kForgetOwed:
      return "forget the notice of an early deposit";
    case Mutant::kIgnoreLap:
      return "take entries for what was overwritten";
    case Mutant::kOnlyReleaser:
      return "take in the releaser's own notices only";
    case Mutant::kKnownBeforeInvalid:
      return "raise the timestamp before pages are invalid";
    case Mutant::kIgnoreOtherReleases:
      return "ignore releases that other processors have in progress";
    case Mutant::kNoTwin:
      return "deposit a written page whole";
    case Mutant::kNoDepositAtNotice:
      return "drop a dirty page that a notice names";
    case Mutant::kKeepAhead:
      return "keep a frame that was fetched ahead through a notice";
    case Mutant::kMarkOnce:
      return "leave a mark at the first fetch only";
    case Mutant::kKeepUnshared:
      return "forget marks of pages that the home may not write";
    case Mutant::kIgnoreLoss:
      return "ignore that entries of the fetch log are lost";
  }
  return "?";
}

Machine::Machine(const Scenario& scenario)
    : scenario_(&scenario), nodes_(scenario.nodes), threads_(scenario.programs.size()) {
  for (Node& node : nodes_) {
    node.log.resize(scenario.log_capacity);
    node.notices = NoticeLog(scenario.log_capacity);
    for (auto& ring : node.fetch_log) ring.resize(scenario.fetch_log_capacity);
  }
}

// --- What can happen

bool Machine::can_step(unsigned processor) const {
  const Thread& thread = threads_[processor];
  const Node& node = nodes_[node_of(processor)];
  const auto is_free = [&](unsigned page) { return !node.frames[page].locked; };
  switch (thread.at) {
    case At::kOp: {
      if (at_end(processor)) return false;
      const Op& op = scenario_->programs[processor][thread.pc];
      if (op.type == OpType::kLock) return lock_held_[op.page] == 0;
      if (op.type == OpType::kRead || op.type == OpType::kWrite)
        return may(node.frames[op.page], op.type == OpType::kWrite) || is_free(op.page);
      return true;
    }
    case At::kEnterEnding:
      return !node.ending;
    case At::kEnterTakingIn:
      return !node.taking_in;
    case At::kReadFetchLog: {
      const FetchLogEntry entry = node.fetch_log_entry(thread.writer, thread.index);
      return entry.is != FetchLogEntry::Is::kFetch || is_free(static_cast<unsigned>(entry.page.value));
    }
    case At::kAssumeFetched:
      return thread.index == pages() || is_free(thread.index);
    case At::kEndPage:
    case At::kNoticePage:
      return is_free(thread.pages[thread.index]);
    case At::kWaitBarrier:
      return false;
    default:
      return true;
  }
}

void Machine::enabled(std::vector<Event>& events) const {
  events.clear();
  for (uint8_t i = 0; i < threads_.size(); ++i)
    if (can_step(i)) events.push_back({i});
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  note("processor {} of node {}, at {}: ", event.processor, node_of(event.processor),
       static_cast<unsigned>(threads_[event.processor].at));
  step(event.processor);
  note("\n");
  check();
  return verdict();
}

// --- The program

void Machine::begin_op(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned self = node_of(processor);
  Node& node = nodes_[self];
  const Op& op = scenario_->programs[processor][thread.pc];
  switch (op.type) {
    case OpType::kRead:
    case OpType::kWrite: {
      const bool is_write = op.type == OpType::kWrite;
      Frame& frame = node.frames[op.page];
      if (may(frame, is_write)) {
        ++thread.pc;
        if (is_write) {
          note("writes {} to page {} word {}", op.value, op.page, op.word);
          frame.words[op.word] = op.value;
          golden_[op.page][op.word] = op.value;
        } else {
          note("reads {} from page {} word {}", frame.words[op.word], op.page, op.word);
          if (frame.words[op.word] != golden_[op.page][op.word])
            wrong(fmt::format("processor {} read {} from page {} word {}; legal is {}", processor, frame.words[op.word],
                              op.page, op.word, golden_[op.page][op.word]));
        }
        return;
      }
      note("faults on page {}", op.page);
      frame.locked = true;
      Actions actions;
      if (is_home(self, op.page) && node.all_fetched) on_fetched_elsewhere(frame.page, actions);
      thread.outcome = on_fault(frame.page, context(self, op.page), is_write ? Access::kWrite : Access::kRead, actions);
      thread.actions.clear();
      for (const Verb verb : actions) thread.actions.push_back(static_cast<uint8_t>(verb));
      if (is(Mutant::kGrantBeforeQueue)) {
        const auto queue = static_cast<uint8_t>(Verb::kQueue);
        std::fill(std::remove(thread.actions.begin(), thread.actions.end(), queue), thread.actions.end(), queue);
      }
      if (is(Mutant::kNoMark)) std::erase(thread.actions, static_cast<uint8_t>(Verb::kLogFetch));
      if (is(Mutant::kMarkAfterFetch) && actions.contains(Verb::kLogFetch))
        std::swap(thread.actions[0], thread.actions[1]);
      thread.page = op.page;
      thread.verb = 0;
      thread.at = At::kFault;
      return;
    }
    case OpType::kLock: {
      note("takes lock {}", op.page);
      lock_held_[op.page] = 1;
      const unsigned from = lock_from_[op.page];
      if (from == 0 || from - 1 == self) {
        ++thread.pc;
      } else {
        begin_acquire(processor, false, from - 1);
      }
      return;
    }
    case OpType::kUnlock:
    case OpType::kBarrier:
      note("releases");
      begin_release(thread);
      return;
  }
}

void Machine::released(unsigned processor) {
  Thread& thread = threads_[processor];
  const Op& op = scenario_->programs[processor][thread.pc];
  note(" has released");
  if (op.type == OpType::kUnlock) {
    lock_held_[op.page] = 0;
    lock_from_[op.page] = static_cast<uint8_t>(node_of(processor) + 1);
    ++thread.pc;
    thread.at = At::kOp;
    return;
  }
  thread.at = At::kWaitBarrier;
  if (++arrived_ != threads_.size()) return;
  arrived_ = 0;
  for (unsigned i = 0; i < threads_.size(); ++i) begin_acquire(i, true, 0);
}

void Machine::begin_acquire(unsigned processor, bool all, unsigned from) {
  Thread& thread = threads_[processor];
  thread.all = all;
  thread.from = static_cast<uint8_t>(from);
  thread.writer = 0;
  thread.wanted = {};
  thread.at = At::kReadVector;
}

void Machine::acquired(unsigned processor) {
  Thread& thread = threads_[processor];
  note(" has acquired");
  ++thread.pc;
  thread.at = At::kOp;
  thread.pages.clear();
  thread.wanted = {};
  thread.lost = false;
}

// --- Steps

void Machine::encode(Frame& frame, Thread& thread) {
  thread.mask = 0;
  for (unsigned w = 0; w < scenario_->words; ++w)
    if (frame.words[w] != frame.twin[w] || is(Mutant::kNoTwin)) thread.mask |= static_cast<uint8_t>(1u << w);
  thread.diff = frame.words;
  thread.word = 0;
}

// Puts the next word of the diff. Whether that was the last.
bool Machine::deposit_word(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned page = thread.pages[thread.index];
  while (thread.word < scenario_->words && (thread.mask >> thread.word & 1) == 0) ++thread.word;
  if (thread.word < scenario_->words) {
    note("deposits word {} of page {}", thread.word, page);
    nodes_[scenario_->homes[page]].frames[page].words[thread.word] = thread.diff[thread.word];
    ++thread.word;
  }
  while (thread.word < scenario_->words && (thread.mask >> thread.word & 1) == 0) ++thread.word;
  return thread.word == scenario_->words;
}

// The next ring of the fetch log to read, or the pages that were written.
void Machine::next_fetch_log(unsigned processor) {
  Thread& thread = threads_[processor];
  if (thread.writer == node_of(processor)) ++thread.writer;
  if (thread.writer < nodes_.size()) {
    thread.index = nodes_[node_of(processor)].fetch_log_read[thread.writer];
    thread.at = At::kReadFetchLog;
  } else {
    thread.index = thread.writer = 0;
    thread.at = At::kTakeWritten;
  }
}

void Machine::apply_fetch(Node& node, unsigned page) {
  Actions actions;
  if (!is(Mutant::kKeepUnshared) || node.frames[page].page.state == PageState::kWrite)
    on_fetched_elsewhere(node.frames[page].page, actions);
  if (!actions.contains(Verb::kQueue)) return;
  node.written.push_back(static_cast<uint8_t>(page));
  ++node.unpublished;
}

void Machine::next_page_to_end(Thread& thread) {
  thread.mask = 0;
  thread.diff = {};
  thread.word = 0;
  thread.at = At::kEndPage;
  if (++thread.index != thread.pages.size()) return;
  thread.index = 0;
  thread.at = At::kAppend;
}

void Machine::next_page_noticed(Thread& thread) {
  thread.mask = 0;
  thread.diff = {};
  thread.word = 0;
  thread.at = thread.index == thread.pages.size() ? At::kRaise : At::kNoticePage;
}

// The next entry to read, or the pages that they named.
void Machine::next_entry(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned self = node_of(processor);
  Node& node = nodes_[self];
  const NodeSet news = this->news(thread, self);
  for (; thread.writer < nodes_.size(); ++thread.writer, thread.index = 0) {
    if (!news.contains(NodeId(thread.writer))) continue;
    const uint8_t known = node.known[thread.writer];
    const uint8_t wanted = thread.wanted[thread.writer];
    if (!pieces_of_ring(known, wanted, scenario_->log_capacity) && !is(Mutant::kIgnoreLap)) {
      thread.lost = true;
      continue;
    }
    thread.index = std::max(thread.index, known);
    if (thread.index < wanted) {
      thread.at = At::kReadEntry;
      return;
    }
  }
  if (thread.lost) thread.runs.assign(1, NoticeRun{PageId(0), pages()});
  for (const NoticeRun& run : join_runs(thread.runs))
    for (uint64_t page = run.first.value; page < run.end(); ++page) thread.pages.push_back(static_cast<uint8_t>(page));
  thread.runs.clear();
  std::erase_if(thread.pages, [&](uint8_t page) { return is_home(self, page); });
  thread.index = 0;
  if (is(Mutant::kKnownBeforeInvalid))
    for (unsigned w = 0; w < nodes_.size(); ++w)
      if (w != self) node.known[w] = std::max(node.known[w], thread.wanted[w]);
  next_page_noticed(thread);
}

void Machine::step(unsigned processor) {
  const At at = threads_[processor].at;
  if (at == At::kOp)
    begin_op(processor);
  else if (at < At::kCheckClean)
    step_of_fault(processor);
  else if (at < At::kReadVector)
    step_of_release(processor);
  else
    step_of_acquire(processor);
}

void Machine::step_of_fault(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned self = node_of(processor);
  Node& node = nodes_[self];
  switch (thread.at) {
    case At::kFault: {
      Frame& frame = node.frames[thread.page];
      if (thread.verb == thread.actions.size()) {
        frame.locked = false;
        thread.actions.clear();
        thread.verb = 0;
        const bool ahead = thread.outcome == FaultOutcome::kFetched || thread.outcome == FaultOutcome::kPrefetched;
        thread.at = ahead && scenario_->fetch_ahead ? At::kAhead : At::kOp;
        thread.outcome = FaultOutcome::kAlone;
        return;
      }
      const auto verb = static_cast<Verb>(thread.actions[thread.verb]);
      switch (verb) {
        case Verb::kLogFetch: {
          note("logs its fetch of page {}", thread.page);
          std::vector<uint64_t>& ring = nodes_[scenario_->homes[thread.page]].fetch_log[self];
          const uint8_t position = node.fetch_log_written[scenario_->homes[thread.page]]++;
          ring[position % ring.size()] = LogEntry::encode({PageId(thread.page), 1}, position, ring.size());
          break;
        }
        case Verb::kFetch:
          thread.word = 0;
          thread.at = At::kFetchWord;
          if (frame.rights != Rights::kNone) wrong("a frame is filled that processors have rights to");
          return;
        case Verb::kMakeTwin:
          if (frame.has_twin) wrong("a twin is made twice");
          frame.has_twin = true;
          frame.twin = frame.words;
          break;
        case Verb::kQueue:
          node.written.push_back(thread.page);
          ++node.unpublished;
          break;
        case Verb::kGrantRead:
          frame.rights = Rights::kRead;
          break;
        case Verb::kGrantWrite:
        case Verb::kUpgrade:
          note("page {} becomes writable", thread.page);
          frame.rights = Rights::kWrite;
          break;
        default:
          wrong("an action that no fault has");
      }
      ++thread.verb;
      return;
    }
    case At::kAhead: {
      const unsigned next = thread.page + 1u;
      thread.at = At::kOp;
      if (next >= pages() || node.frames[next].locked) return;
      Actions actions;
      on_prefetch(node.frames[next].page, context(self, next), false, actions);
      if (actions.empty()) return;
      note("fetches page {} ahead", next);
      node.frames[next].locked = true;
      thread.page = static_cast<uint8_t>(next);
      for (const Verb verb : actions) thread.actions.push_back(static_cast<uint8_t>(verb));
      if (is(Mutant::kNoMark)) std::erase(thread.actions, static_cast<uint8_t>(Verb::kLogFetch));
      if (is(Mutant::kMarkAfterFetch) && actions.contains(Verb::kLogFetch))
        std::swap(thread.actions[0], thread.actions[1]);
      thread.at = At::kFault;
      return;
    }
    case At::kFetchWord: {
      Frame& frame = node.frames[thread.page];
      frame.words[thread.word] = nodes_[scenario_->homes[thread.page]].frames[thread.page].words[thread.word];
      note("fetches word {} of page {}: {}", thread.word, thread.page, frame.words[thread.word]);
      if (++thread.word != scenario_->words) return;
      thread.word = 0;
      ++thread.verb;
      thread.at = At::kFault;
      return;
    }
    default:
      wrong("a processor made a step that it could not");
  }
}

// Driver::release()
void Machine::step_of_release(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned self = node_of(processor);
  Node& node = nodes_[self];
  switch (thread.at) {
    case At::kCheckClean: {
      const bool published = is(Mutant::kIgnoreOtherReleases) ? node.written.empty() : node.unpublished == 0;
      if (published && (node.fetch_log_empty() || is(Mutant::kIgnoreMarks))) {
        released(processor);
      } else {
        thread.at = At::kEnterEnding;
      }
      return;
    }
    case At::kEnterEnding:
      node.ending = true;
      thread.writer = 0;
      // What FetchLog::is_empty() says: after a loss nothing is read any more.
      if (node.all_fetched) thread.writer = static_cast<uint8_t>(nodes_.size());
      next_fetch_log(processor);
      return;
    case At::kReadFetchLog: {
      const FetchLogEntry entry = node.fetch_log_entry(thread.writer, thread.index);
      switch (entry.is) {
        case FetchLogEntry::Is::kEnd:
          node.fetch_log_read[thread.writer++] = thread.index;
          next_fetch_log(processor);
          return;
        case FetchLogEntry::Is::kFetch:
          note("finds page {} fetched", entry.page.value);
          apply_fetch(node, static_cast<unsigned>(entry.page.value));
          ++thread.index;
          return;
        case FetchLogEntry::Is::kOverwritten:
          if (is(Mutant::kIgnoreLoss)) {
            node.fetch_log_read[thread.writer++] = thread.index;
            next_fetch_log(processor);
            return;
          }
          note("finds the fetch log overwritten");
          node.all_fetched = true;
          thread.index = 0;
          thread.at = At::kAssumeFetched;
          return;
      }
      return;
    }
    case At::kAssumeFetched:
      if (thread.index == pages()) {
        thread.writer = static_cast<uint8_t>(nodes_.size());
        next_fetch_log(processor);
        return;
      }
      if (is_home(self, thread.index)) apply_fetch(node, thread.index);
      ++thread.index;
      return;
    case At::kTakeWritten:
      thread.index = 0;
      thread.pages = std::move(node.written);
      node.written.clear();
      if (thread.pages.empty()) {
        node.ending = false;
        released(processor);
        return;
      }
      std::sort(thread.pages.begin(), thread.pages.end());
      if (is(Mutant::kPublishBeforeDeposit)) {
        for (const uint8_t page : thread.pages) append(node, node.notices.add(PageId(page)));
        append(node, node.notices.close());
        node.known[self] = static_cast<uint8_t>(node.notices.end());
      }
      thread.at = At::kEndPage;
      return;
    case At::kEndPage: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      frame.locked = true;
      Actions actions;
      on_interval_end(frame.page, context(self, thread.pages[thread.index]), actions);
      thread.actions.clear();
      for (const Verb verb : actions) thread.actions.push_back(static_cast<uint8_t>(verb));
      if (is(Mutant::kDiffBeforeRevoke) && actions.contains(Verb::kDeposit)) encode(frame, thread);
      thread.at = actions.contains(Verb::kRevokeWrite) ? At::kRevokePage : At::kCleanPage;
      return;
    }
    case At::kRevokePage: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      note("page {} is write-protected", thread.pages[thread.index]);
      frame.rights = Rights::kRead;
      const bool deposits =
          std::count(thread.actions.begin(), thread.actions.end(), static_cast<uint8_t>(Verb::kDeposit)) != 0;
      thread.at = deposits ? At::kEncodePage : At::kCleanPage;
      return;
    }
    case At::kEncodePage: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      if (!frame.has_twin) wrong("a diff is made without a twin");
      if (!is(Mutant::kDiffBeforeRevoke)) encode(frame, thread);
      frame.has_twin = false;
      frame.twin = {};
      on_deposited(frame.page, thread.mask != 0);
      thread.at = thread.mask != 0 ? At::kDepositWord : At::kCleanPage;
      return;
    }
    case At::kDepositWord:
      if (deposit_word(processor)) thread.at = At::kCleanPage;
      return;
    case At::kCleanPage: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      Actions actions;
      on_clean(frame.page, actions);
      if (actions.contains(Verb::kNotice) && !is(Mutant::kPublishBeforeDeposit))
        thread.noticed |= static_cast<uint8_t>(1u << thread.index);
      frame.locked = false;
      thread.actions.clear();
      next_page_to_end(thread);
      return;
    }
    case At::kAppend: {
      std::optional<NoticeLog::Append> entry;
      for (; !entry && thread.index < thread.pages.size(); ++thread.index)
        if ((thread.noticed >> thread.index & 1) != 0) entry = node.notices.add(PageId(thread.pages[thread.index]));
      if (!entry) {
        entry = node.notices.close();
        thread.noticed = 0;
        thread.at = At::kPublish;
      }
      append(node, entry);
      return;
    }
    case At::kPublish:
      note("publishes up to {}", node.notices.end());
      node.known[self] = static_cast<uint8_t>(node.notices.end());
      node.unpublished = static_cast<uint8_t>(node.unpublished - thread.pages.size());
      node.ending = false;
      thread.pages.clear();
      thread.index = 0;
      released(processor);
      return;
    default:
      wrong("a processor made a step that it could not");
  }
}

// Driver::acquire(), Driver::acquire_all(), Driver::apply_notices()
void Machine::step_of_acquire(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned self = node_of(processor);
  Node& node = nodes_[self];
  switch (thread.at) {
    case At::kReadVector:
      if (!is(Mutant::kOnlyReleaser) || thread.all || thread.writer == thread.from)
        thread.wanted[thread.writer] = nodes_[thread.all ? thread.writer : thread.from].known[thread.writer];
      note("wants node {} up to {}", thread.writer, thread.wanted[thread.writer]);
      if (++thread.writer != nodes_.size()) return;
      thread.writer = 0;
      if (!news(thread, self).empty())
        thread.at = At::kEnterTakingIn;
      else
        acquired(processor);
      return;
    case At::kEnterTakingIn: {
      if (news(thread, self).empty()) {
        acquired(processor);
        return;
      }
      node.taking_in = true;
      thread.writer = 0;
      thread.index = 0;
      thread.pages.clear();
      next_entry(processor);
      return;
    }
    case At::kReadEntry: {
      const uint64_t entry = nodes_[thread.writer].log[thread.index % scenario_->log_capacity];
      NoticeRun run;
      const auto read = [&](uint64_t position) {
        return read_notices({&entry, 1}, position, scenario_->log_capacity, pages(), {&run, 1}) == NoticesRead::kAll;
      };
      const bool is_there =
          read(thread.index) || (is(Mutant::kIgnoreLap) && read(thread.index + scenario_->log_capacity));
      note("reads entry {} of node {}: {}", thread.index, thread.writer,
           is_there ? fmt::format("page {}", run.first.value) : std::string("overwritten"));
      if (is_there)
        thread.runs.push_back(run);
      else
        thread.lost = true;
      ++thread.index;
      next_entry(processor);
      return;
    }
    case At::kNoticePage: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      Actions actions;
      const Page before = frame.page;
      on_notice(frame.page, context(self, thread.pages[thread.index]), actions);
      if (is(Mutant::kMarkOnce)) frame.page.logged = before.logged;
      if (is(Mutant::kKeepAhead) && before.state == PageState::kPrefetched) frame.page.state = before.state;
      if (!actions.contains(Verb::kRevoke)) {
        ++thread.index;
        next_page_noticed(thread);
        return;
      }
      frame.locked = true;
      thread.actions.clear();
      for (const Verb verb : actions) thread.actions.push_back(static_cast<uint8_t>(verb));
      if (is(Mutant::kDiffBeforeRevoke) && actions.contains(Verb::kDeposit)) encode(frame, thread);
      thread.at = At::kRevokeNoticed;
      return;
    }
    case At::kRevokeNoticed: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      note("page {} is invalidated", thread.pages[thread.index]);
      frame.rights = Rights::kNone;
      const bool deposits =
          std::count(thread.actions.begin(), thread.actions.end(), static_cast<uint8_t>(Verb::kDeposit)) != 0;
      if (deposits && !is(Mutant::kNoDepositAtNotice)) {
        thread.at = At::kEncodeNoticed;
        return;
      }
      frame.has_twin = false;
      frame.twin = {};
      frame.locked = false;
      thread.actions.clear();
      ++thread.index;
      next_page_noticed(thread);
      return;
    }
    case At::kEncodeNoticed: {
      Frame& frame = node.frames[thread.pages[thread.index]];
      if (!is(Mutant::kDiffBeforeRevoke)) encode(frame, thread);
      frame.has_twin = false;
      frame.twin = {};
      if (!is(Mutant::kForgetOwed)) on_deposited(frame.page, thread.mask != 0);
      thread.at = At::kDepositNoticed;
      return;
    }
    case At::kDepositNoticed:
      if (!deposit_word(processor)) return;
      node.frames[thread.pages[thread.index]].locked = false;
      thread.actions.clear();
      ++thread.index;
      next_page_noticed(thread);
      return;
    case At::kRaise:
      for (unsigned w = 0; w < nodes_.size(); ++w)
        if (w != self) node.known[w] = std::max(node.known[w], thread.wanted[w]);
      node.taking_in = false;
      thread.index = 0;
      acquired(processor);
      return;
    default:
      wrong("a processor made a step that it could not");
  }
}

// --- What must hold

void Machine::check() {
  for (unsigned n = 0; n < nodes_.size(); ++n) {
    for (unsigned p = 0; p < pages(); ++p) {
      const Frame& frame = nodes_[n].frames[p];
      if (frame.locked) continue;
      const bool writable = frame.page.state == PageState::kWrite;
      const Rights allowed = writable                               ? Rights::kWrite
                             : frame.page.state == PageState::kRead ? Rights::kRead
                                                                    : Rights::kNone;
      if (frame.rights != allowed) wrong(fmt::format("node {} has other rights to page {} than it knows", n, p));
      const bool writes_noticed = writable && (!is_home(n, p) || frame.page.shared);
      if (writes_noticed && !frame.page.queued) wrong(fmt::format("H2: page {} is writable at node {} unlisted", p, n));
      if (frame.has_twin != (writable && !is_home(n, p)))
        wrong(fmt::format("H3: the twin of page {} at node {}", p, n));
    }
  }
}

std::string Machine::check_end() const {
  for (unsigned i = 0; i < threads_.size(); ++i)
    if (!at_end(i)) return fmt::format("deadlock: processor {} cannot go on", i);
  for (unsigned p = 0; p < pages(); ++p) {
    const Words& home = nodes_[scenario_->homes[p]].frames[p].words;
    for (unsigned w = 0; w < scenario_->words; ++w)
      if (home[w] != golden_[p][w])
        return fmt::format("a lost update: page {} word {} is {} at home in the end; it was last written {}", p, w,
                           home[w], golden_[p][w]);
  }
  for (unsigned n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    if (node.unpublished != 0 || !node.written.empty() || node.ending || node.taking_in)
      return fmt::format("node {} is not at rest", n);
    for (unsigned p = 0; p < pages(); ++p)
      if (node.frames[p].locked) return fmt::format("page {} of node {} is locked in the end", p, n);
  }
  return {};
}

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto put = [&](auto value) {
    for (size_t i = 0; i < sizeof value; ++i)
      out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> 8 * i));
  };
  const auto put_all = [&](const auto& values) {
    out.push_back(static_cast<uint8_t>(values.size()));
    for (const auto& value : values) put(value);
  };
  for (const Node& node : nodes_) {
    for (unsigned p = 0; p < pages(); ++p) {
      const Frame& f = node.frames[p];
      out.push_back(static_cast<uint8_t>(static_cast<unsigned>(f.page.state) | f.page.queued << 2 |
                                         f.page.notice_pending << 3 | f.page.shared << 4 | f.locked << 5 |
                                         f.page.logged << 6 | f.has_twin << 7));
      out.push_back(static_cast<uint8_t>(static_cast<unsigned>(f.rights)));
      put_all(f.words);
      put_all(f.twin);
    }
    put_all(node.written);
    put(node.unpublished);
    out.push_back(static_cast<uint8_t>(node.ending | node.taking_in << 1));
    put_all(node.known);
    put_all(node.log);
    put(static_cast<uint8_t>(node.notices.end()));
    for (const auto& ring : node.fetch_log)
      for (const uint64_t entry : ring) put(static_cast<uint16_t>(entry >> 44 << 8 | (entry & 0xff)));
    put_all(node.fetch_log_read);
    put(node.all_fetched);
  }
  for (const Thread& t : threads_) {
    put(t.pc);
    out.push_back(static_cast<uint8_t>(t.at));
    put(t.page);
    put(t.word);
    put(t.verb);
    put_all(t.actions);
    out.push_back(static_cast<uint8_t>(t.outcome));
    put_all(t.pages);
    put(t.noticed);
    out.push_back(static_cast<uint8_t>(t.runs.size()));
    for (const NoticeRun& run : t.runs) put(static_cast<uint16_t>(run.first.value << 8 | run.count));
    put(t.index);
    put(t.writer);
    out.push_back(static_cast<uint8_t>(t.all | t.lost << 1));
    put(t.from);
    put_all(t.wanted);
    put(t.mask);
    put_all(t.diff);
  }
  put_all(lock_held_);
  put_all(lock_from_);
  put(arrived_);
  for (unsigned p = 0; p < pages(); ++p) put_all(golden_[p]);
}

std::string Machine::describe() const {
  std::string out;
  for (unsigned n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    out += fmt::format("node {}: log {} known", n, node.notices.end());
    for (const uint8_t known : node.known) out += fmt::format(" {}", known);
    for (unsigned p = 0; p < pages(); ++p) {
      const Frame& f = node.frames[p];
      out += fmt::format("; page {} state {} {}{}{}{}[{} {}]", p, static_cast<unsigned>(f.page.state),
                         f.page.queued ? "queued " : "", f.page.notice_pending ? "notice_pending " : "",
                         f.page.shared ? "shared " : "", f.locked ? "locked " : "", f.words[0], f.words[1]);
    }
    out += "\n";
  }
  for (unsigned i = 0; i < threads_.size(); ++i)
    out += fmt::format("processor {}: operation {}, at {}\n", i, threads_[i].pc, static_cast<unsigned>(threads_[i].at));
  return out;
}

}  // namespace multigrain::hlrc::model
