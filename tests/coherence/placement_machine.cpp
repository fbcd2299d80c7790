#include "placement_machine.h"

#include <algorithm>
#include <cstring>

namespace multigrain::placement::explored {
namespace {

NodeId node_id(unsigned node) {
  return NodeId(static_cast<uint16_t>(node));
}

const char* name(State right) {
  static constexpr std::array<const char*, 4> kNames = {"none", "read", "write", "global"};
  return kNames[static_cast<size_t>(right)];
}
const char* name(Placement placement) {
  static constexpr std::array<const char*, 3> kNames = {"read-only", "local-writable", "global-writable"};
  return kNames[static_cast<size_t>(placement)];
}

std::set<Outcome> g_outcomes;
// Those of the scenario that is being explored.
std::set<Outcome> g_allowed;

}  // namespace

std::set<Outcome> allowed_outcomes(const Scenario& scenario) {
  return page_programs::sequential_outcomes(
      scenario.remote ? page_programs::with_moves_in_two(scenario.programs) : scenario.programs, scenario.homes.size());
}

void Machine::start_outcomes() {
  g_outcomes.clear();
}
const std::set<Outcome>& Machine::outcomes() {
  return g_outcomes;
}

Machine::Machine(const Scenario& scenario) : scenario_(&scenario), threads_(scenario.programs.size()) {
  MG_CHECK(scenario.nodes <= kMaxNodes && scenario.homes.size() <= kMaxPages);
  g_mutant = scenario.mutant;
  g_allowed = allowed_outcomes(scenario);
}

Context Machine::context(unsigned node, unsigned page) const {
  return {.self = node_id(node), .home = node_id(scenario_->homes[page])};
}

uint64_t& Machine::word(unsigned node, unsigned page, unsigned word) {
  const bool is_global = nodes_[node].rights[page] == State::kGlobal;
  return nodes_[is_global ? scenario_->homes[page] : node].frames[page][word];
}

bool Machine::is_remote(unsigned node, unsigned page) const {
  return scenario_->remote && nodes_[node].rights[page] == State::kGlobal && scenario_->homes[page] != node;
}

bool Machine::may(unsigned node, unsigned page, bool is_write) const {
  if (is_remote(node, page)) return false;
  const State right = nodes_[node].rights[page];
  return is_write ? right == State::kWrite || right == State::kGlobal : right != State::kNone;
}

// --- Events

// Where the policy is asked, the page's lock is held until it has answered.
void Machine::enabled(std::vector<Event>& events) const {
  using Kind = Event::Kind;
  events.clear();
  const auto add = [&](Kind kind, unsigned first, unsigned second) {
    events.push_back({kind, static_cast<uint8_t>(first), static_cast<uint8_t>(second)});
  };
  if (asked_ != kNoPage) {
    if (scenario_->answers != Answers::kGlobal) add(Kind::kLocal, 0, asked_);
    if (scenario_->answers != Answers::kLocal) add(Kind::kGlobal, 0, asked_);
    return;
  }
  for (unsigned t = 0; t < threads_.size(); ++t) {
    if (threads_[t].at == Thread::At::kReady || threads_[t].at == Thread::At::kReferring) add(Kind::kStep, t, 0);
    if (threads_[t].at == Thread::At::kGranted) add(Kind::kRun, t, 0);
  }
  for (unsigned to = 0; to < scenario_->nodes; ++to) {
    for (unsigned from = 0; from < scenario_->nodes; ++from)
      if (!nodes_[to].from[from].empty()) add(Kind::kDeliver, from, to);
    for (unsigned p = 0; p < pages(); ++p) {
      const Page& page = nodes_[to].pages[p];
      if (page.held && page.returning == 0 && (!page.has_order || nodes_[to].awaits_hold[p]))
        add(Kind::kHoldOver, to, p);
    }
  }
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  note("{}\n", in_words(event));
  switch (event.kind) {
    case Event::Kind::kStep:
      step(event.first);
      break;
    case Event::Kind::kRun: {
      Thread& thread = threads_[event.first];
      if (thread.refers) {
        thread.at = Thread::At::kReferring;
        break;
      }
      on_returned(nodes_[scenario_->processors[event.first]].pages[thread.page]);
      thread.at = Thread::At::kReady;
      break;
    }
    case Event::Kind::kDeliver:
      deliver(event.first, event.second);
      break;
    case Event::Kind::kHoldOver:
      hold_over(event.first, event.second);
      break;
    case Event::Kind::kLocal:
    case Event::Kind::kGlobal: {
      Actions actions;
      const unsigned home = scenario_->homes[event.second];
      asked_ = kNoPage;
      on_decision(entry(event.second), context(home, event.second),
                  event.kind == Event::Kind::kLocal ? Location::kLocal : Location::kGlobal, actions);
      perform(home, event.second, actions, nullptr);
      break;
    }
  }
  check();
  return verdict();
}

void Machine::step(unsigned number) {
  Thread& thread = threads_[number];
  if (thread.at == Thread::At::kReferring) return make_reference(number);
  if (thread.part != 0) return begin_reference(number);
  const unsigned node = scenario_->processors[number];
  const Op& op = scenario_->programs[number][thread.pc];
  const unsigned home = scenario_->homes[op.page];
  Actions actions;
  switch (op.type) {
    case OpType::kPin:
      on_pin(entry(op.page), context(home, op.page), static_cast<Pin>(op.value), actions);
      perform(home, op.page, actions, nullptr);
      return end_operation(number);
    case OpType::kThaw:
      on_thaw(entry(op.page), context(home, op.page), actions);
      perform(home, op.page, actions, nullptr);
      return end_operation(number);
    case OpType::kDiscard: {
      thread.at = Thread::At::kDiscarding;
      thread.page = op.page;
      const bool is_new = on_discard(entry(op.page), context(home, op.page), node_id(node), actions);
      perform(home, op.page, actions, nullptr);
      if (is_new) end_operation(number);
      return;
    }
    default:
      break;
  }
  const bool writes = op.type == OpType::kStore || op.type == OpType::kAdd;
  const bool lacks_first = !may(node, op.page, writes);
  if (lacks_first || (op.type == OpType::kMove && !may(node, op.to, true))) {
    const unsigned page = lacks_first ? op.page : op.to;
    return is_remote(node, page) ? begin_reference(number) : fault(thread, node, page, !lacks_first || writes);
  }
  uint64_t& at = word(node, op.page, op.word);
  if (op.type != OpType::kStore) thread.registers[op.reg] = at;
  if (op.type == OpType::kStore) at = op.value;
  if (op.type == OpType::kAdd) at += op.value;
  if (op.type == OpType::kMove) word(node, op.to, op.word) = at;
  end_operation(number);
}

void Machine::fault(Thread& thread, unsigned node, unsigned page, bool is_write) {
  if (++thread.faults[page] > kMostFaults)
    wrong(fmt::format("P5: a thread of node {} had no time for its access", node));
  Actions actions;
  const FaultOutcome outcome =
      on_fault(nodes_[node].pages[page], context(node, page), is_write ? Access::kWrite : Access::kRead, actions);
  if (outcome == FaultOutcome::kWait) {
    thread.at = Thread::At::kAsleep;
    thread.page = static_cast<uint8_t>(page);
    thread.is_write = is_write;
  }
  perform(node, page, actions, nullptr);
}

// The instruction makes its next access by a reference, in this step or when it has been granted the page.
void Machine::begin_reference(unsigned number) {
  Thread& thread = threads_[number];
  const unsigned node = scenario_->processors[number];
  const Op& op = scenario_->programs[number][thread.pc];
  thread.page = thread.part == 0 ? op.page : op.to;
  thread.is_write = thread.part != 0 || op.type == OpType::kStore || op.type == OpType::kAdd;
  thread.refers = true;
  Actions actions;
  const FaultOutcome outcome = on_reference(nodes_[node].pages[thread.page], context(node, thread.page),
                                            thread.is_write ? Access::kWrite : Access::kRead, actions);
  thread.at = outcome == FaultOutcome::kWait ? Thread::At::kAsleep : Thread::At::kReferring;
  perform(node, thread.page, actions, nullptr);
}

// The page's lock is not held while the operation takes effect, and is when it is over.
void Machine::make_reference(unsigned number) {
  Thread& thread = threads_[number];
  const unsigned node = scenario_->processors[number];
  const Op& op = scenario_->programs[number][thread.pc];
  const State right = nodes_[node].rights[thread.page];
  if (right == State::kNone || (thread.is_write && right == State::kRead))
    return wrong(
        fmt::format("P5: processor {} refers to page {}, which its node may {}", number, thread.page, name(right)));
  uint64_t& at = word(node, thread.page, op.word);
  if (thread.part != 0)
    at = thread.registers[op.reg];
  else if (op.type != OpType::kStore)
    thread.registers[op.reg] = at;
  if (op.type == OpType::kStore) at = op.value;
  if (op.type == OpType::kAdd) at += op.value;
  on_returned(nodes_[node].pages[thread.page]);
  thread.refers = false;
  thread.at = Thread::At::kReady;
  if (op.type == OpType::kMove && thread.part == 0)
    thread.part = 1;
  else
    end_operation(number);
}

void Machine::deliver(unsigned from, unsigned to) {
  std::vector<Packet>& link = nodes_[to].from[from];
  const Packet packet = link.front();
  link.erase(link.begin());
  const PageMessage& m = packet.message;
  note("     {} for page {}\n", placement::name(m.kind), packet.page);
  if (m.kind == MessageKind::kDiscarded) return wake_discarder(to, packet.page);
  Actions actions;
  if (!on_message(nodes_[to].pages[packet.page], context(to, packet.page), node_id(from), m, actions))
    return wrong(fmt::format("node {} ends the run: it cannot have got a {} from node {} now", to,
                             placement::name(m.kind), from));
  perform(to, packet.page, actions, &from);
}

void Machine::hold_over(unsigned node, unsigned page) {
  for (size_t t = 0; t < threads_.size(); ++t)
    if (scenario_->processors[t] == node) threads_[t].faults[page] = 0;
  nodes_[node].awaits_hold[page] = false;
  Actions actions;
  on_hold_over(nodes_[node].pages[page], context(node, page), actions);
  perform(node, page, actions, nullptr);
}

// --- Actions

void Machine::perform(unsigned node, unsigned page, const Actions& actions, const unsigned* sender) {
  OfNode& of = nodes_[node];
  for (const Action& action : actions) {
    switch (action.verb) {
      case Verb::kSend:
      case Verb::kSendPage:
        send(node, page, action);
        break;
      case Verb::kTakePage:
        if (sender == nullptr) return wrong("a page is taken from no message");
        fill(node, page, nodes_[*sender].frames[page]);
        break;
      case Verb::kFillZeros:
        fill(node, page, {});
        break;
      case Verb::kMapRead:
        of.rights[page] = State::kRead;
        break;
      case Verb::kMapWrite:
        of.rights[page] = State::kWrite;
        break;
      case Verb::kMapGlobal:
        of.rights[page] = State::kGlobal;
        break;
      case Verb::kRevokeWrite:
        take(node, page, State::kRead);
        break;
      case Verb::kRevoke:
        take(node, page, State::kNone);
        break;
      case Verb::kWakeReaders:
        wake(node, page, false);
        break;
      case Verb::kWakeWriters:
        wake(node, page, true);
        break;
      case Verb::kAwaitHold:
        of.awaits_hold[page] = true;
        break;
      case Verb::kAskPolicy:
        if (&action + 1 != actions.end()) wrong("something is done after the policy has been asked");
        asked_ = page;
        break;
      case Verb::kForget:
        break;
    }
  }
}

void Machine::send(unsigned node, unsigned page, const Action& action) {
  const MessageKind kind = action.message.kind;
  const unsigned to = action.node.value;
  note("     node {} sends {} to node {}\n", node, placement::name(kind), to);
  const State right = nodes_[node].rights[page];
  const bool is_answer =
      kind == MessageKind::kSynced || kind == MessageKind::kFlushed || kind == MessageKind::kUnmapped;
  if (is_answer && right != State::kNone && (kind != MessageKind::kSynced || right != State::kRead))
    wrong(fmt::format("P4: node {} answers {}, and its threads may {} the page", node, placement::name(kind),
                      name(right)));
  if (action.verb == Verb::kSendPage && (right == State::kWrite || right == State::kGlobal))
    wrong(fmt::format("P4: node {} sends a page that its threads may write", node));
  if (to == node) {
    if (kind != MessageKind::kDiscarded) return wrong("a node sends itself a message");
    return wake_discarder(node, page);
  }
  nodes_[to].from[node].push_back({static_cast<uint8_t>(page), action.message});
}

void Machine::fill(unsigned node, unsigned page, const std::array<uint64_t, kMaxWords>& bytes) {
  if (nodes_[node].rights[page] != State::kNone)
    wrong(fmt::format("node {} fills a frame that its threads may {}", node, name(nodes_[node].rights[page])));
  nodes_[node].frames[page] = bytes;
}

void Machine::take(unsigned node, unsigned page, State left) {
  for (size_t t = 0; t < threads_.size(); ++t)
    if (scenario_->processors[t] == node &&
        (threads_[t].at == Thread::At::kGranted || threads_[t].at == Thread::At::kReferring) &&
        threads_[t].page == page && (left == State::kNone || threads_[t].is_write))
      wrong(fmt::format("P5: page {} is taken from processor {}, which was granted it and does not run yet", page, t));
  nodes_[node].rights[page] = left;
}

void Machine::wake(unsigned node, unsigned page, bool writers) {
  for (size_t t = 0; t < threads_.size(); ++t) {
    Thread& thread = threads_[t];
    if (scenario_->processors[t] == node && thread.at == Thread::At::kAsleep && thread.page == page &&
        thread.is_write == writers)
      thread.at = Thread::At::kGranted;
  }
}

// At most one processor of a node discards a page at a time.
void Machine::wake_discarder(unsigned node, unsigned page) {
  for (size_t t = 0; t < threads_.size(); ++t)
    if (scenario_->processors[t] == node && threads_[t].at == Thread::At::kDiscarding && threads_[t].page == page)
      end_operation(t);
}

void Machine::end_operation(size_t number) {
  Thread& thread = threads_[number];
  thread.faults = {};
  thread.part = 0;
  thread.at = ++thread.pc == scenario_->programs[number].size() ? Thread::At::kEnd : Thread::At::kReady;
}

// --- What must hold

void Machine::check() {
  for (unsigned p = 0; p < pages(); ++p) {
    const Directory& d = entry(p).directory;
    unsigned own = 0, writers = 0, global = 0;
    for (unsigned n = 0; n < scenario_->nodes; ++n) {
      const State right = nodes_[n].rights[p];
      const Page& page = nodes_[n].pages[p];
      own += right == State::kRead || right == State::kWrite ? 1 : 0;
      writers += right == State::kWrite ? 1 : 0;
      global += right == State::kGlobal ? 1 : 0;
      if (right != State::kNone && !d.holders.contains(node_id(n)))
        wrong(fmt::format("P2: threads of node {} may {} page {}, and the entry does not name it", n, name(right), p));
      if (right == State::kRead && d.placement == Placement::kReadOnly &&
          nodes_[n].frames[p] != nodes_[scenario_->homes[p]].frames[p])
        wrong(fmt::format("P2: node {} has a copy of page {} that is not what is in global memory", n, p));
      if ((page.waiting_to_read + page.waiting_to_write != 0) != page.has_request)
        wrong(
            fmt::format("P6: node {} {} page {}", n, page.has_request ? "asks for nobody for" : "does not ask for", p));
    }
    if ((writers != 0 && own > 1) || (global != 0 && own != 0))
      wrong(fmt::format("P1: of page {} there are {} copies, {} of them writable, and {} nodes use global memory", p,
                        own, writers, global));
  }
}

std::string Machine::check_end() const {
  for (size_t t = 0; t < threads_.size(); ++t)
    if (threads_[t].at != Thread::At::kEnd) return fmt::format("deadlock: processor {} waits for ever", t);
  for (unsigned p = 0; p < pages(); ++p) {
    const Directory& d = entry(p).directory;
    if (d.work != Work::kNone || !(d.readers | d.writers | d.discarders | d.awaited).empty() || d.has_to_thaw)
      return fmt::format("the entry of page {} is not at rest in the end", p);
    for (unsigned n = 0; n < scenario_->nodes; ++n) {
      const Page& page = nodes_[n].pages[p];
      const State right = nodes_[n].rights[p];
      if (page.has_order || page.has_request || page.returning != 0 ||
          page.waiting_to_read + page.waiting_to_write != 0)
        return fmt::format("page {} is not at rest at node {} in the end", p, n);
      if (page.state != right) return fmt::format("node {} has rights to page {} that it does not know", n, p);
      const State expected = !d.holders.contains(node_id(n))            ? State::kNone
                             : d.placement == Placement::kReadOnly      ? State::kRead
                             : d.placement == Placement::kLocalWritable ? State::kWrite
                                                                        : State::kGlobal;
      if (right != expected)
        return fmt::format("P2: the entry says that threads of node {} may {} page {}, and they may {}", n,
                           name(expected), p, name(right));
      if (d.pin == Pin::kGlobal && right != State::kNone && right != State::kGlobal)
        return fmt::format("P7: page {} is pinned to global memory, and node {} has a copy", p, n);
    }
  }
  const Outcome end = outcome();
  g_outcomes.insert(end);
  return g_allowed.contains(end) ? std::string() : "an outcome that the model forbids";
}

Outcome Machine::outcome() const {
  Outcome all;
  for (const Thread& thread : threads_) all.insert(all.end(), thread.registers.begin(), thread.registers.end());
  for (unsigned p = 0; p < pages(); ++p) {
    const Directory& d = entry(p).directory;
    const unsigned holder = d.placement == Placement::kLocalWritable ? d.holders.first().value : scenario_->homes[p];
    all.insert(all.end(), nodes_[holder].frames[p].begin(), nodes_[holder].frames[p].end());
  }
  return all;
}

// --- For the explorer

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  const auto packed = [](const PageMessage& m) {
    return static_cast<uint64_t>(m.kind) | static_cast<uint64_t>(m.content) << 8 | static_cast<uint64_t>(m.right) << 16;
  };
  add(asked_);
  for (unsigned n = 0; n < scenario_->nodes; ++n) {
    const OfNode& node = nodes_[n];
    for (unsigned p = 0; p < pages(); ++p) {
      const Page& page = node.pages[p];
      add(static_cast<uint64_t>(page.state) | uint64_t{page.has_request} << 8 | uint64_t{page.held} << 9 |
          uint64_t{page.has_order} << 10 | uint64_t{node.awaits_hold[p]} << 11 |
          (page.has_order ? static_cast<uint64_t>(page.order) << 12 : 0) | static_cast<uint64_t>(node.rights[p]) << 16 |
          uint64_t{page.waiting_to_read} << 24 | uint64_t{page.waiting_to_write} << 32 |
          uint64_t{page.returning} << 40);
      for (const uint64_t value : node.frames[p]) add(value);
      if (n != scenario_->homes[p]) continue;
      const Directory& d = page.directory;
      add(d.holders.bits() | d.awaited.bits() << 8 | d.readers.bits() << 16 | d.writers.bits() << 24 |
          d.discarders.bits() << 32 | uint64_t{d.turn} << 40);
      const bool is_about_request = d.work == Work::kDecide || d.work == Work::kServe;
      add(static_cast<uint64_t>(d.placement) | uint64_t{d.is_written} << 4 | uint64_t{d.has_to_thaw} << 5 |
          static_cast<uint64_t>(d.pin) << 8 | static_cast<uint64_t>(d.work) << 12 |
          (is_about_request ? uint64_t{d.requester.value} << 16 | static_cast<uint64_t>(d.access) << 24 : 0) |
          (d.work == Work::kServe ? static_cast<uint64_t>(d.location) << 32 : 0));
    }
    for (const std::vector<Packet>& link : node.from) {
      add(link.size());
      for (const Packet& packet : link) add(packed(packet.message) | uint64_t{packet.page} << 32);
    }
  }
  for (const Thread& thread : threads_) {
    const bool waits = thread.at != Thread::At::kReady && thread.at != Thread::At::kEnd;
    add(static_cast<uint64_t>(thread.at) | uint64_t{thread.pc} << 8 | (waits ? uint64_t{thread.page} << 16 : 0) |
        (waits ? uint64_t{thread.is_write} << 24 : 0) | uint64_t{thread.refers} << 25 | uint64_t{thread.part} << 26 |
        uint64_t{thread.faults[0]} << 32 | uint64_t{thread.faults[1]} << 40);
    for (const uint64_t value : thread.registers) add(value);
  }
}

