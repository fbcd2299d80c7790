#include "mgs_model.h"

#include <algorithm>
#include <bitset>
#include <stdexcept>

namespace multigrain::mgs::model {
namespace {

const char* word_for(PageState state) {
  switch (state) {
    case PageState::kInv:
      return "INV";
    case PageState::kRead:
      return "READ";
    case PageState::kWrite:
      return "WRITE";
  }
  return "?";
}

const char* word_for(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "";
    case Phase::kBusyRead:
      return " BUSY(RREQ)";
    case Phase::kBusyWrite:
      return " BUSY(WREQ)";
    case Phase::kReadInvInProgress:
      return " INV_IN_PROG(read)";
    case Phase::kWriteInvInProgress:
      return " INV_IN_PROG(write)";
    case Phase::k1wInvInProgress:
      return " INV_IN_PROG(sole)";
  }
  return "?";
}

const char* word_for(ServerState state) {
  switch (state) {
    case ServerState::kRead:
      return "READ";
    case ServerState::kWrite:
      return "WRITE";
    case ServerState::kSwrite:
      return "SWRITE";
    case ServerState::kRelInProgress:
      return "REL_IN_PROG";
  }
  return "?";
}

std::string list(uint64_t bits) {
  std::string out = "{";
  for (unsigned i = 0; i < 64; ++i)
    if ((bits >> i & 1) != 0) out += fmt::format("{}{}", out.size() > 1 ? "," : "", i);
  return out + "}";
}

NodeSet set_of(unsigned node) {
  return NodeSet::of(NodeId(static_cast<uint16_t>(node)));
}
DomainId domain_id(unsigned domain) {
  return DomainId(static_cast<uint16_t>(domain));
}

// The operations of all processors, numbered, and which happens before which.
class Order {
 public:
  static constexpr size_t kMax = 256;

  explicit Order(const Scenario& scenario) : scenario_(scenario) {
    for (const Processor& p : scenario.processors) {
      first_.push_back(count_);
      count_ += p.program.size();
    }
    if (count_ > kMax) throw std::invalid_argument(scenario.name + ": too many operations to order");
    before_.resize(count_);
    each([&](size_t id, const Op& op, size_t, size_t index) {
      if (index > 0) before_[id].set(id - 1);
      if (op.type != OpType::kWait) return;
      each([&](size_t other, const Op& signal_op, size_t, size_t) {
        if (signal_op.type == OpType::kSignal && (signal_op.tokens & op.tokens) != 0) before_[id].set(other);
      });
    });
    for (size_t k = 0; k < count_; ++k)
      for (size_t i = 0; i < count_; ++i)
        if (before_[i].test(k)) before_[i] |= before_[k];
    for (size_t i = 0; i < count_; ++i)
      if (before_[i].test(i)) throw std::invalid_argument(scenario.name + ": the tokens form a cycle");
  }

  [[nodiscard]] bool before(size_t a, size_t b) const { return before_[b].test(a); }
  [[nodiscard]] size_t id(size_t processor, size_t index) const { return first_[processor] + index; }

  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t p = 0; p < scenario_.processors.size(); ++p)
      for (size_t i = 0; i < scenario_.processors[p].program.size(); ++i)
        visit(id(p, i), scenario_.processors[p].program[i], p, i);
  }

 private:
  const Scenario& scenario_;
  std::vector<size_t> first_;
  std::vector<std::bitset<kMax>> before_;
  size_t count_ = 0;
};

}  // namespace

Op read(unsigned page, unsigned word) {
  return {.type = OpType::kRead, .page = static_cast<uint8_t>(page), .word = static_cast<uint8_t>(word), .legal = {}};
}
Op write(unsigned page, unsigned word, Value value) {
  return {.type = OpType::kWrite,
          .page = static_cast<uint8_t>(page),
          .word = static_cast<uint8_t>(word),
          .value = value,
          .legal = {}};
}
Op release() {
  return {.type = OpType::kRelease, .legal = {}};
}
Op signal(unsigned token) {
  return {.type = OpType::kSignal, .tokens = uint64_t{1} << token, .legal = {}};
}
Op wait(std::initializer_list<unsigned> tokens) {
  Op op{.type = OpType::kWait, .legal = {}};
  for (const unsigned token : tokens) op.tokens |= uint64_t{1} << token;
  return op;
}
Op lock(unsigned which) {
  return {.type = OpType::kLock, .page = static_cast<uint8_t>(which), .legal = {}};
}
Op unlock(unsigned which) {
  return {.type = OpType::kUnlock, .page = static_cast<uint8_t>(which), .legal = {}};
}
Op barrier() {
  return {.type = OpType::kBarrier, .legal = {}};
}

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kForgetQueueEntry:
      return "forget the queue entry at an invalidation";
    case Mutant::kIgnoreOtherReleases:
      return "ignore releases that other processors have in flight";
    case Mutant::kMergeDiffAtOnce:
      return "merge a diff before the 1WDATA of its round";
    case Mutant::kDiffBeforeUnmap:
      return "make the diff before mappings are gone";
    case Mutant::kReorderMessages:
      return "reorder the messages of a channel";
    case Mutant::kLoseWake:
      return "lose a wake-up";
    case Mutant::kMapBeforeQueue:
      return "make a page writable before it is queued";
    case Mutant::kNoTwin:
      return "return a written copy whole";
  }
  return "?";
}

// --- Programs -------------------------------------------------------------------------------------------------------

