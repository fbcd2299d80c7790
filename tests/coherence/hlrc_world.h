// The world behind the machine of hlrc_driver_world.h: nodes whose memory, drivers and stacks are what they are in the state
// that was restored last. There is one at a time, because drivers, fibres and ports find it.
//
//   hlrc_driver_world.cpp   programs, ports, how a step is made, how a state is saved, and the machine as a value
//   hlrc_world_steps.cpp    which steps there are, and which of them are taken alone
//   hlrc_world_checks.cpp   what must hold, and what is said of a state
//   hlrc_ports.h            what drivers stand on
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fibre.h"
#include "fixed_homes.h"
#include "hlrc_driver_state.h"
#include "hlrc_driver_world.h"
#include "hlrc_machine_state.h"
#include "hlrc_ports.h"
#include "node_memory.h"
#include "profile/profile.h"
#include "support/sim_fabric.h"
#include "sync/barrier_engine.h"

namespace multigrain::hlrc::explored {

using node_memory::kPage;

struct Node {
  std::unique_ptr<node_memory::ExploredMemory> memory;
  std::optional<SteppedRights> rights;
  std::optional<SteppedLines> lines;
  std::unique_ptr<SteppedFabric> fabric;
  std::unique_ptr<Driver> driver;
};

// What accesses the next step of a processor makes.
struct Footprint {
  struct Access {
    Word word = 0;
    bool writes = false;
  };
  std::vector<Access> words;
  int lock = -1;  // of the program

  [[nodiscard]] bool concerns(Word word, bool writes) const {
    return std::ranges::any_of(words, [&](const Access& each) { return each.word == word && (each.writes || writes); });
  }
};

class World {
 public:
  explicit World(const Scenario& of);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  using Event = Machine::Event;
  void start();
  void save(std::vector<uint8_t>& out);
  void restore(std::span<const uint8_t> in);
  void enabled(std::vector<Event>& events);
  // And all steps that are taken at once (R2).
  std::string take(const Event& event, std::string* log);
  void settle(std::string* log);
  [[nodiscard]] std::string check_end();
  [[nodiscard]] std::string describe();

  // From fibres.
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  void play();
  void stop(At at) {
    self().at = at;
    fibres_[running_].stop();
  }
  Place& self() { return shared_.places[running_]; }
  [[nodiscard]] size_t running() const { return running_; }
  Shared& shared() { return shared_; }
  [[nodiscard]] unsigned node() const { return scenario_.processors[running_]; }

 private:
  // Threads of the runtime included.
  [[nodiscard]] size_t processors() const { return scenario_.programs.size(); }
  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario_.homes.size()); }
  uint64_t* frame(unsigned node, unsigned page) {
    return reinterpret_cast<uint64_t*>(nodes_[node].memory->region().alias(PageId(page)));
  }
  // Or else it is a thread of the runtime, and comes to no barrier.
  [[nodiscard]] bool is_processor(size_t p) const { return scenario_.programs[p].front().type != OpType::kCatchUp; }
  [[nodiscard]] unsigned processors_of(unsigned node) const {
    unsigned n = 0;
    for (size_t p = 0; p < processors(); ++p) n += scenario_.processors[p] == node && is_processor(p) ? 1 : 0;
    return n;
  }
  std::byte* memory(const Operation& operation) {
    Node& node = nodes_[operation.at];
    return (operation.segment == SegmentId::kFrames ? node.memory->frames().data() : node.memory->words().data()) +
           operation.offset;
  }

  void run(size_t p);
  void execute(const Op& op);
  void access(const Op& op);
  void release();
  void acquire_lock(unsigned lock);
  void meet();
  void meet_all();
  void gather_and_learn(uint8_t meeting);
  [[nodiscard]] BarrierPlace tree_place_of(unsigned node, uint8_t meeting) const;
  [[nodiscard]] bool may_gather(unsigned node, uint8_t meeting) const;
  [[nodiscard]] bool may_learn(unsigned node, uint8_t meeting) const;
  using Written = std::array<bool, kMaxPages>;
  [[nodiscard]] std::optional<Written> written_by(unsigned node);
  void move_homes();

  [[nodiscard]] bool can_go_on(size_t p);
  void go_on(size_t p);
  void perform(size_t p, Operation& operation, unsigned word);
  [[nodiscard]] bool fills_frame(size_t p, const Operation& get);
  void complete(size_t p, Operation& operation);
  void complete_earlier(size_t p, const Operation& swap);
  [[nodiscard]] Footprint step_of(size_t p) const;
  void add_operations(size_t p, Footprint& next) const;
  [[nodiscard]] bool may_concern_others(size_t p) const;
  [[nodiscard]] bool is_ever_written(Word word) const;
  [[nodiscard]] bool may_access(size_t q, size_t p, const Footprint& next) const;
  [[nodiscard]] bool access_concerns(unsigned node, const Op& op, const Footprint& next) const;
  [[nodiscard]] bool release_concerns(unsigned node, const Footprint& next) const;
  [[nodiscard]] bool deposits_concern(unsigned node, Word word) const;
  [[nodiscard]] bool updates_concern(unsigned node, const Footprint::Access& each) const;
  [[nodiscard]] static bool is_entry_of(unsigned node, Word word);
  [[nodiscard]] bool acquire_concerns(unsigned node, const Footprint& next) const;
  [[nodiscard]] std::optional<size_t> alone();
  void check();
  [[nodiscard]] std::string in_words(const Event& event) const;

  const Scenario scenario_;
  exploring_driver::FixedHomes homes_;
  SimNetwork network_;
  std::array<Node, kMaxNodes> nodes_;
  std::array<exploring_driver::Fibre, kMaxProcessors> fibres_;
  std::vector<std::span<std::byte>> pieces_;  // of all drivers, frames and words
  std::vector<std::byte> gathered_;
  ProcessorProfile profile_;
  Shared shared_;
  size_t running_ = 0;
  std::string wrong_;
};

inline std::unique_ptr<World> g_world;

}  // namespace multigrain::hlrc::explored
