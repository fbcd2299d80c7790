#include "shasta_model.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace multigrain::shasta::model {

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kReorder:
      return "reorder the messages of a channel";
    case Mutant::kIgnoreHazards:
      return "lower rights without looking at hazards";
    case Mutant::kIgnoreAcks:
      return "do not wait for acknowledgements";
    case Mutant::kFlagBeforeCopy:
      return "write the flag value before the data is copied";
    case Mutant::kNoFlag:
      return "do not write the flag value";
    case Mutant::kAnswerEarly:
      return "answer an invalidation that overtakes data, and keep the data";
    case Mutant::kUpgradeAlways:
      return "grant an upgrade whose copy is gone";
    case Mutant::kFenceOwn:
      return "a fence waits for the processor's own stores only";
    case Mutant::kDoNotWait:
      return "do not stall at a store under sc";
    case Mutant::kNotMasked:
      return "do not mask queued stores";
    case Mutant::kMaskUnderHazards:
      return "mask words under another processor's batch";
    case Mutant::kDoNotHold:
      return "hand a block on before a granted hazard is published";
    case Mutant::kForgetForwarded:
      return "do not serve what has waited for a hazard";
    case Mutant::kLoseWake:
      return "wake nobody";
  }
  return "?";
}

Machine::Machine(const Scenario& scenario)
    : scenario_(&scenario), nodes_(scenario.nodes), threads_(scenario.programs.size()) {
  for (unsigned t = 0; t < threads(); ++t) local_.push_back(processors_of_[node_of(t)]++);
  for (unsigned n = 0; n < scenario.nodes; ++n)
    for (unsigned b = 0; b < blocks(); ++b) {
      nodes_[n].blocks[b] = initial_block(context(n, b));
      Block& block = nodes_[n].blocks[b];
      if (!scenario.warm) {
        if (scenario.homes[b] != n) nodes_[n].frames[b].fill(kFlagValue);
        continue;
      }
      block.state = State::kShared;
      if (scenario.homes[b] != n) continue;
      for (unsigned other = 0; other < scenario.nodes; ++other)
        block.sharers.insert(NodeId(static_cast<uint16_t>(other)));
    }
  for (unsigned t = 0; t < threads(); ++t)
    if (scenario.programs[t].empty()) threads_[t].at = At::kDone;
}

unsigned Machine::thread_of(unsigned node, unsigned p) const {
  unsigned t = 0;
  while (t < threads() && (node_of(t) != node || local_[t] != p)) ++t;
  return t < threads() ? t : 0;  // a node without processors has actions that concern none
}

// --- What can happen

// A batch that goes access by access is a load or a store.
Op Machine::op(unsigned t) const {
  const Thread& thread = threads_[t];
  const Op& whole = scenario_->programs[t][thread.pc];
  if (thread.half == 0) return whole;
  const Access& access = thread.half == 1 ? whole.first : whole.second;
  return {access.stores ? OpType::kStore : OpType::kLoad, access, {}};
}

void Machine::enabled(std::vector<Event>& events) const {
  events.clear();
  for (unsigned t = 0; t < threads(); ++t) {
    const Thread& thread = threads_[t];
    if (thread.at == At::kDone || thread.at == At::kLoading) continue;
    if (!thread.asleep) events.push_back({Event::Type::kStep, static_cast<uint8_t>(t), 0, 0});
  }
  for (uint8_t n = 0; n < nodes_.size(); ++n)
    for (uint8_t b = 0; b < blocks(); ++b)
      if (nodes_[n].due[b]) events.push_back({Event::Type::kServe, n, b, 0});
  for (uint8_t from = 0; from < nodes_.size(); ++from)
    for (uint8_t to = 0; to < nodes_.size(); ++to) {
      const size_t size = channels_[from][to].size();
      for (uint8_t i = 0; i < size && (i == 0 || is(Mutant::kReorder)); ++i)
        events.push_back({Event::Type::kCompleteLoads, from, to, i});
    }
}

