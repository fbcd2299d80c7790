#include "dszoom_model.h"

#include <algorithm>

#include "coherence/dszoom/hazard_scan.h"

namespace multigrain::dszoom::model {
namespace {

// Whether a node that finds `word` in its own table may read the line, or store to it. The home has all lines that it has
// never touched (0).
bool may_read(uint64_t word, bool is_home) {
  return (word & kReadable) != 0 || (is_home && word == 0);
}
bool may_store(uint64_t word, bool is_home) {
  return word == kExclusive || (is_home && word == 0);
}

}  // namespace

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kNoWatch:
      return "take a right without looking at hazards";
    case Mutant::kIgnoreLoadHazards:
      return "invalidate without looking at hazards of loads";
    case Mutant::kWatchBeforeTake:
      return "look at hazards, and then take the right";
    case Mutant::kReadBeforeWatch:
      return "read the line, and then look at hazards";
    case Mutant::kFlagEarly:
      return "flag a frame while hazards are published";
    case Mutant::kNoFlag:
      return "leave an invalid frame as it is";
    case Mutant::kNoTake:
      return "leave a holder its right";
    case Mutant::kUnlockBeforeFill:
      return "unlock the entry, and then fill the frame";
    case Mutant::kOwnBeforeFill:
      return "set the own word, and then fill the frame";
    case Mutant::kNoOpen:
      return "store after a miss without a hazard";
    case Mutant::kNoFence:
      return "look at the word, and then publish the hazard";
    case Mutant::kNoCheckInBatch:
      return "check one line of a batch of two";
    case Mutant::kIgnoreLock:
      return "go on when the entry is locked";
    case Mutant::kForgetReader:
      return "a reader does not enter itself";
    case Mutant::kKeepHazard:
      return "wait with a hazard published";
    case Mutant::kIgnoreEpoch:
      return "do not look at the rights epoch";
    case Mutant::kForgetAlone:
      return "replace the rights epoch, and do not look at hazards again";
    case Mutant::kTrustEven:
      return "trust a rights epoch that is even, and another than is known";
    case Mutant::kTrustOdd:
      return "trust a rights epoch that is odd, and was known as even before the right was taken";
    case Mutant::kKnowLate:
      return "compare the rights epoch with what is known when the look is over";
    case Mutant::kAlwaysFirst:
      return "take a look in vain for the first";
    case Mutant::kForgetBeforeTake:
      return "replace the rights epoch, and then take the right";
    case Mutant::kScanBeforeBit:
      return "look at lines, and then say that something is cached";
    case Mutant::kEpochBeforeHazard:
      return "read the rights epoch, and then publish the hazard";
    case Mutant::kCacheSome:
      return "look at one line of a page, and cache both";
  }
  return "?";
}

Machine::Machine(const Scenario& scenario) : scenario_(&scenario) {
  threads_.resize(scenario.processors.size());
  for (unsigned n = 0; n < scenario.nodes; ++n)
    for (unsigned l = 0; l < lines(); ++l)
      if (!is_home(n, l)) frame(n, l).words.fill(kFlag);
  for (const Program& program : scenario.programs)
    for (const Op& op : program)
      if (op.type == OpType::kReadBoth || op.type == OpType::kWriteBoth) batches_ = true;
}

void Machine::next_op(Thread& thread) {
  const uint8_t next = thread.pc + 1;
  thread = {};
  thread.pc = next;
}

// How many steps an operation takes.
size_t Machine::units(const Operation& operation) const {
  switch (operation.verb) {
    case Verb::kReadLine:
    case Verb::kWriteFlags:
    case Verb::kFill:
      return kWords;
    case Verb::kScanHazards: {
      const auto threads = std::count(scenario_->processors.begin(), scenario_->processors.end(), operation.node.value);
      const size_t hazards = std::max<size_t>(1, static_cast<size_t>(threads) * (batches_ ? 2 : 1));
      return caches() ? hazards + 1 : hazards;
    }
    default:
      return 1;
  }
}