void Scenario::prepare() {
  if (words > kMaxWords || homes.size() > kMaxPages || domains > DomainSet::kCapacity)
    throw std::invalid_argument(name + ": larger than the model's limits");
  domain_of.clear();
  std::vector<unsigned> seen(nodes, 0);
  for (const Processor& p : processors) domain_of.push_back(seen.at(p.node)++ % domains);

  for (const Processor& p : processors) {
    bool dirty = false;
    for (const Op& op : p.program) {
      if (op.type == OpType::kWrite) dirty = true;
      if (op.type == OpType::kRelease) dirty = false;
      const bool passes_on = op.type == OpType::kSignal || op.type == OpType::kUnlock || op.type == OpType::kBarrier;
      if (passes_on && dirty) throw std::invalid_argument(name + ": something is passed on without a release");
    }
    if (dirty) throw std::invalid_argument(name + ": a program ends without a release");
  }
  if (golden) return;

  const Order order(*this);
  const auto same_word = [](const Op& a, const Op& b) { return a.page == b.page && a.word == b.word; };
  // The values of the writes to `target`'s word that `last` accepts and that no other write of those hides.
  const auto visible = [&](const Op& target, auto&& may_be_seen, auto&& is_settled) {
    std::vector<Value> values;
    bool initial = true;
    order.each([&](size_t w, const Op& op, size_t, size_t) {
      if (op.type != OpType::kWrite || !same_word(op, target)) return;
      if (is_settled(w)) initial = false;
      if (!may_be_seen(w)) return;
      bool hidden = false;
      order.each([&](size_t other, const Op& later, size_t, size_t) {
        if (later.type == OpType::kWrite && same_word(later, target) && order.before(w, other) && is_settled(other))
          hidden = true;
      });
      if (!hidden) values.push_back(op.value);
    });
    if (initial) values.push_back(0);
    return values;
  };

  order.each([&](size_t a, const Op& first, size_t, size_t) {
    order.each([&](size_t b, const Op& second, size_t, size_t) {
      if (a != b && first.type == OpType::kWrite && second.type == OpType::kWrite && same_word(first, second) &&
          !order.before(a, b) && !order.before(b, a))
        throw std::invalid_argument(name + ": two writes race");
    });
  });
  for (size_t p = 0; p < processors.size(); ++p) {
    for (size_t i = 0; i < processors[p].program.size(); ++i) {
      Op& op = processors[p].program[i];
      if (op.type != OpType::kRead) continue;
      const size_t r = order.id(p, i);
      op.legal =
          visible(op, [&](size_t w) { return !order.before(r, w); }, [&](size_t w) { return order.before(w, r); });
    }
  }
  final_values.clear();
  for (unsigned page = 0; page < homes.size(); ++page) {
    for (unsigned word = 0; word < words; ++word) {
      const auto always = [](size_t) { return true; };
      final_values.push_back(visible(read(page, word), always, always).front());
    }
  }
}

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

// --- The machine ----------------------------------------------------------------------------------------------------

Machine::Machine(const Scenario& scenario)
    : scenario_(&scenario),
      pages_(scenario.nodes * scenario.homes.size()),
      frames_(scenario.nodes * scenario.homes.size()),
      mappings_(scenario.nodes * scenario.domains * scenario.homes.size()),
      queues_(scenario.nodes * scenario.domains),
      awaited_(scenario.nodes * scenario.domains),
      kept_(scenario.homes.size()),
      threads_(scenario.processors.size()) {
  if (scenario.golden) golden_.resize(scenario.homes.size() * scenario.words);
  for (const Processor& p : scenario.processors)
    for (const Op& op : p.program)
      if (op.type == OpType::kLock && op.page >= lock_held_.size()) lock_held_.resize(op.page + 1u);
  for (unsigned page = 0; page < pages(); ++page) poison_dead_frames(page);
  settle_synchronisation();
}

void Machine::enabled(std::vector<Event>& events) const {
  events.clear();
  for (size_t p = 0; p < threads_.size(); ++p) {
    const Thread& t = threads_[p];
    bool can = t.mode == Mode::kPopping;
    if (t.mode == Mode::kHolding) can = !locked(scenario_->processors[p].node, t.page);
    if (t.mode == Mode::kFaulting) can = !locked(scenario_->processors[p].node, op_of(t, p).page);
    if (t.mode == Mode::kReady && !at_end(p)) {
      const Op& op = op_of(t, p);
      can = op.type != OpType::kWait && (op.type != OpType::kLock || lock_held_[op.page] == 0);
    }
    if (can) events.push_back({.type = Event::kStep, .a = static_cast<uint8_t>(p)});
  }
  uint8_t position = 0;
  for (size_t i = 0; i < flight_.size(); ++i) {
    const bool first = i == 0 || flight_[i].from != flight_[i - 1].from || flight_[i].to != flight_[i - 1].to;
    position = first ? 0 : static_cast<uint8_t>(position + 1);
    if (locked(flight_[i].to, flight_[i].page)) continue;
    if (first || scenario_->options.mutant == Mutant::kReorderMessages)
      events.push_back({.type = Event::kDeliver, .a = flight_[i].from, .b = flight_[i].to, .c = position});
  }
  for (unsigned n = 0; n < scenario_->nodes; ++n)
    for (unsigned d = 0; d < scenario_->domains; ++d)
      for (unsigned g = 0; g < pages(); ++g)
        if (mapping_at(n, d, g).going && !locked(n, g))
          events.push_back({.type = Event::kUnmapped,
                            .a = static_cast<uint8_t>(n),
                            .b = static_cast<uint8_t>(d),
                            .c = static_cast<uint8_t>(g)});
  for (const Paused& paused : paused_) events.push_back({.type = Event::kContinue, .a = paused.node, .c = paused.page});
}

bool Machine::locked(unsigned node, unsigned page) const {
  return std::any_of(paused_.begin(), paused_.end(),
                     [&](const Paused& paused) { return paused.node == node && paused.page == page; });
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  switch (event.type) {
    case Event::kStep:
      step(event.a);
      break;
    case Event::kDeliver:
      deliver(event);
      break;
    case Event::kUnmapped: {
      Mapping& mapping = mapping_at(event.a, event.b, event.c);
      note("node {} domain {} has lost its mapping of page {}\n", event.a, event.b, event.c);
      mapping = {};
      if (strict()) report_unmapped(event.a, event.c, event.b);
      poison_dead_frames(event.c);
      check_page(event.c);
      break;
    }
    case Event::kContinue:
      resume(event);
      break;
  }
  return verdict();
}