std::string Machine::in_words(const Event& event) {
  switch (event.type) {
    case Event::Type::kStep:
      return fmt::format("step of processor {}", event.a);
    case Event::Type::kServe:
      return fmt::format("node {} serves what has waited for block {}", event.a, event.b);
    case Event::Type::kCompleteLoads:
      return fmt::format("message {} from node {} to node {}", event.c, event.a, event.b);
  }
  return "?";
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  waits_for_hazard_ = false;
  note("{}: ", in_words(event));
  bool any_hazard = false;
  for (unsigned t = 0; t < threads(); ++t) any_hazard = any_hazard || has_hazard(t);
  std::optional<Machine> before;
  if (any_hazard) before.emplace(*this);
  switch (event.type) {
    case Event::Type::kStep:
      step(event.a);
      break;
    case Event::Type::kServe:
      serve(event.a, event.b);
      break;
    case Event::Type::kCompleteLoads:
      deliver(event.a, event.b, event.c);
      break;
  }
  if (waits_for_hazard_) {
    *this = std::move(*before);
    note("waits for a hazard");
  }
  note("\n");
  check();
  return verdict();
}

// --- Processors

Value Machine::visible(unsigned node, unsigned block, unsigned word) const {
  if (!is(Mutant::kNotMasked)) {
    for (unsigned t = 0; t < threads(); ++t) {
      if (node_of(t) != node) continue;
      for (const PendingStore& s : threads_[t].pending)
        if (s.masked && s.block == block && (s.mask >> word & 1) != 0) return kFlagValue;
    }
  }
  return nodes_[node].frames[block][word];
}

// A processor stores, or a transition makes its queued store: then the block's state is the one that the transition
// ends with, and says nothing.
void Machine::store(unsigned t, unsigned block, unsigned word, Value value, bool in_transition) {
  const unsigned n = node_of(t);
  const Block& b = nodes_[n].blocks[block];
  note("stores {} to {}.{}; ", value, block, word);
  if (!in_transition && b.state != State::kExclusive)
    wrong(fmt::format("processor {} stores to block {}, which is not exclusive at node {}", t, block, n));
  if (!in_transition && scenario_->model != Model::kRc && !b.is_complete())
    wrong(fmt::format("processor {} stores to block {} before its request is complete", t, block));
  // At home a request is replied to in the transition that makes it, which may be this one.
  if (scenario_->model != Model::kRc && b.replied && !context(n, block).is_home())
    wrong(fmt::format("a store of processor {} to block {} is made before its request is complete", t, block));
  if (nodes_[n].frames[block] != latest_[block])
    wrong(fmt::format("processor {} stores to a stale copy of block {}", t, block));
  ++threads_[t].made;
  nodes_[n].frames[block][word] = value;
  latest_[block][word] = value;
}

Right Machine::right(unsigned node, unsigned block) const {
  const NodeState& here = nodes_[node];
  // inline_right only looks.
  auto& mutable_here = const_cast<NodeState&>(here);
  const Node v{.processors = {mutable_here.processors.data(), processors_of_[node]}, .epochs = mutable_here.epochs};
  return inline_right(here.blocks[block], context(node, block), v);
}

bool Machine::may(unsigned t, const Access& access) const {
  return right(node_of(t), access.block) >= (access.stores ? Right::kWrite : Right::kRead);
}

bool Machine::has_hazard(unsigned t) const {
  const At at = threads_[t].at;
  return at == At::kHazard || at == At::kBatchFirst || at == At::kBatchSecond;
}

bool Machine::covers(unsigned t, unsigned block, bool loads) const {
  if (!has_hazard(t)) return false;
  const Op op = this->op(t);
  const auto is_covered = [&](const Access& a) { return a.block == block && (loads || a.stores); };
  return is_covered(op.first) || (op.type == OpType::kBatch && is_covered(op.second));
}