void Machine::enabled(std::vector<Event>& events) const {
  events.clear();
  for (unsigned p = 0; p < threads_.size(); ++p) {
    const Thread& thread = threads_[p];
    if (at_end(p)) continue;
    if (thread.at == At::kStep) {
      uint8_t nodes = 0;
      for (size_t i = 0; i < thread.step.size(); ++i)
        if (thread.done[i] < units(thread.step[i])) nodes |= static_cast<uint8_t>(1u << thread.step[i].node.value);
      for (uint8_t n = 0; n < scenario_->nodes; ++n)
        if ((nodes >> n & 1) != 0) {
          events.push_back({static_cast<uint8_t>(p), n});
          size_t i = 0;
          while (thread.step[i].node.value != n || thread.done[i] == units(thread.step[i])) ++i;
          if (caches() && thread.step[i].verb == Verb::kScanHazards && thread.done[i] == 0)
            events.push_back({static_cast<uint8_t>(p), n, true});
        }
      continue;
    }
    if (thread.at == At::kLocal && nodes_[node_of(p)].lines[thread.line].locked) continue;
    events.push_back({static_cast<uint8_t>(p), 0});
  }
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  Thread& thread = threads_[event.processor];
  if (thread.at == At::kStep) {
    for (size_t i = 0; i < thread.step.size(); ++i) {
      if (thread.step[i].node.value != event.node || thread.done[i] == units(thread.step[i])) continue;
      if (event.epoch_first) thread.reads_epoch_first |= static_cast<uint8_t>(1u << event.node);
      operate(event.processor, i);
      break;
    }
    bool complete = true;
    for (size_t i = 0; i < thread.step.size(); ++i) complete = complete && thread.done[i] == units(thread.step[i]);
    if (complete) step_complete(event.processor);
  } else {
    step(event.processor);
  }
  check();
  return verdict();
}

// As Driver::has().
bool Machine::has(unsigned node, unsigned line, bool to_store) {
  uint64_t& word = frame(node, line).entry;
  if (to_store ? word == kExclusive : (word & kReadable) != 0) return true;
  if (word != 0 || !is_home(node, line)) return false;
  word = kExclusive;
  return true;
}

void Machine::loaded(unsigned processor, unsigned line, unsigned word, Value value) {
  note("     {} loads {} from line {} word {}\n", processor, value, line, word);
  if (value != golden_[line][word])
    wrong(fmt::format("processor {} loads {} where {} was stored last", processor, value, golden_[line][word]));
}

void Machine::stored(unsigned node, unsigned line, unsigned word, Value value) {
  note("     node {} stores {} to line {} word {}\n", node, value, line, word);
  golden_[line][word] = value;
  for (unsigned n = 0; n < scenario_->nodes; ++n) {
    if (n == node) continue;
    const Frame& other = frame(n, line);
    if ((other.entry & kReadable) != 0) wrong(fmt::format("F1: a store while node {} may read the line", n));
    for (const Value each : other.words)
      if (each != kFlag) wrong(fmt::format("F2: a store while node {} has a copy", n));
  }
}

void Machine::begin_miss(unsigned processor, unsigned line, bool stores, bool for_batch) {
  Thread& thread = threads_[processor];
  thread.line = static_cast<uint8_t>(line);
  thread.stores = stores;
  thread.for_batch = for_batch;
  if (!is(Mutant::kKeepHazard)) thread.hazard = {};
  thread.epoch = 0;
  thread.at_line = thread.scans = 0;
  thread.caching = false;
  thread.at = At::kLocal;
}

void Machine::set_step(Thread& thread, const Step& step) {
  thread.step.assign(step.begin(), step.end());
  auto& operations = thread.step;
  const auto swap_if = [&](Verb first, Verb second) {
    for (size_t i = 0; i + 1 < operations.size(); ++i)
      if (operations[i].verb == first && operations[i + 1].verb == second &&
          operations[i].node == operations[i + 1].node)
        std::swap(operations[i], operations[i + 1]);
  };
  const auto move_behind = [&](Verb what, Verb behind) {
    const auto it = std::ranges::find(operations, what, &Operation::verb);
    const auto target = std::ranges::find(operations, behind, &Operation::verb);
    if (it < target && target != operations.end()) std::rotate(it, it + 1, target + 1);
  };
  switch (scenario_->mutant) {
    case Mutant::kNoWatch:
      std::erase_if(operations, [](const Operation& o) { return o.verb == Verb::kScanHazards; });
      break;
    case Mutant::kIgnoreLoadHazards:
      for (Operation& o : operations) o.loads = false;
      break;
    case Mutant::kWatchBeforeTake:
      swap_if(Verb::kRevokeRight, Verb::kScanHazards);
      swap_if(Verb::kLock, Verb::kScanHazards);
      break;
    case Mutant::kReadBeforeWatch:
      swap_if(Verb::kScanHazards, Verb::kReadLine);
      break;
    case Mutant::kFlagEarly:
      if (std::ranges::find(operations, Verb::kRevokeRight, &Operation::verb) != operations.end() && thread.stores)
        for (size_t i = 0; i < operations.size(); ++i)
          if (operations[i].verb == Verb::kScanHazards &&
              (i + 1 == operations.size() || operations[i + 1].verb != Verb::kReadLine)) {
            operations.insert(operations.begin() + static_cast<ptrdiff_t>(i) + 1,
                              {Verb::kWriteFlags, operations[i].node});
            ++i;
          }
      break;
    case Mutant::kNoFlag:
      std::erase_if(operations, [](const Operation& o) { return o.verb == Verb::kWriteFlags; });
      break;
    case Mutant::kNoTake:
      std::erase_if(operations, [](const Operation& o) { return o.verb == Verb::kRevokeRight; });
      break;
    case Mutant::kUnlockBeforeFill:
      move_behind(Verb::kFill, Verb::kUnlock);
      break;
    case Mutant::kOwnBeforeFill:
      move_behind(Verb::kFill, Verb::kSetOwn);
      break;
    case Mutant::kNoOpen:
      std::erase_if(operations, [](const Operation& o) { return o.verb == Verb::kPublishHazard; });
      break;
    case Mutant::kForgetAlone:
      for (size_t i = 0; i + 1 < operations.size(); ++i)
        if (operations[i].verb == Verb::kReplaceEpoch)
          operations.erase(operations.begin() + static_cast<ptrdiff_t>(i) + 1);
      break;
    case Mutant::kForgetBeforeTake:
      for (size_t i = 0; i < operations.size(); ++i)
        if (operations[i].verb == Verb::kLock || operations[i].verb == Verb::kRevokeRight) {
          operations.insert(operations.begin() + static_cast<ptrdiff_t>(i), {Verb::kReplaceEpoch, operations[i].node});
          ++i;
        }
      break;
    default:
      break;
  }
  thread.done.assign(operations.size(), 0);
  thread.open = 0;
}