void Machine::step(unsigned processor) {
  Thread& t = threads_[processor];
  const Op& op = op_of(t, processor);
  const unsigned page = op.page;
  switch (op.type) {
    case OpType::kRead:
    case OpType::kWrite:
      if (t.mode == Mode::kFaulting)
        fault(processor, op);
      else
        access(processor, op);
      poison_dead_frames(page);
      check_page(page);
      break;
    case OpType::kRelease:
      release_step(processor);
      break;
    case OpType::kLock:
      note("processor {} takes lock {}\n", processor, op.page);
      lock_held_[op.page] = 1;
      advance(processor);
      break;
    case OpType::kUnlock:
      note("processor {} drops lock {}\n", processor, op.page);
      lock_held_[op.page] = 0;
      advance(processor);
      break;
    case OpType::kBarrier:
      note("processor {} arrives at a barrier\n", processor);
      t.mode = Mode::kAtBarrier;
      settle_synchronisation();
      break;
    case OpType::kSignal:
    case OpType::kWait:
      wrong("the model let a processor step over a token");
      break;
  }
}

void Machine::access(unsigned processor, const Op& op) {
  const unsigned node = scenario_->processors[processor].node;
  const Rights rights = mapping_at(node, scenario_->domain_of[processor], op.page).rights;
  const bool is_write = op.type == OpType::kWrite;
  if (rights < (is_write ? kMayWrite : kMayRead)) {
    if (scenario_->options.split_faults) {
      note("processor {} (node {}) faults {} page {}\n", processor, node, is_write ? "writing" : "reading", op.page);
      threads_[processor].mode = Mode::kFaulting;
    } else {
      fault(processor, op);
    }
    return;
  }
  Value& word = frame_at(node, op.page).words[op.word];
  if (is_write) {
    note("processor {} (node {}) writes page {} word {} := {}\n", processor, node, op.page, op.word, op.value);
    word = op.value;
    if (scenario_->golden) golden_[op.page * scenario_->words + op.word] = op.value;
  } else {
    note("processor {} (node {}) reads page {} word {} = {}\n", processor, node, op.page, op.word, word);
    const bool legal = scenario_->golden ? word == golden_[op.page * scenario_->words + op.word]
                                         : std::find(op.legal.begin(), op.legal.end(), word) != op.legal.end();
    if (!legal) {
      std::string expected;
      if (scenario_->golden)
        expected = fmt::format("{}", golden_[op.page * scenario_->words + op.word]);
      else
        for (const Value value : op.legal) expected += fmt::format("{}{}", expected.empty() ? "" : " or ", value);
      wrong(fmt::format("processor {} read {} from page {} word {}; legal is {}", processor,
                        word == kPoison ? "a dead frame" : fmt::format("{}", word), op.page, op.word, expected));
    }
  }
  advance(processor);
}

void Machine::fault(unsigned processor, const Op& op) {
  const unsigned node = scenario_->processors[processor].node;
  const unsigned domain = scenario_->domain_of[processor];
  const Access kind = op.type == OpType::kWrite ? Access::kWrite : Access::kRead;
  Thread& t = threads_[processor];
  Actions actions;
  const FaultOutcome outcome =
      on_fault(page_at(node, op.page), context(node, op.page), domain_id(domain), kind, actions);
  note("processor {} (node {} domain {}): {} fault on page {}, {}\n", processor, node, domain,
       kind == Access::kWrite ? "write" : "read", op.page, outcome == FaultOutcome::kResolved ? "resolved" : "waits");
  t.mode = Mode::kReady;
  if (outcome == FaultOutcome::kWait) {
    t.mode = Mode::kAwaitWake;
    t.page = op.page;
  }
  if (outcome == FaultOutcome::kResolved) t.mode = Mode::kInTransition;
  perform(node, op.page, actions, nullptr, static_cast<uint8_t>(processor));
}

void Machine::check_access_granted(unsigned processor) {
  const Op& op = op_of(threads_[processor], processor);
  const unsigned node = scenario_->processors[processor].node;
  if (mapping_at(node, scenario_->domain_of[processor], op.page).rights <
      (op.type == OpType::kWrite ? kMayWrite : kMayRead))
    wrong("a fault was resolved, but the access is still not allowed");
}

void Machine::resume(const Event& event) {
  const auto at = std::find_if(paused_.begin(), paused_.end(),
                               [&](const Paused& paused) { return paused.node == event.a && paused.page == event.c; });
  const Paused paused = std::move(*at);
  paused_.erase(at);
  note("node {} goes on with page {}\n", paused.node, paused.page);
  perform_from(paused.node, paused.page, paused.actions.data(), paused.actions.data() + paused.actions.size(), nullptr,
               paused.processor);
  poison_dead_frames(paused.page);
  check_page(paused.page);
}

void Machine::release_step(unsigned processor) {
  const unsigned node = scenario_->processors[processor].node;
  const unsigned domain = scenario_->domain_of[processor];
  const size_t index = domain_index(node, domain);
  Thread& t = threads_[processor];
  if (t.mode == Mode::kHolding) {
    submit(processor);
    return;
  }
  if (t.mode == Mode::kReady) {
    t.mode = Mode::kPopping;
    // What joins the queue from now on holds none of this processor's writes.
    t.to_take = static_cast<uint8_t>(queues_[index].size());
    t.pages = 0;
    t.holders = 0;
  }
  if (t.to_take != 0) {
    take_from_queue(processor);
    return;
  }
  // Others of the domain may be releasing what this processor wrote: their RACKs count, and so do the pages that they
  // have taken off the queue and not sent yet.
  t.mode = Mode::kAwaitRelease;
  if (scenario_->options.mutant != Mutant::kIgnoreOtherReleases) {
    t.pages |= awaited_[index];
    for (size_t other = 0; other < threads_.size(); ++other)
      if (threads_[other].mode == Mode::kHolding && scenario_->processors[other].node == node &&
          scenario_->domain_of[other] == domain)
        t.holders |= uint64_t{1} << other;
  }
  note("processor {} (node {} domain {}) releases: has taken its pages, waits for pages {} and processors {}\n",
       processor, node, domain, list(t.pages), list(t.holders));
  finish_release_if_done(processor);
}

void Machine::take_from_queue(unsigned processor) {
  const unsigned node = scenario_->processors[processor].node;
  const unsigned domain = scenario_->domain_of[processor];
  Thread& t = threads_[processor];
  std::vector<uint8_t>& queue = queues_[domain_index(node, domain)];
  t.page = queue.front();
  queue.erase(queue.begin());
  for (size_t other = 0; other < threads_.size(); ++other)
    if (scenario_->processors[other].node == node && scenario_->domain_of[other] == domain &&
        threads_[other].to_take != 0)
      --threads_[other].to_take;
  t.mode = Mode::kHolding;
  note("processor {} (node {} domain {}) releases: takes page {} off its queue\n", processor, node, domain, t.page);
  if (!scenario_->options.split_releases) submit(processor);
}

