#include "mgs_simulation.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "coherence/mgs/message_types.h"
#include "support/sim_fabric.h"

namespace multigrain::mgs::model {
namespace {

// Uniform numbers that are the same with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  unsigned below(size_t bound) { return static_cast<unsigned>(engine_() % bound); }
  bool one_in(unsigned n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Puts the machine's messages on the sim fabric, and gives the machine what the fabric delivers.
class OverSimFabric final : public Transport {
 public:
  OverSimFabric(Machine& machine, unsigned nodes, std::string* log)
      : machine_(machine), network_({.nodes = nodes, .frames_bytes = 64, .words_bytes = 64}), log_(log) {
    for (unsigned n = 0; n < nodes; ++n) {
      receivers_.push_back({this, static_cast<uint8_t>(n)});
    }
    for (unsigned n = 0; n < nodes; ++n)
      for (unsigned kind = 0; kind < static_cast<unsigned>(MessageKind::kKindCount); ++kind)
        network_.node(node_id(n)).set_handler(type_of(static_cast<MessageKind>(kind)), handle, &receivers_[n]);
    machine.set_transport(this);
  }

  void send(const Envelope& message) override {
    MessageHeader header;
    header.type = type_of(message.kind);
    header.flags = message.by_reference ? 1 : 0;
    header.small = message.mask;
    header.word[0] = message.page;
    std::array<std::byte, sizeof(Words)> payload;
    std::memcpy(payload.data(), message.words.data(), payload.size());
    network_.node(node_id(message.from)).send(node_id(message.to), header, payload, {}, SendContext::kHandler);
  }

  [[nodiscard]] std::string deliver(const Event& event) {
    wrong_.clear();
    if (!network_.deliver(node_id(event.a), node_id(event.b))) return "the fabric has lost a message";
    return std::move(wrong_);
  }
  [[nodiscard]] bool is_empty() const { return network_.pending_count() == 0; }

 private:
  struct Receiver {
    OverSimFabric* self;
    uint8_t node;
  };

  static NodeId node_id(unsigned node) { return NodeId(static_cast<uint16_t>(node)); }
  static MessageType type_of(MessageKind kind) {
    return static_cast<MessageType>(message_range::kMgs + static_cast<unsigned>(kind));
  }
  static void handle(void* context, const Message& message) {
    const auto& receiver = *static_cast<Receiver*>(context);
    Envelope envelope{.from = static_cast<uint8_t>(message.from.value),
                      .to = receiver.node,
                      .page = static_cast<uint8_t>(message.header.word[0]),
                      .kind = static_cast<MessageKind>(message.header.type - message_range::kMgs),
                      .by_reference = message.header.flags != 0,
                      .mask = static_cast<uint8_t>(message.header.small)};
    std::memcpy(envelope.words.data(), message.payload.data(), sizeof(Words));
    OverSimFabric& self = *receiver.self;
    self.wrong_ = self.machine_.apply_delivery(envelope, self.log_);
  }

  Machine& machine_;
  SimNetwork network_;
  std::string* log_;
  std::vector<Receiver> receivers_;
  std::string wrong_;
};

// Writes the programs of one seed.
class Author {
 public:
  Author(uint64_t seed, Scenario& scenario) : random_(seed), scenario_(scenario) {}

  void write_programs() {
    const size_t words = scenario_.homes.size() * scenario_.words;
    guard_.resize(words);
    for (unsigned& guard : guard_) guard = random_.one_in(3) ? 1 + random_.below(kLocks) : 0;
    // About as much work for a large machine as for a small one: what matters is the number of orders tried.
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
  std::vector<unsigned> guard_;  // of each word, 1 + the lock that guards it, or 0
  std::vector<unsigned> owner_;  // of each word, who may write it in this phase
  Value value_ = 0;
};

}  // namespace

Shape random_shape(uint64_t seed) {
  Random random(seed * 2 + 1);
  Shape shape;
  // Small machines mostly: their nodes meet more often.
  shape.nodes = random.one_in(4) ? 4 + random.below(13) : 3 + random.below(4);
  shape.processors_per_node = 1 + random.below(4);
  shape.domains = random.one_in(2) ? 1 : shape.processors_per_node;
  shape.pages = random.one_in(3) ? 8 : 1 + random.below(4);
  return shape;
}

Scenario random_scenario(uint64_t seed, const Shape& shape, Mutant mutant) {
  Random random(seed * 2 + 2);
  Scenario scenario;
  scenario.name = fmt::format("seed {}", seed);
  scenario.nodes = shape.nodes;
  scenario.domains = shape.domains;
  scenario.words = kMaxWords;
  scenario.golden = true;
  for (unsigned page = 0; page < shape.pages; ++page) scenario.homes.push_back(random.below(shape.nodes));
  for (unsigned n = 0; n < shape.nodes; ++n)
    for (unsigned i = 0; i < shape.processors_per_node; ++i) scenario.processors.push_back({n, {}});
  scenario.options = {.data_by_reference = random.one_in(2),
                      .asynchronous_unmap = random.one_in(2),
                      .split_faults = true,
                      .split_releases = true,
                      .split_actions = true,
                      .mutant = mutant};
  Author(seed, scenario).write_programs();
  scenario.prepare();
  return scenario;
}

Run simulate(const Scenario& scenario, uint64_t seed, std::string* log) {
  // Programs are finite and every fault is answered in a few messages; what takes longer goes round in circles.
  constexpr uint64_t kMaxEvents = 500'000;
  Random random(seed);
  Machine machine(scenario);
  OverSimFabric fabric(machine, scenario.nodes, log);
  std::vector<Event> events;
  Run run;
  while (run.failure.empty()) {
    machine.enabled(events);
    if (events.empty()) {
      run.failure = fabric.is_empty() ? machine.check_end() : "the fabric holds a message that the machine does not";
      break;
    }
    if (++run.events > kMaxEvents) {
      run.failure = fmt::format("livelock: not at an end after {} events", kMaxEvents);
      break;
    }
    const Event event = events[random.below(events.size())];
    if (event.type == Event::kDeliver) ++run.messages;
    run.failure = event.type == Event::kDeliver ? fabric.deliver(event) : machine.apply(event, log);
  }
  if (log != nullptr && !run.failure.empty()) *log += "WRONG: " + run.failure + "\n" + machine.describe();
  return run;
}

std::string replay_command(uint64_t seed, const Shape& shape) {
  return fmt::format("mgs_simulation --seed {} --nodes {} --procs-per-node {} --domains {} --pages {} --trace", seed,
                     shape.nodes, shape.processors_per_node, shape.domains, shape.pages);
}

}  // namespace multigrain::mgs::model