std::string Machine::describe() const {
  std::string out;
  for (unsigned p = 0; p < pages(); ++p) {
    const Directory& d = entry(p).directory;
    out += fmt::format("page {} at home at node {}: {}, holders {:b}, work {}\n", p, scenario_->homes[p],
                       name(d.placement), d.holders.bits(), static_cast<unsigned>(d.work));
    for (unsigned n = 0; n < scenario_->nodes; ++n)
      out += fmt::format("  node {}: may {}, frame {} {}\n", n, name(nodes_[n].rights[p]), nodes_[n].frames[p][0],
                         nodes_[n].frames[p][1]);
  }
  for (size_t t = 0; t < threads_.size(); ++t)
    out += fmt::format("processor {} of node {}: operation {}, state {}, registers {} {}\n", t,
                       scenario_->processors[t], threads_[t].pc, static_cast<unsigned>(threads_[t].at),
                       threads_[t].registers[0], threads_[t].registers[1]);
  return out;
}

std::string Machine::in_words(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kStep:
      return fmt::format("processor {} makes its access, or faults", event.first);
    case Event::Kind::kRun:
      return fmt::format("processor {}, which was granted the page, runs", event.first);
    case Event::Kind::kDeliver:
      return fmt::format("node {} handles a message of node {}", event.second, event.first);
    case Event::Kind::kHoldOver:
      return fmt::format("node {}'s hold of page {} is over", event.first, event.second);
    case Event::Kind::kLocal:
      return fmt::format("the policy says of page {}: LOCAL", event.second);
    case Event::Kind::kGlobal:
      return fmt::format("the policy says of page {}: GLOBAL", event.second);
  }
  return {};
}

}  // namespace multigrain::placement::explored