void Machine::next(unsigned t) {
  Thread& thread = threads_[t];
  thread.asleep = false;
  const Op done = op(t);
  switch (done.type) {
    case OpType::kStore:
    case OpType::kAdd:
      ++thread.due;
      break;
    case OpType::kBatch:
      thread.due = static_cast<uint8_t>(thread.due + unsigned{done.first.stores} + unsigned{done.second.stores});
      break;
    case OpType::kLoad:
    case OpType::kFence:
    case OpType::kPrefetch:
      break;
  }
  thread.at = At::kOp;
  if (thread.half == 1) {
    thread.half = 2;
    return;
  }
  thread.half = 0;
  if (++thread.pc == scenario_->programs[t].size()) thread.at = At::kDone;
}

void Machine::step(unsigned t) {
  Thread& thread = threads_[t];
  NodeState& node = here(t);
  const Access access = op(t).first;
  switch (thread.at) {
    case At::kOp:
      begin(t);
      break;
    case At::kHazard: {
      const Value old = node.frames[access.block][access.word];
      switch (op(t).type) {
        case OpType::kStore:
          store(t, access.block, access.word, access.value);
          next(t);
          break;
        case OpType::kAdd:
          thread.registers[access.reg] = old;
          store(t, access.block, access.word, static_cast<Value>(old + access.value));
          next(t);
          break;
        default:
          wrong("an operation that publishes no hazard");
          break;
      }
      break;
    }
    case At::kRetry:
      thread.asleep = true;
      ask(t);
      break;
    case At::kLoaded:
      next(t);
      break;
    case At::kDrain:
      if (must_wait(processor(t))) {
        thread.asleep = true;
      } else {
        next(t);
      }
      break;
    case At::kGranted:
      if (is(Mutant::kDoNotHold)) {
        thread.at = At::kHazard;
        break;
      }
      if (on_hazard_published(node.blocks[access.block], local(t)) && !is(Mutant::kForgetForwarded))
        node.due[access.block] = true;
      thread.at = At::kHazard;
      break;
    case At::kBatchWait:
      ask_batch(t);
      break;
    case At::kBatchFirst:
      batch_access(t, op(t).first);
      thread.at = At::kBatchSecond;
      break;
    case At::kBatchSecond:
      batch_access(t, op(t).second);
      next(t);
      break;
    case At::kLoading:
    case At::kDone:
      break;
  }
}

// The inline checks.
void Machine::begin(unsigned t) {
  Thread& thread = threads_[t];
  const Op op = this->op(t);
  const Access& access = op.first;
  switch (op.type) {
    case OpType::kLoad: {
      const Value value = visible(node_of(t), access.block, access.word);
      if (value != kFlagValue) {
        note("loads {} from {}.{}; ", value, access.block, access.word);
        thread.registers[access.reg] = value;
        next(t);
        return;
      }
      break;
    }
    case OpType::kStore:
    case OpType::kAdd:
      if (may(t, access)) {
        thread.at = At::kHazard;
        return;
      }
      break;
    case OpType::kBatch:
      if (may(t, access) && may(t, op.second)) {
        thread.at = At::kBatchFirst;
        return;
      }
      ask_batch(t);
      return;
    case OpType::kFence:
    case OpType::kPrefetch:
      break;
  }
  thread.at = At::kRetry;
  thread.asleep = true;
  ask(t);
}