void Machine::submit(unsigned processor) {
  const unsigned node = scenario_->processors[processor].node;
  const unsigned domain = scenario_->domain_of[processor];
  Thread& t = threads_[processor];
  const unsigned page = t.page;
  const uint64_t self = uint64_t{1} << processor;
  const auto bit = static_cast<uint16_t>(1u << page);
  Actions actions;
  const bool must_wait = on_release(page_at(node, page), context(node, page), domain_id(domain), actions);
  note("processor {} (node {} domain {}) releases page {}: {}\n", processor, node, domain, page,
       must_wait ? "to be waited for" : "nothing to do");
  t.mode = Mode::kPopping;
  if (must_wait) {
    t.pages |= bit;
    awaited_[domain_index(node, domain)] |= bit;
  }
  for (size_t other = 0; other < threads_.size(); ++other) {
    Thread& waiter = threads_[other];
    if (waiter.mode != Mode::kAwaitRelease || (waiter.holders & self) == 0) continue;
    waiter.holders &= ~self;
    if (must_wait) waiter.pages |= bit;
  }
  perform(node, page, actions, nullptr);
  for (size_t other = 0; other < threads_.size(); ++other) finish_release_if_done(static_cast<unsigned>(other));
  poison_dead_frames(page);
  check_page(page);
}

void Machine::finish_release_if_done(unsigned processor) {
  const Thread& t = threads_[processor];
  if (t.mode == Mode::kAwaitRelease && t.pages == 0 && t.holders == 0) {
    note("  processor {}'s release is complete\n", processor);
    advance(processor);
  }
}

void Machine::advance(unsigned processor) {
  Thread& t = threads_[processor];
  t = {.pc = static_cast<uint16_t>(t.pc + 1)};
  settle_synchronisation();
}

// Passing and taking tokens, and leaving a barrier, change nothing that others could see but what they enable: they
// happen as early as possible, which loses no order of the other events.
void Machine::settle_synchronisation() {
  bool changed = true;
  while (changed) {
    changed = false;
    size_t at_barrier = 0;
    for (size_t p = 0; p < threads_.size(); ++p) {
      Thread& t = threads_[p];
      at_barrier += t.mode == Mode::kAtBarrier ? 1 : 0;
      if (t.mode != Mode::kReady || at_end(p)) continue;
      const Op& op = op_of(t, p);
      if (op.type == OpType::kSignal)
        tokens_ |= op.tokens;
      else if (op.type != OpType::kWait || (tokens_ & op.tokens) != op.tokens)
        continue;
      ++t.pc;
      changed = true;
    }
    if (at_barrier == threads_.size() && at_barrier != 0) {
      for (Thread& t : threads_) t = {.pc = static_cast<uint16_t>(t.pc + 1)};
      changed = true;
    }
  }
}

// --- Messages and actions -------------------------------------------------------------------------------------------

void Machine::deliver(const Event& event) {
  size_t at = 0;
  while (flight_[at].from != event.a || flight_[at].to != event.b) ++at;
  at += event.c;
  Envelope message = flight_[at];
  flight_.erase(flight_.begin() + static_cast<std::ptrdiff_t>(at));
  if (message.by_reference) message.words = frame_at(message.from, message.page).words;

  const unsigned node = message.to;
  const unsigned page = message.page;
  note("node {} handles {} of page {} from node {}\n", node, mgs::name(message.kind), page, message.from);
  Actions actions;
  if (!on_message(page_at(node, page), context(node, page), NodeId(message.from), message.kind, actions)) {
    wrong(fmt::format("node {} says that node {} cannot have sent {} of page {} now", node, message.from,
                      mgs::name(message.kind), page));
    return;
  }
  perform(node, page, actions, &message);
  poison_dead_frames(page);
  check_page(page);
}

std::string Machine::apply_delivery(const Envelope& message, std::string* log) {
  const auto first = std::find_if(flight_.begin(), flight_.end(),
                                  [&](const Envelope& m) { return m.from == message.from && m.to == message.to; });
  if (first == flight_.end() || !(*first == message)) return "the fabric delivered what was not sent, or not in order";
  return apply({.type = Event::kDeliver, .a = message.from, .b = message.to}, log);
}

bool Machine::nobody_may_write(unsigned node, unsigned page) const {
  for (unsigned d = 0; d < scenario_->domains; ++d)
    if (mapping_at(node, d, page).rights == kMayWrite) return false;
  return true;
}

void Machine::perform(unsigned node, unsigned page, const Actions& actions, const Envelope* message,
                      uint8_t processor) {
  if (scenario_->options.mutant == Mutant::kMapBeforeQueue) {
    std::vector<Action> swapped(actions.begin(), actions.end());
    for (size_t i = 1; i < swapped.size(); ++i)
      if (swapped[i - 1].verb == Verb::kQueue && swapped[i].verb == Verb::kMapWrite)
        std::swap(swapped[i - 1], swapped[i]);
    perform_from(node, page, swapped.data(), swapped.data() + swapped.size(), message, processor);
    return;
  }
  perform_from(node, page, actions.begin(), actions.end(), message, processor);
}