// One remote operation of one word.
void Machine::operate(unsigned processor, size_t index) {
  Thread& thread = threads_[processor];
  const Operation& operation = thread.step[index];
  Frame& there = frame(operation.node.value, thread.line);
  const uint8_t unit = thread.done[index]++;
  if (operation.verb == Verb::kLock || operation.verb == Verb::kRevokeRight || operation.verb == Verb::kReplaceEpoch) {
    // As HazardScan::restart().
    thread.epoch_since[operation.node.value] = kNoEpoch;
    thread.looked_at &= static_cast<uint8_t>(~(1u << operation.node.value));
  }
  switch (operation.verb) {
    case Verb::kLock:
      thread.seen_entry = there.entry;
      there.entry = kLocked;
      note("     {} locks line {}: {:#x}\n", processor, thread.line, thread.seen_entry);
      break;
    case Verb::kRevokeRight:
      there.entry = operation.word;
      note("     {} sets the word of line {} at node {} to {}\n", processor, thread.line, operation.node.value,
           operation.word);
      break;
    case Verb::kReplaceEpoch:
      nodes_[operation.node.value].epoch = thread.epoch_since[operation.node.value] = fresh_rights_epoch();
      note("     {} sets the rights epoch of node {} to {}\n", processor, operation.node.value, next_epoch_);
      break;
    case Verb::kScanHazards: {
      if (caches()) {
        watch(processor, operation, unit);
        break;
      }
      unsigned seen = 0;
      for (unsigned p = 0; p < threads_.size(); ++p) {
        if (node_of(p) != operation.node.value) continue;
        for (unsigned w = 0; w < (batches_ ? 2u : 1u); ++w, ++seen)
          if (seen == unit && covers(threads_[p].hazard[w], thread.line, operation.loads))
            thread.open |= static_cast<uint8_t>(1u << operation.node.value);
      }
      break;
    }
    case Verb::kReadLine:
      thread.buffer[unit] = there.words[unit];
      break;
    case Verb::kWriteFlags:
      there.words[unit] = kFlag;
      break;
    default:
      wrong("a step of a miss has what only its end has");
  }
}

// A word of a node's hazards and rights epoch.
void Machine::watch(unsigned processor, const Operation& operation, uint8_t unit) {
  Thread& thread = threads_[processor];
  const unsigned n = operation.node.value;
  if (unit == 0) thread.epoch_before[n] = nodes_[node_of(processor)].known[n];
  const bool epoch_first = (thread.reads_epoch_first >> n & 1) != 0;
  if (unit == (epoch_first ? 0 : units(operation) - 1)) {
    thread.epoch_read[n] = nodes_[n].epoch;
    note("     {} reads the rights epoch of node {}: {}\n", processor, n, thread.epoch_read[n]);
    return;
  }
  unsigned seen = epoch_first ? 1 : 0;
  for (unsigned p = 0; p < threads_.size(); ++p) {
    if (node_of(p) != n) continue;
    for (unsigned w = 0; w < (batches_ ? 2u : 1u); ++w, ++seen)
      if (seen == unit && covers(threads_[p].hazard[w], thread.line, operation.loads)) {
        thread.hazards_read[p][w] = threads_[p].hazard[w];
        note("     {} sees a hazard of {}\n", processor, p);
      }
  }
}