// In the runtime.
void Machine::ask(unsigned t) {
  Thread& thread = threads_[t];
  const unsigned n = node_of(t);
  NodeState& node = nodes_[n];
  const Op op = this->op(t);
  const Access& access = op.first;
  Block& b = node.blocks[access.block];
  const Context p = context(n, access.block);
  Node v = view(n);
  Actions actions;
  using shasta::Outcome;
  switch (op.type) {
    case OpType::kLoad: {
      for (auto s = thread.pending.rbegin(); s != thread.pending.rend(); ++s)
        if (s->block == access.block && (s->mask >> access.word & 1) != 0) {
          note("forwards {} from {}.{}; ", s->values[access.word], access.block, access.word);
          thread.registers[access.reg] = s->values[access.word];
          next(t);
          return;
        }
      if (on_load(b, p, v, local(t), actions) == Outcome::kResolved) {
        const Value value = node.frames[access.block][access.word];
        note("is told {} from {}.{}; ", value, access.block, access.word);
        if (value == kFlagValue) wrong(fmt::format("processor {} is told the flag value", t));
        thread.registers[access.reg] = value;
        next(t);
      } else {
        thread.at = At::kLoading;
      }
      break;
    }
    case OpType::kStore:
    case OpType::kAdd: {
      const bool requests_hazard = op.type == OpType::kAdd;
      const Outcome outcome =
          requests_hazard ? on_request_hazard(b, p, v, local(t), actions) : on_store(b, p, v, local(t), actions);
      if (outcome == Outcome::kResolved && requests_hazard) {
        thread.at = At::kHazard;
        thread.asleep = false;
      } else if (outcome == Outcome::kResolved) {
        store(t, access.block, access.word, access.value, true);
        next(t);
      } else if (outcome == Outcome::kQueued) {
        PendingStore s{
            .block = access.block, .mask = static_cast<uint8_t>(1u << access.word), .requests_hazard = requests_hazard};
        s.values[access.word] = access.value;
        thread.pending.push_back(s);
        thread.at = At::kDrain;
        thread.asleep = false;
        run(n, access.block, actions);
        if (thread.at == At::kDrain && !must_wait(processor(t))) next(t);
        return;
      }
      break;
    }
    case OpType::kFence: {
      const bool done =
          is(Mutant::kFenceOwn) ? processor(t).queue.empty() : on_fence(model_of_transitions(), v, local(t));
      if (done) next(t);
      return;
    }
    case OpType::kPrefetch:
      on_prefetch_exclusive(b, p, v, actions);
      next(t);
      break;
    case OpType::kBatch:
      return;
  }
  run(n, access.block, actions);
}

// --- Batches

// Asks for both blocks at once, and when they have come looks again. A batch that then finds one gone goes access by
// access.
void Machine::ask_batch(unsigned t) {
  Thread& thread = threads_[t];
  const unsigned n = node_of(t);
  const bool asked = thread.at == At::kBatchWait;
  const Op op = this->op(t);
  bool waits = false;
  for (const Access* a : {&op.first, &op.second}) {
    Block& b = nodes_[n].blocks[a->block];
    if (!asked) {
      Actions actions;
      Node v = view(n);
      if (a->stores) {
        on_prefetch_exclusive(b, context(n, a->block), v, actions);
      } else {
        on_fetch(b, context(n, a->block), v, local(t), actions);
      }
      run(n, a->block, actions);
    }
    waits = waits || (a->stores ? b.prefetching : b.fetching.contains(local(t)));
  }
  thread.at = At::kBatchWait;
  thread.asleep = waits;
  if (!asked || waits) return;
  if (may(t, op.first) && may(t, op.second)) {
    thread.at = At::kBatchFirst;
  } else {
    thread.at = At::kOp;
    thread.half = 1;
  }
}

void Machine::batch_access(unsigned t, const Access& access) {
  if (access.stores) {
    store(t, access.block, access.word, access.value);
    return;
  }
  const Value value = visible(node_of(t), access.block, access.word);
  note("the batch loads {} from {}.{}; ", value, access.block, access.word);
  if (value == kFlagValue) wrong(fmt::format("a batch of processor {} loads the flag value", t));
  threads_[t].registers[access.reg] = value;
}

// --- The driver's side

void Machine::wake(unsigned node) {
  if (is(Mutant::kLoseWake)) return;
  for (unsigned t = 0; t < threads(); ++t)
    if (node_of(t) == node) threads_[t].asleep = false;
}

