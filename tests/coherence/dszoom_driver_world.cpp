#include "dszoom_driver_world.h"

#include "driver_steps.h"
#include "dszoom_world.h"

namespace multigrain::exploring_driver {

using dszoom::explored::g_world;

void step(const void* address, size_t) {
  if (g_world != nullptr) g_world->before_access(address);
}

// A processor that has found the lock held goes on where it stood before, and the step adds nothing to its records.
void step_of_lock(const void* lock) {
  g_world->before_lock(lock);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("DSZOOM waits for a hazard of its own node");
}

void Locals::keep(std::initializer_list<void*> locals) {
  dszoom::explored::Processor& fibre = g_world->self();
  void* const none[] = {nullptr, nullptr, nullptr, nullptr};
  void* const* const of = locals.size() == 0 ? none : locals.begin();
  fibre.miss = static_cast<const dszoom::Miss*>(of[0]);
  fibre.scan = static_cast<const dszoom::HazardScan*>(of[1]);
  fibre.buffer = static_cast<std::byte*>(of[2]);
  fibre.run_lines = static_cast<const uint32_t*>(of[3]);
}

}  // namespace multigrain::exploring_driver

namespace multigrain::dszoom::explored {
namespace {

void play() {
  g_world->play();
  panic("a program goes on after its end");
}

}  // namespace

World::Undo::Undo() : kept(std::make_unique<Kept>()) {}
World::Undo::~Undo() = default;

World::World(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {
  MG_CHECK(g_world == nullptr);
  MG_CHECK(scenario.programs.size() <= scenario.nodes.size(), scenario.programs.size());
  Impl& world = *impl_;
  g_mutant = scenario.mutant;
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = world.nodes[n];
    node.memory.emplace(n);
    node.table.emplace(node_memory::explored_line_table(n, kShift));
    node.memory->export_to(world.network, NodeId(n));
    world.network.export_segment(NodeId(n), SegmentId::kLines, node.table->bytes());
    node.fabric = std::make_unique<HeldFabric>(world.network.node(NodeId(n)), world.next_id);
    node.hazards = std::make_unique<HazardSlots>(NodeId(n), node.memory->words());
    auto driver = Driver::create({*node.fabric, node.memory->region(), node.rights, world.homes, WaitPolicy{}},
                                 {*node.table, *node.hazards}, 0, scenario.runs ? Runs::kAlways : Runs::kNever,
                                 scenario.rights_ahead ? RightsAhead::kAlways : RightsAhead::kNever);
    if (!driver) panic("no driver for a node:", n);
    node.driver = std::move(*driver);
    for (const uint8_t home : scenario.homes) node.driver->on_fault(PageId(home), true);
  }
  for (size_t p = 0; p < scenario.programs.size(); ++p) {
    world.fibres.push_back(std::make_unique<Processor>());
    Processor& fibre = *world.fibres.back();
    fibre.node = scenario.nodes[p];
    HazardSlots& hazards = *world.nodes[fibre.node].hazards;
    fibre.hazards = hazards.take();
    fibre.slot = hazards.index_of(fibre.hazards);
  }
  for (const Program& program : scenario.programs)
    for (const Op& op : program)
      if (op.access == Access::kLoadBoth || op.access == Access::kStoreBoth || op.access == Access::kAddBoth)
        world.hazards_used = kHazardsUsed;
  g_world = &world;
}

World::~World() {
  g_world = nullptr;
  g_mutant = Mutant::kNone;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  abandon_hazard_slot();
}

void World::start() {
  Impl& world = *impl_;
  world.golden = {};
  world.wrong.clear();
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    world.nodes[n].hazards->rights_epoch().store(0);
    world.pages[n] = {};
    for (unsigned of = 0; of < kMaxNodes; ++of) world.state(n).known_epoch(of).store(0);
    for (unsigned l = 0; l < kLines; ++l) {
      const bool is_home = world.scenario.homes[l] == n;
      std::fill_n(world.frame(n, l), kWordsOfLine, is_home ? 0 : MG_FINE_FLAG64);
      world.table_word(n, l).store(is_home ? kExclusive : kInvalid);
    }
  }
  for (unsigned f = 0; f < world.fibres.size(); ++f) {
    Processor& fibre = *world.fibres[f];
    MG_CHECK(fibre.at == Place::At::kEnd, f);
    std::fill_n(fibre.hazards, MG_FINE_HAZARDS, uint64_t{0});
    static_cast<Place&>(fibre) = {};
    fibre.begin(&explored::play);
    world.run(f);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (size_t f = 0; f < impl_->fibres.size(); ++f) {
    const Processor& fibre = *impl_->fibres[f];
    const auto first = static_cast<Choice>(f * kChoicesOfOne);
    if (fibre.at == Place::At::kStep) choices.push_back(static_cast<Choice>(first + kRun));
    MG_CHECK(fibre.records.size() <= kEpochFirst, fibre.records.size());
    for (size_t r = 0; r < fibre.records.size(); ++r) {
      const Record& record = fibre.records[r];
      if (record.done || !fibre.is_done(record.after)) continue;
      choices.push_back(static_cast<Choice>(first + r));
      if (impl_->caches() && record.is_scan() && record.moved == 0)
        choices.push_back(static_cast<Choice>(first + kEpochFirst + r));
    }
  }
}

void World::take(Choice choice) {
  const unsigned f = choice / kChoicesOfOne;
  Processor& fibre = *impl_->fibres[f];
  if (choice % kChoicesOfOne == kRun) {
    impl_->run(f);
    return;
  }
  Record& record = fibre.records[choice % kChoicesOfOne % kEpochFirst];
  if (choice % kChoicesOfOne >= kEpochFirst) record.epoch_first = true;
  impl_->nodes[fibre.node].fabric->perform(record);
  if (!record.done) return;
  if (fibre.at == Place::At::kWait && fibre.waits_for == record.id) {
    // The processor goes on to an access, or to the wait for another operation. The other processors see nothing of
    // that.
    impl_->run(f);
  } else if (record.is_unlock() || record.nobody_waits || fibre.at == Place::At::kEnd) {
    fibre.records.erase(fibre.records.begin() + (&record - fibre.records.data()));
  }
}

void World::take(Choice choice, Undo& undo) {
  Kept& kept = *undo.kept;
  kept.processor = choice / kChoicesOfOne;
  const Processor& fibre = *impl_->fibres[kept.processor];
  impl_->save(kept.memory);
  kept.place = fibre;
  fibre.save(kept.stack);
  std::copy_n(fibre.hazards, MG_FINE_HAZARDS, kept.hazards.begin());
  kept.outbox = impl_->state(fibre.node).outbox(fibre.slot);
  take(choice);
}

void World::undo(const Undo& undo) {
  const Kept& kept = *undo.kept;
  Processor& fibre = *impl_->fibres[kept.processor];
  impl_->put_back(kept.memory);
  static_cast<Place&>(fibre) = kept.place;
  fibre.put_back(kept.stack);
  std::ranges::copy(kept.hazards, fibre.hazards);
  impl_->state(fibre.node).outbox(fibre.slot) = kept.outbox;
}

}  // namespace multigrain::dszoom::explored