// As Driver::look(), of all nodes that were looked at.
void Machine::judge_looks(unsigned processor, Outcome& outcome) {
  Thread& thread = threads_[processor];
  for (const Operation& operation : thread.step) {
    if (operation.verb != Verb::kScanHazards) continue;
    const unsigned n = operation.node.value;
    const Epoch epoch = thread.epoch_read[n];
    const bool even = (epoch & MG_FINE_EPOCH_CACHED) == 0;
    Epoch& known = nodes_[node_of(processor)].known[n];
    const Epoch before = is(Mutant::kKnowLate) ? known : thread.epoch_before[n];
    if (even) known = epoch;
    const auto bit = static_cast<uint8_t>(1u << n);
    if ((thread.looked_at & bit) == 0) {
      ScanResult result = validate_scan(epoch, before, thread.epoch_since[n]);
      if (is(Mutant::kIgnoreEpoch) || is(Mutant::kForgetBeforeTake) || (is(Mutant::kTrustEven) && even) ||
          (is(Mutant::kTrustOdd) && (epoch & ~MG_FINE_EPOCH_CACHED) == before))
        result = ScanResult::kValid;
      if (result != ScanResult::kValid) {
        if (even) thread.epoch_since[n] = epoch;
        outcome.blocked.insert(operation.node);
        if (result == ScanResult::kInvalidateCacheFirst) outcome.invalidate_first.insert(operation.node);
        if (!is(Mutant::kAlwaysFirst)) continue;
      }
    }
    for (unsigned p = 0; p < threads_.size(); ++p)
      for (unsigned w = 0; node_of(p) == n && w < 2; ++w) {
        const uint64_t hazard = thread.hazards_read[p][w];
        if ((thread.looked_at & bit) == 0) thread.hazards_seen[p][w] = hazard;
        if (hazard != 0 && thread.hazards_seen[p][w] == hazard) outcome.blocked.insert(operation.node);
      }
    thread.looked_at |= bit;
  }
  thread.epoch_read = thread.epoch_before = {};
  thread.reads_epoch_first = 0;
  thread.hazards_read = {};
}

void Machine::step_complete(unsigned processor) {
  Thread& thread = threads_[processor];
  Outcome outcome;
  outcome.entry = thread.seen_entry;
  if (is(Mutant::kIgnoreLock)) outcome.entry &= ~kLocked;
  for (uint16_t n = 0; n < scenario_->nodes; ++n)
    if ((thread.open >> n & 1) != 0) outcome.blocked.insert(NodeId(n));
  if (caches()) judge_looks(processor, outcome);
  Step next;
  const Progress progress = thread.miss.front().proceed(outcome, next);
  thread.seen_entry = progress == Progress::kBusy ? 0 : thread.seen_entry;
  if (progress == Progress::kBusy) {
    thread.buffer = {};
    thread.epoch_since.fill(kNoEpoch);
    thread.looked_at = 0;
    thread.hazards_seen = {};
  }
  if ((progress == Progress::kBusy || progress == Progress::kWaitForHazards) &&
      thread.hazard != decltype(thread.hazard){})
    wrong("F4: a processor waits with a hazard published");
  set_step(thread, next);
  if (progress != Progress::kLast) {
    // A mutant has left nothing to do.
    if (thread.step.empty()) step_complete(processor);
    return;
  }
  if (is(Mutant::kForgetReader) && !thread.stores && thread.seen_entry != 0)
    thread.step.back().word = thread.seen_entry;
  thread.at = At::kEnd;
  thread.index = 0;
  thread.word = 0;
}

// An operation of the last step, or a word of it.
void Machine::last_step(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned node = node_of(processor);
  const Operation operation = thread.step[thread.index];
  Frame& own = frame(node, thread.line);
  switch (operation.verb) {
    case Verb::kFill: {
      const unsigned word = kWords - 1 - thread.word;
      own.filling = thread.word + 1u < kWords;
      own.words[word] = thread.buffer[word];
      if (++thread.word < kWords) return;
      thread.word = 0;
      break;
    }
    case Verb::kSetOwn:
      own.entry = operation.word;
      break;
    case Verb::kPublishHazard:
      thread.hazard[0] = cover(thread.line, true);
      break;
    case Verb::kCompleteLoads:
      if (!thread.for_batch) {
        const Op& wanted = op(thread, processor);
        loaded(processor, thread.line, wanted.word, own.words[wanted.word]);
      }
      break;
    case Verb::kUnlock:
      frame(scenario_->homes[thread.line], thread.line).entry = operation.word;
      note("     {} unlocks line {}: {:#x}\n", processor, thread.line, operation.word);
      break;
    default:
      wrong("the end of a miss has what only its steps have");
  }
  if (++thread.index == thread.step.size()) miss_over(processor);
}