// An invalidation is on its way to the node, or waits there for the data of a read that was ordered before it.
bool Machine::loses(unsigned node, unsigned block) const {
  if (nodes_[node].blocks[block].has_invalidation) return true;
  for (const Packet& p : channels_[scenario_->homes[block]][node])
    if (p.block == block && p.message.kind == MessageKind::kInvalidate) return true;
  return false;
}

void Machine::run(unsigned node, unsigned block, const Actions& actions, const Packet* packet) {
  NodeState& here = nodes_[node];
  Words& frame = here.frames[block];
  Words copy{};
  const auto send = [&](const Action& action, const Words& words) {
    note("node {} sends {} to node {} ({} acks, for {}); ", node, shasta::name(action.message.kind), action.node.value,
         action.message.acks, action.message.requester.value);
    auto& channel = channels_[node][action.node.value];
    if (action.node.value == node) wrong("a node sends to itself");
    channel.push_back({static_cast<uint8_t>(block), action.message, words});
    if (channel.size() > 16) wrong("a channel grows without bound");
  };
  for (const Action& action : actions) {
    const unsigned t = thread_of(node, action.processor);
    Thread& thread = threads_[t];
    switch (action.verb) {
      case Verb::kLowerToShared:
        lower(node, block, false);
        break;
      case Verb::kLowerToInvalid:
        lower(node, block, true);
        break;
      case Verb::kSend:
        send(action, {});
        break;
      case Verb::kCopy:
        copy = frame;
        if (is(Mutant::kFlagBeforeCopy) && here.blocks[block].state == State::kInvalid) copy.fill(kFlagValue);
        break;
      case Verb::kSendCopy:
        if (copy != latest_[block] && !(action.message.kind == MessageKind::kData && loses(action.node.value, block)))
          wrong(fmt::format("node {} sends block {} without the last store to it", node, block));
        send(action, copy);
        break;
      case Verb::kFill:
        if (packet == nullptr) {
          wrong("a frame is filled from nowhere");
        } else {
          frame = packet->words;
        }
        break;
      case Verb::kWriteFlags:
        if (!is(Mutant::kNoFlag)) frame.fill(kFlagValue);
        break;
      case Verb::kMask:
        thread.pending.back().masked = true;
        break;
      case Verb::kGrantHazard:
        if (thread.at != At::kDrain || thread.pending.empty() || !thread.pending.back().requests_hazard) {
          wrong(fmt::format("processor {} is granted a hazard that it does not wait for", t));
          break;
        }
        thread.pending.pop_back();
        thread.at = At::kGranted;
        thread.asleep = false;
        if (is(Mutant::kDoNotHold)) here.blocks[block].granted.erase(action.processor);
        break;
      case Verb::kRetire:
        for (unsigned i = 0; i < action.count; ++i) {
          const auto s = std::find_if(thread.pending.begin(), thread.pending.end(),
                                      [&](const PendingStore& p) { return p.block == block; });
          if (s == thread.pending.end()) {
            wrong("a store retires twice");
            break;
          }
          const PendingStore done = *s;
          thread.pending.erase(s);
          for (unsigned w = 0; w < kMaxWords; ++w) {
            if ((done.mask >> w & 1) != 0) store(t, block, w, done.values[w], true);
          }
        }
        break;
      case Verb::kCompleteLoads: {
        const Access a = op(t).first;
        if (thread.at != At::kLoading || a.block != block) {
          wrong(fmt::format("processor {} is delivered what it does not wait for", t));
          break;
        }
        note("processor {} gets {} from {}.{}; ", t, frame[a.word], block, a.word);
        if (frame[a.word] == kFlagValue) wrong(fmt::format("processor {} is delivered the flag value", t));
        thread.registers[a.reg] = frame[a.word];
        thread.at = At::kLoaded;
        thread.asleep = false;
        break;
      }
      case Verb::kWake:
        wake(node);
        break;
    }
  }
}

