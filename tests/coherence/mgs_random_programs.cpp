#include "mgs_random_programs.h"

#include <fmt/format.h>

#include <random>

#include "mgs_driver_world.h"

namespace multigrain::mgs::explored {
namespace {

// These uniform numbers are the same with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  unsigned below(size_t bound) { return static_cast<unsigned>(engine_() % bound); }
  bool one_in(unsigned n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Writes the programs of one seed.
class Author {
 public:
  Author(uint64_t seed, Scenario& scenario) : random_(seed), scenario_(scenario) {}

  void write_programs() {
    const size_t words = scenario_.homes.size() * scenario_.words;
    guard_.resize(words);
    for (unsigned& guard : guard_) guard = random_.one_in(3) ? 1 + random_.below(kLocks) : 0;
    // A large machine gets about as much work as a small one: what matters is the number of orders tried.
    const size_t ops = std::max<size_t>(2, kOps / scenario_.processors.size());
    const unsigned phases = 2 + random_.below(2);
    for (unsigned phase = 0; phase < phases; ++phase) {
      owner_.assign(words, kNobody);
      for (unsigned& owner : owner_)
        if (random_.below(5) < 2) owner = random_.below(scenario_.processors.size());
      for (unsigned p = 0; p < scenario_.processors.size(); ++p) write_phase(p, ops);
    }
  }

 private:
  static constexpr unsigned kLocks = 3;
  static constexpr unsigned kNobody = ~0u;
  static constexpr size_t kOps = 120;

  void write_phase(unsigned processor, size_t ops) {
    Program& program = scenario_.processors[processor].program;
    for (size_t i = 0; i < ops; ++i) {
      const size_t word = random_.below(guard_.size());
      if (guard_[word] != 0)
        write_critical_section(program, guard_[word]);
      else if (owner_[word] == processor)
        access(program, word, true);
      else if (owner_[word] == kNobody)
        access(program, word, false);
      else
        write_own(processor, program);
      if (random_.one_in(6)) program.push_back(release());
    }
    program.push_back(release());
    program.push_back(barrier());
  }

  void write_critical_section(Program& program, unsigned guard) {
    program.push_back(lock(guard - 1));
    for (unsigned i = 1 + random_.below(2); i > 0; --i) {
      const size_t start = random_.below(guard_.size());
      for (size_t k = 0; k < guard_.size(); ++k) {
        const size_t word = (start + k) % guard_.size();
        if (guard_[word] != guard) continue;
        access(program, word, true);
        break;
      }
    }
    program.push_back(release());
    program.push_back(unlock(guard - 1));
  }

  void write_own(unsigned processor, Program& program) {
    const size_t start = random_.below(owner_.size());
    for (size_t k = 0; k < owner_.size(); ++k) {
      const size_t word = (start + k) % owner_.size();
      if (owner_[word] != processor || guard_[word] != 0) continue;
      access(program, word, true);
      return;
    }
  }

  void access(Program& program, size_t word, bool may_write) {
    const auto page = static_cast<unsigned>(word / scenario_.words);
    const auto offset = static_cast<unsigned>(word % scenario_.words);
    const unsigned choice = may_write ? random_.below(3) : 0;  // read, write, or both
    if (choice != 1) program.push_back(read(page, offset));
    if (choice != 0) program.push_back(write(page, offset, ++value_));
  }

  Random random_;
  Scenario& scenario_;
  std::vector<unsigned> guard_;  // for each word, 1 + the lock that guards it, or 0
  std::vector<unsigned> owner_;  // for each word, the processor that may write it in this phase
  Value value_ = 0;
};

}  // namespace

Scenario random_scenario(uint64_t seed, bool one_sided, Mutant mutant) {
  Random random(seed * 2 + 1);
  Scenario scenario;
  scenario.name = fmt::format("seed {}{}", seed, one_sided ? ", one-sided" : "");
  // Most machines are small, because their nodes meet more often.
  scenario.nodes = random.one_in(4) ? 4 + random.below(kMaxNodes - 3) : 3 + random.below(4);
  const unsigned processors_per_node = 1 + random.below(4);
  const unsigned pages = random.one_in(3) ? 8 : 1 + random.below(4);
  scenario.words = kMaxWords;
  scenario.golden = true;
  scenario.mutant = mutant;
  scenario.one_sided = one_sided;
  // Not by chance, so that a seed has the same machine and programs with and without.
  scenario.ahead = one_sided && seed % 2 == 0 ? static_cast<unsigned>(1 + seed / 2 % 3) : 0;
  scenario.has_tables = !one_sided && seed % 2 == 0;
  for (unsigned page = 0; page < pages; ++page) scenario.homes.push_back(random.below(scenario.nodes));
  for (unsigned n = 0; n < scenario.nodes; ++n)
    for (unsigned i = 0; i < processors_per_node; ++i) scenario.processors.push_back({n, {}});
  Author(seed, scenario).write_programs();
  scenario.prepare();
  return scenario;
}

Run simulate(const Scenario& scenario, uint64_t seed, std::string* log) {
  // Programs are finite, and every fault is answered in a few messages. A run that takes longer goes round in circles.
  constexpr uint64_t kMaxEvents = 500'000;
  Random random(seed);
  World::start(scenario);
  std::vector<Event> events;
  Run run;
  while (run.failure.empty()) {
    World::enabled(events);
    if (events.empty()) {
      run.failure = World::check_end();
      break;
    }
    if (++run.events > kMaxEvents) {
      run.failure = fmt::format("livelock: not at an end after {} events", kMaxEvents);
      break;
    }
    const Event event = events[random.below(events.size())];
    if (event.type == Event::kMessage) ++run.messages;
    run.failure = World::apply(event, log);
  }
  if (log != nullptr && !run.failure.empty()) *log += "WRONG: " + run.failure + "\n" + World::describe();
  return run;
}

}  // namespace multigrain::mgs::explored