// Carries out the actions up to `end`; then the processor whose fault this is tries its access again.
void Machine::perform_from(unsigned node, unsigned page, const Action* next, const Action* end, const Envelope* message,
                           uint8_t processor) {
  Frame& frame = frame_at(node, page);
  const bool is_home = scenario_->homes[page] == node;
  const auto needs = [&](MessageKind a, MessageKind b) {
    if (message == nullptr || (message->kind != a && message->kind != b)) wrong("data were used that nobody sent");
    return message != nullptr;
  };
  std::vector<unsigned> gone;
  while (next != end) {
    const Action& action = *next++;
    switch (action.verb) {
      case Verb::kSend:
      case Verb::kSendPage:
      case Verb::kSendDiff:
        send(node, page, action);
        break;
      case Verb::kTakePage:
        note("  node {} fills its copy of page {}\n", node, page);
        for (unsigned d = 0; strict() && d < scenario_->domains; ++d)
          if (mapping_at(node, d, page).rights != kNoAccess) wrong("a frame that is mapped was filled");
        if (is_home) wrong("the home copy was treated as a local copy");
        if (needs(MessageKind::kRdat, MessageKind::kWdat)) frame.words = message->words;
        break;
      case Verb::kTakeHomeCopy:
        note("  node {} takes page {} as the home copy\n", node, page);
        // Processors of the home may still be reading: what they can see only becomes newer.
        if (strict() && !nobody_may_write(node, page)) wrong("the home copy was replaced while somebody may write it");
        if (!is_home) wrong("a home copy was taken elsewhere");
        if (needs(MessageKind::k1wdata, MessageKind::k1wdata)) frame.words = message->words;
        break;
      case Verb::kMergeDiff:
      case Verb::kKeepDiff:
        if (!is_home) wrong("a diff was merged elsewhere than at home");
        if (!needs(MessageKind::kDiff, MessageKind::kDiff)) break;
        if (action.verb == Verb::kMergeDiff || scenario_->options.mutant == Mutant::kMergeDiffAtOnce) {
          note("  node {} merges the diff of words {} into page {}\n", node, list(message->mask), page);
          apply_diff(node, page, {message->mask, message->words});
        } else {
          note("  node {} keeps the diff of words {} of page {}\n", node, list(message->mask), page);
          kept_[page].push_back({message->mask, message->words});
        }
        break;
      case Verb::kMergeKept:
        note("  node {} merges the kept diffs of page {}\n", node, page);
        for (const Diff& diff : kept_[page]) apply_diff(node, page, diff);
        kept_[page].clear();
        break;
      case Verb::kMakeTwin:
        note("  node {} makes a twin of page {}\n", node, page);
        if (strict() && !nobody_may_write(node, page)) wrong("a twin was made of a page that somebody may be writing");
        if (frame.has_twin) wrong("a twin was made of a page that has one");
        frame.has_twin = true;
        frame.twin = frame.words;
        break;
      case Verb::kDropTwin:
        if (!frame.has_twin) wrong("a twin was dropped that is not there");
        frame.has_twin = false;
        frame.twin = {};
        break;
      case Verb::kMapRead:
      case Verb::kMapWrite: {
        Mapping& mapping = mapping_at(node, action.domain.value, page);
        const Rights rights = action.verb == Verb::kMapWrite ? kMayWrite : kMayRead;
        note("  node {} domain {} may {} page {}\n", node, action.domain.value, rights == kMayWrite ? "write" : "read",
             page);
        if (strict() && mapping.going) wrong("a page was mapped while its mapping is being removed");
        // kMapRead never takes write access away: a read fault may come late, after a write fault of the same domain.
        mapping.rights = std::max(mapping.rights, rights);
        if (!scenario_->options.split_actions || next == end) break;
        if (!gone.empty()) wrong("a transition both removes mappings and makes them");
        paused_.push_back({.node = static_cast<uint8_t>(node),
                           .page = static_cast<uint8_t>(page),
                           .processor = processor,
                           .actions = {next, end}});
        return;
      }
      case Verb::kUnmap:
        unmap(node, page, action.domain.value, gone);
        break;
      case Verb::kQueue:
        note("  page {} joins the queue of node {} domain {}\n", page, node, action.domain.value);
        queues_[domain_index(node, action.domain.value)].push_back(static_cast<uint8_t>(page));
        break;
      case Verb::kWake:
        if (scenario_->options.mutant == Mutant::kLoseWake) break;
        for (size_t p = 0; p < threads_.size(); ++p) {
          if (scenario_->processors[p].node != node || threads_[p].mode != Mode::kAwaitWake || threads_[p].page != page)
            continue;
          note("  processor {} wakes\n", p);
          threads_[p].mode = Mode::kReady;
          threads_[p].page = 0;
        }
        break;
      case Verb::kReleased: {
        note("  page {} is released for domains {} of node {}\n", page, list(action.domains.bits()), node);
        const auto bit = static_cast<uint16_t>(1u << page);
        action.domains.for_each([&](DomainId d) {
          uint16_t& awaited = awaited_[domain_index(node, d.value)];
          if ((awaited & bit) == 0) wrong("a release was reported that nobody waits for");
          awaited = static_cast<uint16_t>(awaited & ~bit);
        });
        for (size_t p = 0; p < threads_.size(); ++p) {
          if (scenario_->processors[p].node != node || !action.domains.contains(domain_id(scenario_->domain_of[p])))
            continue;
          threads_[p].pages = static_cast<uint16_t>(threads_[p].pages & ~bit);
        }
        for (size_t p = 0; p < threads_.size(); ++p) finish_release_if_done(static_cast<unsigned>(p));
        break;
      }
    }
  }
  for (const unsigned domain : gone) report_unmapped(node, page, domain);
  if (processor != Paused::kNobody && threads_[processor].mode == Mode::kInTransition) {
    threads_[processor].mode = Mode::kReady;
    check_access_granted(processor);
  }
}