// A step that would lower rights under a hazard is not taken yet.
void Machine::lower(unsigned node, unsigned block, bool loads) {
  if (is(Mutant::kIgnoreHazards)) return;
  if (is(Mutant::kMaskUnderHazards) && loads && nodes_[node].blocks[block].is_readable()) return;
  for (unsigned t = 0; t < threads(); ++t)
    if (node_of(t) == node && covers(t, block, loads)) waits_for_hazard_ = true;
}

void Machine::serve(unsigned node, unsigned block) {
  NodeState& here = nodes_[node];
  here.due[block] = false;
  Actions actions;
  Node v = view(node);
  on_advance(here.blocks[block], context(node, block), v, actions);
  run(node, block, actions);
}

void Machine::deliver(unsigned from, unsigned to, unsigned position) {
  auto& channel = channels_[from][to];
  const Packet packet = channel[position];
  channel.erase(channel.begin() + position);
  const unsigned block = packet.block;
  Block& b = nodes_[to].blocks[block];
  BlockMessage m = packet.message;
  note("{} for block {}; ", shasta::name(m.kind), block);
  const NodeId sender(static_cast<uint16_t>(from));
  if (is(Mutant::kIgnoreAcks)) {
    m.acks = 0;
    if (m.kind == MessageKind::kInvalidated) return;
  }
  if (is(Mutant::kAnswerEarly) && m.kind == MessageKind::kInvalidate && b.pending == Pending::kRead) {
    channels_[to][m.requester.value].push_back(
        {packet.block, {.kind = MessageKind::kInvalidated, .requester = m.requester}, {}});
    return;
  }
  if (is(Mutant::kUpgradeAlways) && m.kind == MessageKind::kUpgrade) b.sharers.insert(sender);
  Actions actions;
  Node v = view(to);
  if (!on_message(b, context(to, block), v, sender, m, actions)) {
    wrong(fmt::format("node {} refuses {} for block {} from node {}", to, shasta::name(m.kind), block, from));
    return;
  }
  run(to, block, actions, &packet);
}

// --- What must hold

void Machine::check() {
  for (unsigned b = 0; b < blocks() && all_well(); ++b) {
    unsigned exclusive = 0;
    unsigned complete = kMaxNodes;
    unsigned readable = 0;
    for (unsigned n = 0; n < nodes_.size(); ++n) {
      const Block& block = nodes_[n].blocks[b];
      if (block.state == State::kExclusive) ++exclusive;
      if (block.is_complete()) complete = n;
      if (block.is_readable()) ++readable;
      const bool masks = std::any_of(nodes_[n].processors.begin(), nodes_[n].processors.end(),
                                     [&](const Processor& p) { return p.queue.masks(BlockId(b)); });
      for (unsigned t = 0; t < threads(); ++t) {
        if (node_of(t) != n || is(Mutant::kIgnoreHazards)) continue;
        if (covers(t, b, false) && block.state != State::kExclusive)
          wrong(fmt::format("a hazard of processor {} outlives the exclusive copy of block {}", t, b));
        if (covers(t, b, true) && !block.is_readable())
          wrong(fmt::format("a hazard of processor {} outlives the copy of block {}", t, b));
        if (covers(t, b, true) && masks)
          wrong(fmt::format("words of block {} are masked at node {} under a hazard", b, n));
      }
      if (masks && block.is_at_rest()) wrong(fmt::format("block {} rests at node {} with stores queued", b, n));
      if (block.replied) {
        // (S5)
        const NodeId self(static_cast<uint16_t>(n));
        int missing = 0;
        for (unsigned from = 0; from < nodes_.size(); ++from) {
          for (unsigned to = 0; to < nodes_.size(); ++to)
            for (const Packet& p : channels_[from][to])
              if (p.block == b && p.message.requester == self &&
                  (p.message.kind == MessageKind::kInvalidate || p.message.kind == MessageKind::kInvalidated))
                ++missing;
          const Block& other = nodes_[from].blocks[b];
          if (other.has_invalidation && other.invalidation == self) ++missing;
        }
        if (missing != block.acks)
          wrong(fmt::format("node {} waits for {} acknowledgements of block {}; there are {}", n, block.acks, b,
                            missing));
      }
    }
    if (exclusive > 1) wrong(fmt::format("block {} is exclusive at two nodes", b));
    if (complete == kMaxNodes) continue;
    if (readable > 1) wrong(fmt::format("block {} is exclusive at node {} and readable elsewhere", b, complete));
    if (nodes_[complete].frames[b] != latest_[b])
      wrong(fmt::format("a store to block {} is lost at node {}", b, complete));
    for (unsigned from = 0; from < nodes_.size(); ++from)
      for (unsigned to = 0; to < nodes_.size(); ++to)
        for (const Packet& p : channels_[from][to])
          if (p.block == b && (p.message.kind == MessageKind::kData || p.message.kind == MessageKind::kDataExclusive))
            wrong(fmt::format("block {} is exclusive at node {}, and data is under way", b, complete));
  }
}