void Machine::miss_over(unsigned processor) {
  Thread& thread = threads_[processor];
  frame(node_of(processor), thread.line).locked = false;
  const uint8_t pc = thread.pc;
  const bool stores = thread.stores, for_batch = thread.for_batch;
  const auto hazard = thread.hazard;
  const uint8_t line = thread.line;
  thread = {};
  thread.pc = pc;
  thread.line = line;
  if (for_batch) return;  // tries again
  if (!stores) {
    next_op(thread);
    return;
  }
  thread.hazard = hazard;
  thread.at = At::kStore;
}

void Machine::start_engine(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned node = node_of(processor);
  thread.miss.assign(
      1, Miss(NodeId(static_cast<uint16_t>(node)), NodeId(static_cast<uint16_t>(scenario_->homes[thread.line])),
              thread.stores, (frame(node, thread.line).entry & kReadable) != 0));
  Step step;
  thread.miss.front().begin(step);
  set_step(thread, step);
  thread.at = At::kStep;
}

// --- Checks that cache

// Looks at the line, for what is about to be done there, or for what is to be cached.
void Machine::look_at_line(unsigned processor, unsigned line) {
  Thread& thread = threads_[processor];
  const unsigned node = node_of(processor);
  const Op& what = op(thread, processor);
  const bool stores = what.type != OpType::kReadBoth;
  if (!has(node, line, stores)) {
    if (line == thread.at_line) {
      begin_miss(processor, line, stores, what.type != OpType::kStore && what.type != OpType::kAdd);
      return;
    }
    thread.caching = false;
  }
  const bool both = scenario_->caches == Caches::kPages && !is(Mutant::kCacheSome) && lines() == 2;
  if (both && line == 0 && (thread.caching || thread.at_line == 1)) {
    thread.scans = 1;
    return;
  }
  if (is(Mutant::kScanBeforeBit) && thread.caching && (thread.epoch & MG_FINE_EPOCH_CACHED) == 0)
    thread.at = At::kSetBit;
  else if (thread.caching)
    thread.at = At::kCache;
  else
    line_is_here(thread);
}

// The line that the check was about may be used.
void Machine::line_is_here(Thread& thread) {
  const Op& what = op(thread, static_cast<unsigned>(&thread - threads_.data()));
  thread.caching = false;
  thread.scans = 0;
  if (what.type == OpType::kHoldBoth) {
    thread.at = At::kHoldDo;
  } else if (what.type == OpType::kStore || what.type == OpType::kAdd) {
    thread.at = At::kStore;
  } else if (thread.at_line == 0) {
    thread.at_line = 1;
    thread.at = At::kTrust;
  } else {
    thread.at = At::kBatchDo;
  }
}

void Machine::check_step(unsigned processor) {
  Thread& thread = threads_[processor];
  Node& node = nodes_[node_of(processor)];
  const Op& what = op(thread, processor);
  const bool stores = what.type != OpType::kReadBoth;
  Epoch& page = node.pages[page_of(thread.at_line)];
  const Epoch all = stores ? MG_FINE_CACHED_EXCLUSIVE : MG_FINE_CACHED_READABLE;
  switch (thread.at) {
    case At::kRightsEpoch:
      if (is(Mutant::kEpochBeforeHazard))
        thread.hazard[0] = cover(what.line, true);
      else
        thread.epoch = node.epoch;
      thread.at = At::kTrust;
      return;
    case At::kTrust:
      if ((thread.epoch & MG_FINE_EPOCH_CACHED) != 0 &&
          (page == thread.epoch + MG_FINE_CACHED_EXCLUSIVE || page == thread.epoch + all)) {
        note("     {} trusts what is cached of line {}\n", processor, thread.at_line);
        line_is_here(thread);
        return;
      }
      thread.caching = true;
      thread.scans = scenario_->caches == Caches::kPages && !is(Mutant::kCacheSome) ? 0 : thread.at_line;
      thread.at = (thread.epoch & MG_FINE_EPOCH_CACHED) == 0 && !is(Mutant::kScanBeforeBit) ? At::kSetBit : At::kScan;
      return;
    case At::kSetBit:
      if (node.epoch == thread.epoch) {
        node.epoch |= MG_FINE_EPOCH_CACHED;
        thread.epoch = node.epoch;
      } else {
        thread.caching = false;
        if (!is(Mutant::kScanBeforeBit)) thread.scans = thread.at_line;
      }
      if (!is(Mutant::kScanBeforeBit))
        thread.at = At::kScan;
      else if (thread.caching)
        thread.at = At::kCache;
      else
        line_is_here(thread);
      return;
    case At::kScan:
      look_at_line(processor, thread.scans);
      return;
    case At::kCache:
      page = thread.epoch + all;
      note("     node {} caches: {}\n", node_of(processor), page);
      line_is_here(thread);
      return;
    case At::kHoldDo: {
      Value& word = frame(node_of(processor), thread.at_line).words[what.word];
      word = what.value;
      stored(node_of(processor), thread.at_line, what.word, word);
      thread.at = thread.at_line == 0 ? At::kTrust : At::kClose;
      if (thread.at_line == 0) thread.at_line = 1;
      return;
    }
    default:
      wrong("a check in an impossible place");
  }
}