void Machine::send(unsigned node, unsigned page, const Action& action) {
  Envelope message{.from = static_cast<uint8_t>(node), .page = static_cast<uint8_t>(page), .kind = action.kind};
  Frame& frame = frame_at(node, page);
  if (action.verb == Verb::kSendPage) {
    message.by_reference = scenario_->options.data_by_reference;
    if (!message.by_reference) message.words = frame.words;
    if (strict() && action.kind == MessageKind::k1wdata && !nobody_may_write(node, page))
      wrong("a page was sent home that somebody may be writing");
  } else if (action.verb == Verb::kSendDiff) {
    if (strict() && !nobody_may_write(node, page)) wrong("a diff was made of a page that somebody may be writing");
    if (!frame.has_twin) wrong("a diff was made without a twin");
    for (unsigned w = 0; w < scenario_->words; ++w) {
      if (frame.words[w] == frame.twin[w] && scenario_->options.mutant != Mutant::kNoTwin) continue;
      message.mask = static_cast<uint8_t>(message.mask | 1u << w);
      message.words[w] = frame.words[w];
    }
    if (scenario_->options.mutant == Mutant::kForgetQueueEntry) {
      page_at(node, page).client.queued.clear();
      for (unsigned d = 0; d < scenario_->domains; ++d) std::erase(queues_[domain_index(node, d)], page);
      for (size_t p = 0; p < threads_.size(); ++p) {
        const size_t length = queues_[domain_index(scenario_->processors[p].node, scenario_->domain_of[p])].size();
        threads_[p].to_take = static_cast<uint8_t>(std::min<size_t>(threads_[p].to_take, length));
      }
    }
  }
  action.nodes.for_each([&](NodeId to) {
    if (to.value == node || to.value >= scenario_->nodes) {
      wrong("a message was sent to its sender or to no node");
      return;
    }
    message.to = static_cast<uint8_t>(to.value);
    note("  {} of page {} from node {} to node {}\n", mgs::name(action.kind), page, node, to.value);
    const auto after = std::upper_bound(flight_.begin(), flight_.end(), message, [](const auto& x, const auto& y) {
      return std::pair(x.from, x.to) < std::pair(y.from, y.to);
    });
    flight_.insert(after, message);
    if (transport_ != nullptr) transport_->send(message);
  });
}

void Machine::unmap(unsigned node, unsigned page, unsigned domain, std::vector<unsigned>& report) {
  Mapping& mapping = mapping_at(node, domain, page);
  note("  node {} domain {} loses page {}\n", node, domain, page);
  if (scenario_->options.mutant == Mutant::kDiffBeforeUnmap) {
    mapping.going = true;
    report.push_back(domain);
    return;
  }
  if (mapping.going || mapping.rights == kNoAccess) wrong("a mapping was removed that is not there");
  if (scenario_->options.asynchronous_unmap) {
    mapping.going = true;
  } else {
    mapping = {};
    report.push_back(domain);
  }
}

void Machine::report_unmapped(unsigned node, unsigned page, unsigned domain) {
  Actions actions;
  on_unmapped(page_at(node, page), context(node, page), domain_id(domain), actions);
  perform(node, page, actions, nullptr);
}

void Machine::apply_diff(unsigned home, unsigned page, const Diff& diff) {
  for (unsigned w = 0; w < scenario_->words; ++w)
    if ((diff.mask >> w & 1) != 0) frame_at(home, page).words[w] = diff.words[w];
}

void Machine::poison_dead_frames(unsigned page) {
  if (!strict()) return;  // where processors write dead frames, it is the loss of what they wrote that must be noticed
  Words poison;
  poison.fill(kPoison);
  for (unsigned n = 0; n < scenario_->nodes; ++n) {
    const Page& p = page_at(n, page);
    bool dead = false;
    if (scenario_->homes[page] == n) {
      dead = p.server.state == ServerState::kSwrite && !p.server.write_dir.contains(NodeId(static_cast<uint16_t>(n)));
    } else {
      dead = p.client.state == PageState::kInv;
      for (const Envelope& m : flight_)
        if (m.from == n && m.page == page && m.by_reference) dead = false;
    }
    if (dead) frame_at(n, page).words = poison;
  }
}

// --- Checks ---------------------------------------------------------------------------------------------------------