Outcome Machine::outcome() const {
  Outcome out;
  for (const Thread& t : threads_) out.insert(out.end(), t.registers.begin(), t.registers.end());
  for (unsigned b = 0; b < blocks(); ++b) out.insert(out.end(), latest_[b].begin(), latest_[b].end());
  return out;
}

std::string Machine::check_end() const {
  for (unsigned t = 0; t < threads(); ++t) {
    if (threads_[t].at != At::kDone) return fmt::format("deadlock: processor {} waits for ever", t);
    if (!threads_[t].pending.empty() || !processor(t).queue.empty())
      return fmt::format("a store of processor {} never retires", t);
    if (threads_[t].made != threads_[t].due)
      return fmt::format("processor {} has made {} stores of {}", t, threads_[t].made, threads_[t].due);
  }
  for (unsigned n = 0; n < nodes_.size(); ++n) {
    if (!nodes_[n].epochs.idle()) return fmt::format("node {} still counts stores", n);
    for (unsigned b = 0; b < blocks(); ++b) {
      const Block& block = nodes_[n].blocks[b];
      if (!block.is_at_rest() || block.replied || nodes_[n].due[b])
        return fmt::format("block {} does not come to rest at node {}", b, n);
      const Block& directory = nodes_[scenario_->homes[b]].blocks[b];
      const NodeId self(static_cast<uint16_t>(n));
      if (directory.sharers.contains(self) != block.is_readable())
        return fmt::format("the directory is wrong about block {} at node {}", b, n);
      if (directory.owner == self && !block.is_readable()) return fmt::format("the owner has no copy of block {}", b);
      const Words& frame = nodes_[n].frames[b];
      if (block.is_readable() && frame != latest_[b])
        return fmt::format("node {} is left with a stale copy of block {}", n, b);
      const bool is_flagged = std::all_of(frame.begin(), frame.end(), [](Value v) { return v == kFlagValue; });
      if (!block.is_readable() && !is_flagged && !is(Mutant::kNoFlag))
        return fmt::format("block {} is invalid at node {} and does not hold the flag value", b, n);
    }
  }
  const Outcome end = outcome();
  if (scenario_->outcomes != nullptr) scenario_->outcomes->insert(end);
  if (scenario_->allowed != nullptr && !scenario_->allowed->contains(end))
    return fmt::format("the model forbids {}", model::in_words(end));
  return {};
}

