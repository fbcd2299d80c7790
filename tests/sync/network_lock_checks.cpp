// This checks what must hold in every state of the world of network_lock_world.h and at its ends, says which states are
// the same, and has the machines.
#include "../coherence/driver_explorer.h"
#include "network_lock_insides.h"

namespace multigrain::network_lock_explored {

using exploring::mix;
using At = ThreadState::At;

std::string World::check() const {
  const Impl& world = *impl_;
  if (world.has_stopped) return "the locks end the run: an invariant of their own does not hold";
  if (!world.wrong.empty()) return world.wrong;
  // A processor of the node has found that the lock was here and is gone, and has yet to make the slot ready for
  // asking.
  const auto asks_anew = [&](unsigned node) {
    return std::ranges::any_of(world.threads, [&](const auto& thread) {
      return thread->node == node && thread->at == At::kWord && thread->operation.word == WordOperation::Word::kSlot &&
             thread->operation.node == node && thread->operation.kind == WordOperation::Kind::kSwap &&
             thread->operation.value == kHeld;
    });
  };
  unsigned tokens = 0;
  for (unsigned n = 0; world.is_known(n); ++n) {
    const uint64_t slot = world.now.nodes[n].slot;
    if ((slot & kHere) != 0 && (LockState::next_of(slot) == 0 || ((slot & kHeld) != 0 && !asks_anew(n)))) ++tokens;
  }
  if (tokens > 1) return "N1: the lock is at two nodes";
  const auto is_here_and_held = [&](unsigned node) {
    return (world.now.nodes[node].slot & (kHere | kHeld)) == (kHere | kHeld);
  };
  if (world.now.inside != 0 && !is_here_and_held(world.threads[world.now.inside - 1u]->node))
    return "a processor is inside, and its node does not have the lock";
  // While the lock is at a node and not held, what was written under it has been released at the node from which it
  // came.
  for (unsigned n = 0; world.is_known(n); ++n) {
    const uint64_t slot = world.now.nodes[n].slot;
    if ((slot & (kHere | kHeld)) != kHere || LockState::next_of(slot) != 0) continue;
    const unsigned from = LockState::from_of(slot) != 0 ? LockState::from_of(slot) - 1 : n;
    if (!world.is_known(from)) return "a lock came from a node that does not exist";
    if (!world.now.nodes[from].has_published) return "N3: a lock is free, and not released";
  }
  return {};
}

std::string World::check_end() const {
  const Impl& world = *impl_;
  if (world.now.queued != 0) return fmt::format("the lock never came to node {}", world.now.queue[0]);
  unsigned tokens = 0;
  for (unsigned n = 0; world.is_known(n); ++n) {
    const LockState::Record& record = world.state(n).record();
    const uint64_t slot = world.now.nodes[n].slot;
    if (record.handed_on) return "a lock is handed on to nobody";
    if (world.has_tickets() ? record.tickets.load() != record.serving.load()
                            : record.tickets.load() != 0 || record.serving.load() != 0)
      return fmt::format("a processor never left the record of node {}", n);
    if ((slot & NetworkLocks::kSleeps) != 0) return "a processor is said to sleep";
    if ((slot & (kHeld | kDeferred)) == kHeld) return "the lock is held";
    if (world.state(n).is_letting_go()) return "a thread never ended to let go of deferred locks";
    if ((slot & kHere) != 0 && LockState::next_of(slot) == 0) ++tokens;
  }
  if (tokens != (world.now.tail != 0 ? 1u : 0u)) return fmt::format("the lock is at {} nodes", tokens);
  return {};
}

void World::serialise(std::vector<uint8_t>& out) const {
  const Impl& world = *impl_;
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  for (unsigned n = 0; world.is_known(n); ++n) {
    const LockState state = world.state(n);
    const LockState::Record& record = state.record();
    const NodeState& node = world.now.nodes[n];
    const uint32_t serving = record.serving.load();
    // Tickets count on for ever, but only their differences matter.
    const uint32_t first = world.has_tickets() ? serving : 0;
    add(node.slot | uint64_t{node.wakes} << 32 | uint64_t{node.has_seen} << 40 | uint64_t{node.has_published} << 41 |
        uint64_t{node.entered} << 48);
    add((record.tickets.load() - first) | uint64_t{serving - first} << 8 | state.guarded() << 16);
    add(uint64_t{node.wanted} | uint64_t{node.asks} << 8 | uint64_t{node.is_service_woken} << 16 |
        uint64_t{state.is_letting_go()} << 17 | uint64_t{state.listed()} << 32);
  }
  add(world.now.tail | uint64_t{world.now.inside} << 8 | uint64_t{world.now.queued} << 16 |
      uint64_t{world.now.queue[0]} << 24 | uint64_t{world.now.queue[1]} << 32 | uint64_t{world.now.queue[2]} << 40 |
      uint64_t{world.now.busy} << 48 | uint64_t{world.now.may_fail} << 56);
  for (const auto& thread : world.threads) {
    const LockState state = world.state(thread->node);
    const bool is_announced = thread->has_count && state.record().event.changed_since(thread->count);
    const uint64_t address = thread->address != nullptr ? static_cast<uint64_t>(state.offset(thread->address)) : 0;
    add(thread->scope_mark);
    add(static_cast<uint64_t>(thread->at) | uint64_t{thread->is_in_section} << 8 |
        uint64_t{thread->has_unsettled} << 9 | uint64_t{thread->has_count} << 10 | uint64_t{is_announced} << 11 |
        uint64_t{thread->pc} << 16 | uint64_t{thread->wait_mark} << 24 | uint64_t{thread->found_size} << 32 |
        uint64_t{thread->scopes} << 40 | address << 48);
    uint64_t found = 0;
    if (thread->at == At::kWord || thread->at == At::kAcquire) {
      const WordOperation& o = thread->operation;
      found = mix(static_cast<uint64_t>(o.kind) | static_cast<uint64_t>(o.word) << 8 | uint64_t{o.node} << 16);
      found = mix(mix(found + o.value) + o.expected);
    }
    const uint32_t serving = state.record().serving.load();
    for (size_t i = 0; i < thread->found_size; ++i) {
      const Found& each = thread->found[i];
      // A ticket is compared with later ones only, so all tickets that are past are alike.
      const int32_t past = each.is_ticket ? std::max<int32_t>(static_cast<int32_t>(each.ticket - serving), -2) : 0;
      found = mix(found ^ each.what) + static_cast<uint32_t>(past) + 0x9e3779b97f4a7c15u;
    }
    add(found);
  }
}

std::vector<Scenario> scenarios() {
  constexpr Op lock = Op::kLock;
  constexpr Op attempt = Op::kTry;
  constexpr Op attempt_until = Op::kTryUntil;
  std::vector<Scenario> all;
  const auto add = [&](const char* name, std::vector<unsigned> processors, std::vector<std::vector<Op>> programs,
                       uint16_t handoff_bound = 1) {
    for (const IntraNodeLock kind : {IntraNodeLock::kTicket, IntraNodeLock::kTestAndSet}) {
      // If no node has two processors, it does not matter how they would queue.
      if (kind == IntraNodeLock::kTestAndSet && processors[0] != processors[1]) continue;
      Scenario scenario;
      scenario.name = fmt::format("{}, {}", name, kind == IntraNodeLock::kTicket ? "tickets" : "test and set");
      scenario.intra_node = kind;
      scenario.handoff_bound = handoff_bound;
      scenario.processors = processors;
      scenario.programs = programs;
      all.push_back(std::move(scenario));
    }
  };
  add("no hand-on while another node waits", {0, 0, 1}, {{lock, lock, lock}, {lock, lock}, {lock}}, 0);
  add("a chain of three nodes", {0, 1, 2}, {{lock, lock}, {lock, lock}, {lock}});
  add("tries of three nodes", {0, 1, 2}, {{attempt, attempt}, {attempt, attempt}, {attempt, attempt}});
  add("three nodes, two processors on one", {0, 0, 1, 2}, {{lock}, {lock}, {lock}, {lock}});
  add("three nodes, two processors on one, which lock again", {0, 0, 1, 2}, {{lock, lock}, {lock}, {lock}, {lock}});
  add("three processors of a node hand on while another node waits", {0, 0, 0, 1},
      {{lock, lock}, {lock}, {lock}, {lock}}, 1);
  add("tries and locks of three nodes", {0, 1, 2}, {{attempt, lock}, {lock, attempt}, {lock, lock}});
  add("a try of a node where another processor locks", {0, 0, 1, 2}, {{attempt}, {lock, lock}, {lock}, {attempt}});
  add("tries until they succeed", {0, 0, 1, 2}, {{attempt_until}, {lock}, {attempt_until}, {lock}});
  constexpr Op let_go = Op::kLetGo;
  const auto add_deferring = [&](const char* name, std::vector<unsigned> processors,
                                 std::vector<std::vector<Op>> programs,
                                 DeferredReleases deferred = DeferredReleases::kAlways) {
    const size_t before = all.size();
    add(name, std::move(processors), std::move(programs));
    for (size_t i = before; i < all.size(); ++i) all[i].deferred = deferred;
  };
  add_deferring("deferred releases, once each", {0, 1}, {{lock}, {lock}});
  add_deferring("deferred releases, a try", {0, 1}, {{lock}, {attempt}});
  add_deferring("deferred releases, tries until they succeed", {0, 1}, {{lock}, {attempt_until}});
  add_deferring("some releases deferred", {0, 1}, {{lock, lock}, {lock}}, DeferredReleases::kLearned);
  add_deferring("deferred releases, a processor lets go", {0, 0, 1}, {{lock}, {let_go}, {lock}});
  add_deferring("deferred releases, again and again", {0, 1}, {{lock, lock}, {lock}});
  add_deferring("deferred releases, a try and a lock", {0, 1}, {{lock}, {attempt, lock}});
  return all;
}

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<uint8_t>(Mutant::kNone) + 1; m < static_cast<uint8_t>(Mutant::kCount); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

namespace {

// The only outcome of the programs is that they end.
exploring::Report report_of(const Scenario& scenario) {
  return exploring_driver::Explorer<World>(scenario, {{}}).run().report;
}

}  // namespace

std::string explore(const Scenario& scenario) {
  const exploring::Report report = report_of(scenario);
  std::printf("%s\n", exploring::summary(scenario.name, report).c_str());
  std::fflush(stdout);
  return report.failure.empty() ? std::string() : report.failure + "\n" + report.trace;
}

std::string refute(Mutant mutant) {
  std::vector<Scenario> all = scenarios();
  // The faults of deferred releases show where releases are deferred only.
  const bool is_of_deferred = mutant >= Mutant::kNoAsking;
  std::erase_if(all,
                [&](const Scenario& each) { return (each.deferred != DeferredReleases::kNever) != is_of_deferred; });
  for (Scenario& scenario : all) scenario.mutant = mutant;
  const auto only_outcome = [](const Scenario&) { return std::set<World::Outcome>{{}}; };
  return exploring_driver::refute_and_print<World>(name(mutant), all, only_outcome);
}

}  // namespace multigrain::network_lock_explored