void Machine::check_page(unsigned page) {
  for (unsigned n = 0; n < scenario_->nodes; ++n)
    if (locked(n, page)) return;
  const unsigned home = scenario_->homes[page];
  // Kinds under way from the home to each node and back, one bit each: no kind is ever twice in a channel.
  std::array<std::array<uint16_t, 2>, NodeSet::kCapacity> mail{};
  static_assert(static_cast<unsigned>(MessageKind::kKindCount) <= 16);
  for (const Envelope& m : flight_) {
    if (m.page != page) continue;
    const bool to_home = m.to == home;
    if (!to_home && m.from != home) wrong("a message goes past the home");
    uint16_t& kinds = mail[to_home ? m.from : m.to][to_home ? 1 : 0];
    const auto bit = static_cast<uint16_t>(1u << static_cast<unsigned>(m.kind));
    if ((kinds & bit) != 0) wrong(fmt::format("{} of page {} is twice in a channel", mgs::name(m.kind), page));
    kinds = static_cast<uint16_t>(kinds | bit);
  }
  const Server& s = page_at(home, page).server;
  const NodeSet directory = s.read_dir | s.write_dir;
  const bool in_round = s.state == ServerState::kRelInProgress;
  const auto expect = [&](bool condition, unsigned node, const char* what) {
    if (!condition) wrong(fmt::format("page {} at node {}: {}", page, node, what));
  };

  expect(directory.size() == s.read_dir.size() + s.write_dir.size(), home, "a node is in both directories");
  expect(in_round != s.answers.empty(), home, "a round is in progress, and nothing is awaited, or the other way round");
  expect(in_round || (s.rd | s.wr | s.rl).empty(), home, "requests wait for a round that is not in progress");
  expect(!s.awaiting_page || in_round, home, "a whole page is awaited outside a round");
  expect(s.diffs_waiting == !kept_[page].empty() || scenario_->options.mutant == Mutant::kMergeDiffAtOnce, home,
         "diffs are kept and the server does not know, or the other way round");
  expect(s.state != ServerState::kRead || s.write_dir.empty(), home, "server READ with a write copy");
  expect(s.state != ServerState::kWrite || !s.write_dir.empty(), home, "server WRITE without a write copy");
  if (s.state == ServerState::kSwrite) {
    const bool one = directory.size() == 1 && s.write_dir.size() == 1;
    expect(one, home, "server SWRITE with other than one copy");
    if (one) expect(page_at(s.write_dir.first().value, page).client.single_writer, home, "the writer is not told");
  }

  for (unsigned n = 0; n < scenario_->nodes; ++n) {
    const Client& c = page_at(n, page).client;
    const NodeId id(static_cast<uint16_t>(n));
    const bool has_copy = c.state != PageState::kInv;
    const bool invalidating = c.phase >= Phase::kReadInvInProgress;
    const bool answered = in_round && !s.answers.contains(id);
    const auto under_way = [&](size_t direction, std::initializer_list<MessageKind> kinds) {
      return std::any_of(kinds.begin(), kinds.end(), [&](MessageKind kind) {
        return (mail[n][direction] >> static_cast<unsigned>(kind) & 1) != 0;
      });
    };
    const auto coming = [&](std::initializer_list<MessageKind> kinds) { return under_way(0, kinds); };
    const auto going = [&](std::initializer_list<MessageKind> kinds) { return under_way(1, kinds); };
    const bool answering = going({MessageKind::kAck, MessageKind::kDiff, MessageKind::k1wdata});

    expect(!has_copy || directory.contains(id), n, "a copy that the directory does not list");
    expect(has_copy || !directory.contains(id) || answered || answering ||
               coming({MessageKind::kRdat, MessageKind::kWdat}),
           n, "the directory lists a copy that is not there");
    expect(c.state != PageState::kWrite || s.write_dir.contains(id) || going({MessageKind::kWnotify}) ||
               (in_round && s.answers.contains(id)),
           n, "a write copy that the directory takes for a read copy");
    expect(c.state != PageState::kRead || !s.write_dir.contains(id), n,
           "a read copy that the directory takes for a write copy");

    if (c.single_writer) {
      expect(c.state == PageState::kWrite, n, "a single writer without a write copy");
      expect(s.state == ServerState::kSwrite || in_round, n, "a single writer and the server does not know");
      expect(directory == set_of(n), n, "a single writer while others have copies");
      for (unsigned other = 0; other < scenario_->nodes; ++other)
        expect(other == n || page_at(other, page).client.state == PageState::kInv, other,
               "a copy beside a single writer");
      // The home can be its own single writer without a grant, and then what a round took before may still be queued.
      expect(c.queued.empty() || n == home, n, "a single writer's page is queued");
    }
    expect(frame_at(n, page).has_twin == (c.state == PageState::kWrite && !c.single_writer && n != home), n,
           "a twin is missing or needless");

    expect(!invalidating || has_copy, n, "an invalidation of a page that is not there");
    const int reads =
        (going({MessageKind::kRreq}) ? 1 : 0) + (s.rd.contains(id) ? 1 : 0) + (coming({MessageKind::kRdat}) ? 1 : 0);
    const int writes =
        (going({MessageKind::kWreq}) ? 1 : 0) + (s.wr.contains(id) ? 1 : 0) + (coming({MessageKind::kWdat}) ? 1 : 0);
    const int releases =
        (going({MessageKind::kRel}) ? 1 : 0) + (s.rl.contains(id) ? 1 : 0) + (coming({MessageKind::kRack}) ? 1 : 0);
    expect(reads == (c.phase == Phase::kBusyRead ? 1 : 0), n, "a read request that nobody answers, or two");
    expect(writes == (c.phase == Phase::kBusyWrite ? 1 : 0), n, "a write request that nobody answers, or two");
    expect(releases == (c.release_pending ? 1 : 0), n, "a release that nobody answers, or two");
    expect(c.release_pending != c.releasing.empty(), n, "a release for nobody, or none for somebody");
    const int answers = (coming({MessageKind::kInv, MessageKind::k1winv, MessageKind::k1wgr}) ? 1 : 0) +
                        (invalidating ? 1 : 0) + (answering ? 1 : 0) + (going({MessageKind::kAck1w}) ? 1 : 0);
    expect(answers == (s.answers.contains(id) ? 1 : 0), n, "an answer that will not come, or that nobody awaits");

    for (unsigned d = 0; d < scenario_->domains; ++d) {
      const Mapping& m = mapping_at(n, d, page);
      const std::vector<uint8_t>& queue = queues_[domain_index(n, d)];
      const uint16_t awaited = awaited_[domain_index(n, d)];
      expect((awaited >> page & 1) == (c.releasing.contains(domain_id(d)) ? 1 : 0), n,
             "the client and the processors disagree on what is being released");
      bool held = std::find(queue.begin(), queue.end(), page) != queue.end();
      for (size_t p = 0; p < threads_.size(); ++p)
        held |= threads_[p].mode == Mode::kHolding && threads_[p].page == page && scenario_->processors[p].node == n &&
                scenario_->domain_of[p] == d;
      expect(!c.queued.contains(domain_id(d)) || held, n, "a queued page that no queue holds");
      if (!strict()) continue;
      expect(c.mapped.contains(domain_id(d)) == (m.rights != kNoAccess), n, "tlb_dir and the mappings differ");
      expect(m.rights == kNoAccess || has_copy, n, "a mapping of a page that is not there");
      expect(m.rights != kMayWrite || c.state == PageState::kWrite, n, "a write mapping of a read copy");
      expect(!m.going || invalidating, n, "a mapping is being removed without an invalidation");
      // Otherwise the domain's next release would not know of its writes.
      expect(m.rights != kMayWrite || c.single_writer || c.queued.contains(domain_id(d)) || c.release_pending, n,
             "a write mapping of a page that is not queued");
    }
  }
}

bool Machine::finished() const {
  for (size_t p = 0; p < threads_.size(); ++p)
    if (!at_end(p)) return false;
  return true;
}

std::string Machine::check_end() const {
  if (!finished()) {
    std::string stuck;
    for (size_t p = 0; p < threads_.size(); ++p)
      if (!at_end(p)) stuck += fmt::format(" {} (operation {})", p, threads_[p].pc);
    return "deadlock: nothing can happen, and these processors have not ended:" + stuck;
  }
  if (!flight_.empty()) return "a message was never delivered";
  if (!paused_.empty()) return "a transition was never completed";
  for (const auto& queue : queues_)
    if (!queue.empty()) return "a delayed update queue is not empty after the last release";
  for (unsigned g = 0; g < pages(); ++g) {
    const unsigned home = scenario_->homes[g];
    const Server& s = page_at(home, g).server;
    if (s.state == ServerState::kRelInProgress) return fmt::format("page {}: a round never ended", g);
    if (!kept_[g].empty()) return fmt::format("page {}: a diff was kept and never merged", g);
    const unsigned owner = s.state == ServerState::kSwrite ? s.write_dir.first().value : home;
    for (unsigned n = 0; n < scenario_->nodes; ++n) {
      const Client& c = page_at(n, g).client;
      if (c.phase != Phase::kIdle || c.release_pending) return fmt::format("page {} at node {} is not at rest", g, n);
      if (n != owner && c.state == PageState::kInv) continue;
      for (unsigned w = 0; w < scenario_->words; ++w) {
        const size_t index = g * scenario_->words + w;
        const Value expected = scenario_->golden ? golden_[index] : scenario_->final_values[index];
        const Value found = frame_at(n, g).words[w];
        if (found != expected)
          return fmt::format("page {} word {} at node {} is {} in the end; it was last written {}", g, w, n,
                             found == kPoison ? "dead" : fmt::format("{}", found), expected);
      }
    }
  }
  return {};
}