// --- For the explorer

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto put = [&](auto value) { out.push_back(static_cast<uint8_t>(value)); };
  for (unsigned n = 0; n < nodes_.size(); ++n) {
    const NodeState& node = nodes_[n];
    const FenceEpochs& e = node.epochs;
    put(e.current() - e.oldest());
    for (uint64_t i = e.oldest(); i <= e.current(); ++i) put(e.count(i));
    for (unsigned b = 0; b < blocks(); ++b) {
      const Block& k = node.blocks[b];
      if (scenario_->homes[b] == n) {
        put(k.owner.value);
        put(k.sharers.bits());
      }
      put(static_cast<unsigned>(k.state) | static_cast<unsigned>(k.pending) << 2 | unsigned{k.replied} << 5 |
          unsigned{k.prefetching} << 6 | unsigned{node.due[b]} << 7);
      put(k.acks);
      const bool counts = k.pending > Pending::kRead && model_of_transitions() == Model::kRc;
      put(counts ? k.epoch - e.oldest() : 0);
      put(k.granted.bits() | k.forwarded_reads.bits() << 4);
      put(k.has_forwarded_exclusive ? 1 + k.forwarded_exclusive.value + 16 * k.forwarded_acks : 0);
      put(k.has_invalidation ? 1 + k.invalidation.value : 0);
      put(k.loading.bits() | k.fetching.bits() << 4);
      for (const Value v : node.frames[b]) put(v);
    }
    for (unsigned p = 0; p < processors_of_[n]; ++p) {
      const Processor& k = node.processors[p];
      put(k.fencing);
      // Past is past: only the order with what is still counted matters.
      put(k.fencing ? (k.fence < e.oldest() ? 0 : k.fence - e.oldest() + 1) : 0);
      put(k.queue.size());
      for (size_t i = 0; i < k.queue.size(); ++i)
        put(k.queue[i].block.value << 2 | unsigned{k.queue[i].waits} << 1 | unsigned{k.queue[i].requests_hazard});
    }
  }
  for (const Thread& t : threads_) {
    put(t.pc);
    put(static_cast<unsigned>(t.at) | unsigned{t.asleep} << 4 | unsigned{t.half} << 6);
    put(t.made);
    for (const Value v : t.registers) put(v);
    put(t.pending.size());
    for (const PendingStore& s : t.pending) {
      put(unsigned{s.block} | unsigned{s.mask} << 2 | unsigned{s.requests_hazard} << 4 | unsigned{s.masked} << 5);
      for (const Value v : s.values) put(v);
    }
  }
  for (unsigned from = 0; from < nodes_.size(); ++from)
    for (unsigned to = 0; to < nodes_.size(); ++to) {
      put(channels_[from][to].size());
      for (const Packet& p : channels_[from][to]) {
        put(p.block);
        put(p.message.kind);
        put(p.message.requester.value);
        put(p.message.acks);
        for (const Value v : p.words) put(v);
      }
    }
  for (const Words& words : latest_)
    for (const Value v : words) put(v);
}

std::string Machine::describe() const {
  std::string out;
  for (unsigned n = 0; n < nodes_.size(); ++n)
    for (unsigned b = 0; b < blocks(); ++b) {
      const Block& k = nodes_[n].blocks[b];
      out += fmt::format(
          "     node {} block {}: state {} pending {}{} acks {} held {:x} frame {} {}, directory {} {:x}\n", n, b,
          static_cast<unsigned>(k.state), static_cast<unsigned>(k.pending), k.replied ? " replied" : "", k.acks,
          k.granted.bits(), nodes_[n].frames[b][0], nodes_[n].frames[b][1], k.owner.value, k.sharers.bits());
    }
  for (unsigned t = 0; t < threads(); ++t)
    out += fmt::format("     processor {}: at operation {}, {}{}, {} stores queued\n", t, threads_[t].pc,
                       static_cast<unsigned>(threads_[t].at), threads_[t].asleep ? " asleep" : "",
                       threads_[t].pending.size());
  return out;
}

std::string in_words(const Outcome& outcome) {
  return fmt::format("registers and memory {}", fmt::join(outcome, " "));
}

}  // namespace multigrain::shasta::model