void Machine::step(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned node = node_of(processor);
  const Op& what = op(thread, processor);
  const bool batch = what.type == OpType::kReadBoth || what.type == OpType::kWriteBoth;
  const bool batch_stores = what.type == OpType::kWriteBoth;
  switch (thread.at) {
    case At::kOp:
      if (batch) {
        thread.hazard[0] = cover(0, batch_stores);
        thread.at = At::kBatch;
        return;
      }
      if (what.type == OpType::kHoldBoth) {
        thread.hazard[0] = MG_FINE_HAZARD_ALL + MG_FINE_HAZARD_LINE + MG_FINE_HAZARD_STORES;
        thread.at = At::kRightsEpoch;
        return;
      }
      thread.line = what.line;
      if (what.type == OpType::kLoad) {
        const Value value = frame(node, what.line).words[what.word];
        if (value == kFlag) {
          thread.at = At::kLook;
          return;
        }
        loaded(processor, what.line, what.word, value);
        next_op(thread);
        return;
      }
      if (caches()) {
        thread.at_line = what.line;
        if (is(Mutant::kEpochBeforeHazard))
          thread.epoch = nodes_[node].epoch;
        else
          thread.hazard[0] = cover(what.line, true);
        thread.at = At::kRightsEpoch;
        return;
      }
      if (is(Mutant::kNoFence)) {
        if (!has(node, what.line, true)) {
          begin_miss(processor, what.line, true, false);
          return;
        }
      } else {
        thread.hazard[0] = cover(what.line, true);
      }
      thread.at = At::kOpened;
      return;
    case At::kOpened:
      if (is(Mutant::kNoFence))
        thread.hazard[0] = cover(what.line, true);
      else if (!has(node, what.line, true)) {
        begin_miss(processor, what.line, true, false);
        return;
      }
      thread.at = At::kStore;
      return;
    case At::kStore: {
      Value& word = frame(node, what.line).words[what.word];
      // An update is lost if the frame does not hold what was stored last.
      if (what.type == OpType::kAdd) loaded(processor, what.line, what.word, word);
      word = what.type == OpType::kAdd ? static_cast<Value>(word + what.value) : what.value;
      stored(node, what.line, what.word, word);
      thread.at = At::kClose;
      return;
    }
    case At::kClose:
      next_op(thread);
      return;
    case At::kLook:
      thread.hazard[0] = cover(thread.line, false);
      thread.at = At::kLooked;
      return;
    case At::kLooked:
      if (has(node, thread.line, false))
        thread.at = At::kTake;
      else
        begin_miss(processor, thread.line, false, false);
      return;
    case At::kTake:
      loaded(processor, thread.line, what.word, frame(node, thread.line).words[what.word]);
      next_op(thread);
      return;
    case At::kLocal:
      frame(node, thread.line).locked = true;
      thread.at = At::kAgain;
      return;
    case At::kAgain:
      thread.hazard[0] = cover(thread.line, thread.stores);
      thread.at = At::kAgainSeen;
      return;
    case At::kAgainSeen:
      if (!has(node, thread.line, thread.stores)) {
        if (!is(Mutant::kKeepHazard)) thread.hazard = {};
        start_engine(processor);
        return;
      }
      frame(node, thread.line).locked = false;
      if (thread.for_batch) {
        thread.hazard = {};
        thread.at = At::kOp;
      } else {
        thread.at = thread.stores ? At::kStore : At::kTake;
      }
      return;
    case At::kEnd:
      last_step(processor);
      return;
    case At::kBatch:
      thread.hazard[1] = cover(1, batch_stores);
      thread.at = caches() ? At::kRightsEpoch : At::kBatchSee;
      return;
    case At::kBatchSee:
    case At::kBatchSee2: {
      const unsigned line = thread.at == At::kBatchSee ? 0 : 1;
      if (!has(node, line, batch_stores)) {
        begin_miss(processor, line, batch_stores, true);
        return;
      }
      thread.at = line == 0 && !is(Mutant::kNoCheckInBatch) ? At::kBatchSee2 : At::kBatchDo;
      return;
    }
    case At::kBatchDo:
    case At::kBatchDo2: {
      const unsigned line = thread.at == At::kBatchDo ? 0 : 1;
      Value& word = frame(node, line).words[what.word];
      if (batch_stores) {
        word = what.value;
        stored(node, line, what.word, word);
      } else {
        loaded(processor, line, what.word, word);
      }
      thread.at = line == 0 ? At::kBatchDo2 : At::kBatchEnd;
      return;
    }
    case At::kBatchEnd:
      next_op(thread);
      return;
    case At::kRightsEpoch:
    case At::kTrust:
    case At::kSetBit:
    case At::kScan:
    case At::kCache:
    case At::kHoldDo:
      check_step(processor);
      return;
    case At::kStep:
      break;
  }
  wrong("a processor in an impossible place");
}