// --- Representation -------------------------------------------------------------------------------------------------

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto byte = [&out](auto value) { out.push_back(static_cast<uint8_t>(value)); };
  const auto values = [&](const Words& words) {
    for (unsigned w = 0; w < scenario_->words; ++w) {
      byte(words[w] & 0xff);
      byte(words[w] >> 8);
    }
  };
  for (unsigned n = 0; n < scenario_->nodes; ++n) {
    for (unsigned g = 0; g < pages(); ++g) {
      const Client& c = page_at(n, g).client;
      const Frame& f = frame_at(n, g);
      byte(static_cast<unsigned>(c.state) | static_cast<unsigned>(c.phase) << 2 | (c.single_writer ? 1u : 0u) << 5 |
           (c.release_pending ? 1u : 0u) << 6 | (f.has_twin ? 1u : 0u) << 7);
      byte(c.requester.value);
      byte(c.mapped.bits());
      byte(c.queued.bits());
      byte(c.releasing.bits());
      values(f.words);
      if (f.has_twin) values(f.twin);
      if (scenario_->homes[g] != n) continue;
      const Server& s = page_at(n, g).server;
      byte(static_cast<unsigned>(s.state) | (s.awaiting_page ? 1u : 0u) << 2 | (s.diffs_waiting ? 1u : 0u) << 3);
      for (const NodeSet& set : {s.read_dir, s.write_dir, s.answers, s.rd, s.wr, s.rl}) byte(set.bits());
      byte(kept_[g].size());
      for (const Diff& diff : kept_[g]) {
        byte(diff.mask);
        values(diff.words);
      }
    }
  }
  for (const Mapping& m : mappings_) byte(static_cast<unsigned>(m.rights) | (m.going ? 1u : 0u) << 2);
  for (size_t i = 0; i < queues_.size(); ++i) {
    byte(queues_[i].size());
    for (const uint8_t page : queues_[i]) byte(page);
    byte(awaited_[i]);
    byte(awaited_[i] >> 8);
  }
  byte(flight_.size());
  for (const Envelope& m : flight_) {
    byte(m.from << 4 | m.to);
    byte(m.page);
    byte(m.kind);
    if (m.kind == MessageKind::kDiff) byte(m.mask);
    if (!m.by_reference && (m.kind == MessageKind::kDiff || m.kind == MessageKind::kRdat ||
                            m.kind == MessageKind::kWdat || m.kind == MessageKind::k1wdata))
      values(m.words);
  }
  byte(paused_.size());
  for (const Paused& paused : paused_) {
    byte(paused.node);
    byte(paused.page);
    byte(paused.processor);
    byte(paused.actions.size());
    for (const Action& action : paused.actions) {
      byte(action.verb);
      byte(action.kind);
      byte(action.domain.value);
      byte(action.nodes.bits());
      byte(action.domains.bits());
    }
  }
  for (const Thread& t : threads_) {
    byte(t.pc);
    byte(t.mode);
    byte(t.page);
    byte(t.to_take);
    byte(t.pages);
    byte(t.holders);
  }
  for (const uint8_t held : lock_held_) byte(held);
}

std::string Machine::in_words(const Event& event) {
  static constexpr std::array<const char*, 4> kNames = {"step of processor", "delivery", "mapping gone",
                                                        "continuation"};
  return fmt::format("{} {} {} {}", kNames[event.type], event.a, event.b, event.c);
}

std::string Machine::describe() const {
  std::string out;
  const auto values = [&](const Words& words) {
    std::string text;
    for (unsigned w = 0; w < scenario_->words; ++w)
      text += words[w] == kPoison ? " dead" : fmt::format(" {}", words[w]);
    return text;
  };
  for (unsigned g = 0; g < pages(); ++g) {
    const Server& s = page_at(scenario_->homes[g], g).server;
    out += fmt::format("page {}, home node {}: server {}, read_dir {}, write_dir {}, answers {}, rd {}, wr {}, rl {}\n",
                       g, scenario_->homes[g], word_for(s.state), list(s.read_dir.bits()), list(s.write_dir.bits()),
                       list(s.answers.bits()), list(s.rd.bits()), list(s.wr.bits()), list(s.rl.bits()));
    for (unsigned n = 0; n < scenario_->nodes; ++n) {
      const Client& c = page_at(n, g).client;
      const Frame& f = frame_at(n, g);
      out += fmt::format("  node {}: {}{}{}{}, mapped {}, queued {}, frame{}{}\n", n, word_for(c.state),
                         word_for(c.phase), c.single_writer ? " single writer" : "",
                         c.release_pending ? " REL is out" : "", list(c.mapped.bits()), list(c.queued.bits()),
                         values(f.words), f.has_twin ? ", twin" + values(f.twin) : std::string());
    }
  }
  for (const Envelope& m : flight_)
    out += fmt::format("in flight: {} of page {} from node {} to node {}\n", mgs::name(m.kind), m.page, m.from, m.to);
  for (size_t p = 0; p < threads_.size(); ++p) {
    static constexpr std::array<const char*, 8> kModes = {
        "ready",     "faulting", "in a transition",    "awaits a wake",
        "releasing", "holding",  "awaits its release", "at a barrier"};
    out += fmt::format("processor {} on node {}: {}, {}\n", p, scenario_->processors[p].node,
                       at_end(p) ? std::string("ended") : fmt::format("operation {}", threads_[p].pc),
                       kModes[static_cast<size_t>(threads_[p].mode)]);
  }
  return out;
}

}  // namespace multigrain::mgs::model