void Machine::check() {
  for (unsigned l = 0; l < lines(); ++l) {
    const unsigned home = scenario_->homes[l];
    const uint64_t entry = frame(home, l).entry;
    const bool locked = (entry & kLocked) != 0;
    const NodeSet have = holders(entry, NodeId(static_cast<uint16_t>(home)));
    for (uint16_t n = 0; n < scenario_->nodes; ++n) {
      const Frame& here = frame(n, l);
      const bool at_home = n == home;
      if (here.entry == kExclusive) {
        for (unsigned other = 0; other < scenario_->nodes; ++other)
          if (other != n && (frame(other, l).entry & kReadable) != 0)
            wrong(fmt::format("F1: line {} is exclusive at node {}, and node {} may read it", l, n, other));
        if (!locked && have != NodeSet::of(NodeId(n)))
          wrong(fmt::format("F1: line {} is exclusive at node {}, and its entry says {:#x}", l, n, entry));
      }
      if (locked) continue;
      const bool readable = may_read(here.entry, at_home);
      if (readable != have.contains(NodeId(n)))
        wrong(
            fmt::format("the entry of line {} says {:#x}, and the word at node {} is {:#x}", l, entry, n, here.entry));
      if (readable) {
        for (unsigned w = 0; w < kWords; ++w)
          if (here.words[w] != golden_[l][w])
            wrong(fmt::format("line {} at node {} is readable and has {} in word {}, where {} was stored last", l, n,
                              here.words[w], w, golden_[l][w]));
      } else {
        for (const Value word : here.words)
          if (word != kFlag) wrong(fmt::format("F2: line {} is invalid at node {} and has no flag", l, n));
      }
      if (here.filling) wrong(fmt::format("line {} is filled at node {} behind an entry that is unlocked", l, n));
      // Of mutants the use of what is wrong is to be seen.
      const Epoch epoch = nodes_[n].epoch;
      if (!caches() || (epoch & MG_FINE_EPOCH_CACHED) == 0 || !is(Mutant::kNone)) continue;
      const Epoch page = nodes_[n].pages[page_of(l)];
      if ((page == epoch + MG_FINE_CACHED_EXCLUSIVE && !may_store(here.entry, at_home)) ||
          (page == epoch + MG_FINE_CACHED_READABLE && !readable))
        wrong(fmt::format("F5: node {} caches of line {} what it has lost", n, l));
    }
  }
}

std::string Machine::check_end() const {
  for (unsigned p = 0; p < threads_.size(); ++p)
    if (!at_end(p)) return fmt::format("processor {} is stuck", p);
  for (unsigned n = 0; n < scenario_->nodes; ++n)
    for (unsigned l = 0; l < lines(); ++l) {
      const Frame& frame = nodes_[n].lines[l];
      if ((frame.entry & kLocked) != 0 || frame.locked || frame.filling)
        return fmt::format("line {} is not at rest at node {}", l, n);
    }
  return {};
}

namespace {

uint64_t in_short(uint64_t hazard) {
  return hazard % 16 | (hazard >> 63) << 4 | uint64_t{hazard != 0} << 5 |
         uint64_t{(hazard & MG_FINE_HAZARD_ALL) != 0} << 6;
}

}  // namespace

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto put = [&](uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> 8 * i));
  };
  for (unsigned n = 0; n < scenario_->nodes; ++n)
    for (unsigned l = 0; l < lines(); ++l) {
      const Frame& frame = nodes_[n].lines[l];
      for (const Value word : frame.words) put(word, 1);
      put(frame.entry, 2);
      put(frame.locked | frame.filling << 1, 1);
    }
  for (unsigned l = 0; l < lines(); ++l)
    for (const Value word : golden_[l]) put(word, 1);
  for (const Thread& thread : threads_) {
    put(thread.pc, 1);
    put(static_cast<uint64_t>(thread.at), 1);
    for (const uint64_t hazard : thread.hazard) put(in_short(hazard), 1);
    put(thread.line, 1);
    put(thread.stores | thread.for_batch << 1, 1);
    put(thread.step.size(), 1);
    for (size_t i = 0; i < thread.step.size(); ++i) {
      put(static_cast<uint64_t>(thread.step[i].verb) | thread.step[i].node.value << 4 | thread.step[i].loads << 6, 1);
      put(thread.step[i].word, 2);
      put(thread.done[i], 1);
    }
    if (!thread.miss.empty())
      for (const uint64_t word : thread.miss.front().state()) put(word, 4);
    put(thread.seen_entry, 2);
    put(thread.open, 1);
    for (const Value word : thread.buffer) put(word, 1);
    put(thread.index, 1);
    put(thread.word, 1);
  }
  if (!caches()) return;
  for (unsigned n = 0; n < scenario_->nodes; ++n) {
    // No more matters of values than which are equal. Those that nobody will meet again are one.
    std::vector<unsigned> met;
    const auto meet = [&](unsigned value) {
      if (std::ranges::find(met, value >> 2) == met.end()) met.push_back(value >> 2);
    };
    const auto put_epoch = [&](unsigned value) {
      const auto at = std::ranges::find(met, value >> 2);
      put(at == met.end() ? 0xff : static_cast<uint64_t>(at - met.begin()) << 2 | (value & 3), 1);
    };
    meet(nodes_[n].epoch);
    for (unsigned p = 0; p < threads_.size(); ++p) {
      if (node_of(p) == n && (threads_[p].epoch & MG_FINE_EPOCH_CACHED) != 0) meet(threads_[p].epoch);
      if (threads_[p].at == At::kStep) meet(threads_[p].epoch_read[n]);
    }
    put_epoch(nodes_[n].epoch);
    for (const Epoch page : nodes_[n].pages) put_epoch(page);
    for (unsigned by = 0; by < scenario_->nodes; ++by) put_epoch(nodes_[by].known[n]);
    for (unsigned p = 0; p < threads_.size(); ++p) {
      const Thread& thread = threads_[p];
      if (node_of(p) == n) put_epoch(thread.epoch);
      if (thread.at != At::kStep) continue;
      put_epoch(thread.epoch_read[n]);
      put_epoch(thread.epoch_before[n]);
      put(thread.epoch_since[n] == kNoEpoch, 1);
      put_epoch(thread.epoch_since[n]);
    }
  }
  for (const Thread& thread : threads_) {
    put(thread.at_line | thread.scans << 1 | thread.caching << 2 | uint64_t{thread.looked_at} << 3, 1);
    put(thread.reads_epoch_first, 1);
    if (thread.at != At::kStep) continue;
    for (unsigned p = 0; p < threads_.size(); ++p)
      for (unsigned w = 0; w < (batches_ ? 2u : 1u); ++w) {
        put(in_short(thread.hazards_read[p][w]), 1);
        put((thread.looked_at >> node_of(p) & 1) != 0 ? in_short(thread.hazards_seen[p][w]) : 0, 1);
      }
  }
}

std::string Machine::describe() const {
  std::string out;
  for (unsigned n = 0; n < scenario_->nodes; ++n)
    for (unsigned l = 0; l < lines(); ++l) {
      const Frame& frame = nodes_[n].lines[l];
      out += fmt::format("node {} line {}: word {:#x} frame {} {}{}\n", n, l, frame.entry, frame.words[0],
                         frame.words[1], frame.locked ? " locked in the node" : "");
    }
  for (unsigned p = 0; p < threads_.size(); ++p)
    out += fmt::format("processor {} (node {}): op {} at {} hazards {:#x} {:#x}\n", p, node_of(p), threads_[p].pc,
                       static_cast<int>(threads_[p].at), threads_[p].hazard[0], threads_[p].hazard[1]);
  for (unsigned n = 0; caches() && n < scenario_->nodes; ++n)
    out += fmt::format("node {}: epoch {} caches {} {}\n", n, nodes_[n].epoch, nodes_[n].pages[0], nodes_[n].pages[1]);
  return out;
}

}  // namespace multigrain::dszoom::model
