// Water-spatial: forces and potentials in a system of flexible water molecules over time, by way of boxes
// ([GeNIMA], section III.C; Woo and others, "The SPLASH-2 programs").
//
// The same physics as water's, but the cutoff is a length and not half the side of the system: so space is cut into
// boxes no narrower than the cutoff, and a molecule interacts with those in its own box and the boxes around that. A
// processor owns a block of boxes. It computes the forces on the molecules in them, each pair that two processors share
// twice, once by each: so forces take no locks. A box's molecules are a list under a lock, for molecules move from box
// to box.
//
// Lists are in the order of the molecules' numbers, and so are the sums over them: what a molecule does depends neither
// on the configuration nor on who came first.
//
// Variants. By default a molecule stays where it is in memory, and the molecules of a processor's boxes lie between
// those of others: medium-grain sharing, and false sharing as they mix. `local-molecules` keeps the molecules of a
// processor's boxes, and the heads of its lists, in pages of its own, at home on its node: one that moves to another's
// box is copied. (The paper uses a restructured version, waterF, and says no more of it than that data assignment,
// scattered accesses and synchronisation are what it restructured programs for.)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"
#include "water_forces.h"
#include "water_motion.h"

namespace {

using namespace workloads;
using namespace workloads::water;

// Nanometres; as in the SPLASH-2 program, a quarter of the side of 512 molecules.
constexpr double kCutoff = 0.62;

// A place for a molecule, or none.
using Link = uint32_t;
constexpr Link kNothing = 0;

// A few pages hold a whole number of them.
struct alignas(128) Slot {
  Molecule molecule;
  uint32_t number;
  Link next;  // of the box
};

// A system in boxes; the same code works on shared and on private memory. System's `molecule` is not used, and its
// `lock` is one a box.
struct Boxes {
  System system;
  unsigned processors;
  bool local;                 // the variant local-molecules
  size_t edge;                // boxes along a side of the system
  size_t slots_of_processor;  // local: its part of them
  Slot* slot;
  Link** head;                              // of each box's list
  const unsigned* owner;                    // of each box
  const std::vector<uint32_t>* neighbours;  // of each box, and itself
};

// Written by main() before the processors start.
Boxes shared;
unsigned iterations;
uint64_t elapsed;  // processor 0's, on main()'s node; so are the energies
Sums sums_at_start;
Sums sums_at_end;

// What is one processor's, in private memory.
struct Part {
  unsigned processor;
  std::vector<uint32_t> boxes;  // that it owns
  std::vector<Link> molecules;  // that were in them when forces were computed
  std::vector<Link> free;       // local: of its slots, the unused ones
  std::vector<Link> given;      // local: those that others copied or are about to
};

struct Move {
  Link link;
  uint32_t box;
};

Slot& at(const Boxes& boxes, Link link) {
  return boxes.slot[link - 1];
}

uint32_t box_of(const Boxes& boxes, const Molecule& molecule) {
  const Vec oxygen = molecule.atom[0][0];
  const auto along = [&boxes](double position) {
    const auto box = static_cast<size_t>(position / boxes.system.side * static_cast<double>(boxes.edge));
    return std::min(box, boxes.edge - 1);
  };
  return static_cast<uint32_t>((along(oxygen.z) * boxes.edge + along(oxygen.y)) * boxes.edge + along(oxygen.x));
}

// The box's lock; there are none in the sequential version.
Holding hold(const Boxes& boxes, uint32_t box) {
  return Holding(boxes.system.lock != nullptr ? boxes.system.lock[box] : 0);
}

void insert(const Boxes& boxes, uint32_t box, Link link) {
  Slot& slot = at(boxes, link);
  Link* before = boxes.head[box];
  while (*before != kNothing && at(boxes, *before).number < slot.number) before = &at(boxes, *before).next;
  slot.next = *before;
  *before = link;
}

[[noreturn]] void give_up() {
  std::fprintf(stderr, "water-spatial: too many molecules have come into one processor's boxes\n");
  std::exit(kCheckFailed);
}

Link take_slot(Part& part) {
  if (part.free.empty()) give_up();
  const Link link = part.free.back();
  part.free.pop_back();
  return link;
}

// Puts copies of the molecules that came from others into the caller's own slots. Nobody else is at its boxes.
void adopt(const Boxes& boxes, Part& part) {
  const size_t first = part.processor * boxes.slots_of_processor;
  for (const uint32_t box : part.boxes) {
    for (Link* before = boxes.head[box]; *before != kNothing; before = &at(boxes, *before).next) {
      const size_t index = *before - 1;
      if (index >= first && index < first + boxes.slots_of_processor) continue;
      const Link mine = take_slot(part);
      at(boxes, mine) = at(boxes, *before);
      *before = mine;
    }
  }
}

// Moves molecules to the boxes in which they are. All processors call it together.
void change_boxes(const Boxes& boxes, Part& part) {
  // What was given away the last time has been copied since.
  part.free.insert(part.free.end(), part.given.begin(), part.given.end());
  part.given.clear();
  std::vector<Move> moves;
  for (const uint32_t box : part.boxes) {
    const Holding holding = hold(boxes, box);
    for (Link* before = boxes.head[box]; *before != kNothing;) {
      Slot& slot = at(boxes, *before);
      const uint32_t to = box_of(boxes, slot.molecule);
      if (to == box) {
        before = &slot.next;
        continue;
      }
      moves.push_back({*before, to});
      *before = slot.next;
    }
  }
  for (const Move& move : moves) {
    const Holding holding = hold(boxes, move.box);
    insert(boxes, move.box, move.link);
    if (boxes.local && boxes.owner[move.box] != part.processor) part.given.push_back(move.link);
  }
  synchronise(boxes.system);
  if (boxes.local) adopt(boxes, part);
}

template <typename Visit>
void for_all_in(const Boxes& boxes, uint32_t box, Visit&& visit) {
  for (Link link = *boxes.head[box]; link != kNothing; link = at(boxes, link).next) visit(at(boxes, link));
}
// The forces on the caller's molecules, from where all are now, and the energies that belong to them.
void compute_forces_on(const Boxes& boxes, Part& part, Sums& sums) {
  part.molecules.clear();
  for (const uint32_t box : part.boxes) {
    for (Link link = *boxes.head[box]; link != kNothing; link = at(boxes, link).next) {
      Slot& slot = at(boxes, link);
      part.molecules.push_back(link);
      Forces forces{};
      Forces opposite{};  // those that the other molecule's owner computes itself
      sums.inside += forces_inside(slot.molecule, forces);
      for (const uint32_t neighbour : boxes.neighbours[box]) {
        for_all_in(boxes, neighbour, [&](const Slot& other) {
          if (other.number != slot.number)
            sums.between += 0.5 * forces_between(boxes.system, slot.molecule, other.molecule, forces, opposite);
        });
      }
      slot.molecule.force = forces;
    }
  }
}

// Predictions are there; forces, corrections and sums follow. All processors call it together.
void step(const Boxes& boxes, Part& part, bool moving) {
  Sums sums{};
  clear_sums(boxes.system, part.processor == 0);
  compute_forces_on(boxes, part, sums);
  // Others read where molecules are up to here. From here on they put those into lists that come into the caller's
  // boxes, and that have been corrected, so the caller does not go by its lists.
  synchronise(boxes.system);
  for (const Link link : part.molecules) {
    Molecule& molecule = at(boxes, link).molecule;
    if (moving) {
      correct(molecule);
      apply_boundary(boxes.system, molecule);
    } else {
      for (int a = 0; a < 3; ++a) molecule.atom[2][a] = wanted_acceleration(molecule, a);
    }
    add_motion(molecule, sums);
  }
  add_to_sums(boxes.system, sums);
  change_boxes(boxes, part);
}

// The caller's boxes with their molecules at the start, and the energies that belong to them. All processors call it
// together.
void prepare(const Boxes& boxes, Part& part) {
  for (uint32_t box = 0; box < boxes.edge * boxes.edge * boxes.edge; ++box)
    if (boxes.owner[box] == part.processor) part.boxes.push_back(box);
  if (boxes.local) {
    const size_t first = part.processor * boxes.slots_of_processor;
    for (size_t s = boxes.slots_of_processor; s-- > 0;) part.free.push_back(static_cast<Link>(first + s + 1));
  }
  for (size_t m = 0; m < boxes.system.molecules; ++m) {
    Molecule molecule;
    initialise(boxes.system, m, molecule);
    const uint32_t box = box_of(boxes, molecule);
    if (boxes.owner[box] != part.processor) continue;
    const Link link = boxes.local ? take_slot(part) : static_cast<Link>(m + 1);
    at(boxes, link).molecule = molecule;
    at(boxes, link).number = static_cast<uint32_t>(m);
    insert(boxes, box, link);
  }
  step(boxes, part, false);
}

void simulate(const Boxes& boxes, Part& part) {
  for (unsigned t = 0; t < iterations; ++t) {
    for (const uint32_t box : part.boxes) for_all_in(boxes, box, [](Slot& slot) { predict(slot.molecule); });
    step(boxes, part, true);
  }
}

void slave(void*) {
  Part part{mg_processor(), {}, {}, {}, {}};
  prepare(shared, part);
  if (part.processor == 0) sums_at_start = *shared.system.sums;
  const uint64_t start = start_measuring(shared.system.barrier);
  simulate(shared, part);
  if (part.processor == 0) {
    elapsed = stop_measuring(start);
    sums_at_end = *shared.system.sums;
  }
}

// --- Who owns what, by main() --------------------------------------------------------------------------------------

// Blocks of boxes for as many processors, as close to cubes as divisors allow.
std::vector<unsigned> owners_of_boxes(size_t edge, unsigned processors) {
  unsigned deep = 1;
  for (unsigned divisor = 1; divisor * divisor * divisor <= processors; ++divisor)
    if (processors % divisor == 0) deep = divisor;
  const ProcessorGrid grid = grid_of(processors / deep);
  std::vector<unsigned> owners;
  for (size_t z = 0; z < edge; ++z)
    for (size_t y = 0; y < edge; ++y)
      for (size_t x = 0; x < edge; ++x)
        owners.push_back(static_cast<unsigned>((z * deep / edge * grid.rows + y * grid.rows / edge) * grid.columns +
                                               x * grid.columns / edge));
  return owners;
}

// The boxes around each, in ascending order, once each even if there are only two along a side.
std::vector<std::vector<uint32_t>> find_neighbours(size_t edge) {
  std::vector<std::vector<uint32_t>> neighbours;
  const size_t boxes = edge * edge * edge;
  const auto place = [edge](size_t box) { return std::array{box % edge, box / edge % edge, box / edge / edge}; };
  for (size_t box = 0; box < boxes; ++box) {
    std::vector<uint32_t>& list = neighbours.emplace_back();
    for (size_t other = 0; other < boxes; ++other) {
      bool near = true;
      for (size_t k = 0; k < 3; ++k) {
        const size_t apart = (place(box)[k] + edge - place(other)[k]) % edge;
        near &= apart <= 1 || apart == edge - 1;
      }
      if (near) list.push_back(static_cast<uint32_t>(other));
    }
  }
  return neighbours;
}

// --- Results -------------------------------------------------------------------------------------------------------

// Against the invariants of the physics, and against the sequential run to the last bit, but for the energies: those
// are added in the order in which processors come.
int check(const Boxes& expected) {
  const size_t molecules = shared.system.molecules;
  std::vector<const Molecule*> found(molecules);
  size_t moved = 0;
  for (uint32_t box = 0; box < shared.edge * shared.edge * shared.edge; ++box) {
    for (Link link = *shared.head[box]; link != kNothing; link = at(shared, link).next) {
      const Slot& slot = at(shared, link);
      if (slot.number >= molecules || found[slot.number] != nullptr || box_of(shared, slot.molecule) != box)
        return print_check(false, "a molecule is in a box in which it does not belong");
      if (shared.local && (link - 1) / shared.slots_of_processor != shared.owner[box])
        return print_check(false, "a molecule is not in its processor's memory");
      found[slot.number] = &slot.molecule;
      Molecule before;
      initialise(shared.system, slot.number, before);
      if (box_of(shared, before) != box) ++moved;
    }
  }
  for (size_t m = 0; m < molecules; ++m) {
    if (found[m] == nullptr) return print_check(false, "molecule " + std::to_string(m) + " is in no box");
    if (std::memcmp(found[m], &expected.slot[m].molecule, sizeof(Molecule)) != 0)
      return print_check(false, "molecule " + std::to_string(m) + " differs from the sequential run's");
  }
  const double drift = std::abs(total(sums_at_end) - total(sums_at_start)) / sums_at_start.kinetic;
  const Vec change = sums_at_end.momentum - sums_at_start.momentum;
  const double push = std::sqrt(dot(change, change)) / (static_cast<double>(molecules) * kMass[0]);
  const double rounding = std::abs(total(sums_at_end) - total(*expected.system.sums)) / sums_at_start.kinetic;
  char text[250];
  std::snprintf(text, sizeof text,
                "molecules equal the sequential run's, energy by %.1e; it drifts by %.1e of the kinetic energy, mean "
                "momentum by %.1e; %zu molecules have changed boxes",
                rounding, drift, push, moved);
  return print_check(drift < 1e-3 && push < 1e-9 && rounding < 1e-10, text);
}

// The sequential version, on the given memory. Returns its time.
uint64_t run_sequentially(Boxes& alone, std::vector<Slot>& slots, std::vector<Link>& links, std::vector<Link*>& heads,
                          std::vector<unsigned>& owner, Sums& sums) {
  alone = shared;
  slots.resize(alone.system.molecules);
  links.resize(alone.edge * alone.edge * alone.edge);
  for (Link& link : links) heads.push_back(&link);
  owner.assign(links.size(), 0);
  alone.system.lock = nullptr;
  alone.system.sums = &sums;
  alone.processors = 1;
  alone.local = false;
  alone.slot = slots.data();
  alone.head = heads.data();
  alone.owner = owner.data();
  Part part{0, {}, {}, {}, {}};
  prepare(alone, part);
  const uint64_t start = mg_time_ns();
  simulate(alone, part);
  return mg_time_ns() - start;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Molecular dynamics of water, by boxes, on Multigrain", "water-spatial");
  size_t given_molecules = 0;
  app.add_number("-n,--molecules", given_molecules, "molecules (test 729, paper 512, large 4096)", 8, 1'000'000);
  std::string variant;
  add_variants(app, variant, {"local-molecules"});
  const Options options = parse_command_line(app, argc, argv, kSplash2Paper);
  // With 729, unlike 512, some molecules begin at the boundary of two boxes and so change boxes at once.
  System& system = shared.system;
  system.molecules = choose<size_t>(options, given_molecules, 729, 512, 4096);
  system.side = std::cbrt(kVolumeOfMolecule * static_cast<double>(system.molecules));
  // As no molecule may see two images of another, there are two boxes along a side at least.
  system.cutoff = std::min(kCutoff, system.side / 2);
  system.seed = options.seed;
  iterations = choose(options, options.iterations, 2u, 3u, 3u);
  shared.local = variant == "local-molecules";
  shared.processors = mg_processors();
  shared.edge = static_cast<size_t>(system.side / system.cutoff);
  const size_t boxes = shared.edge * shared.edge * shared.edge;
  const std::vector<unsigned> owner = owners_of_boxes(shared.edge, shared.processors);
  const std::vector<std::vector<uint32_t>> neighbours = find_neighbours(shared.edge);
  shared.owner = owner.data();
  shared.neighbours = neighbours.data();

  std::vector<Link*> heads;
  Link* links;
  if (shared.local) {
    // Boxes differ in how many molecules they have, and that changes: there is room for half as many again, and some.
    std::vector<size_t> boxes_of(shared.processors);
    for (const unsigned o : owner) ++boxes_of[o];
    const size_t most_boxes = *std::max_element(boxes_of.begin(), boxes_of.end());
    const size_t most = std::min(system.molecules, 3 * system.molecules * most_boxes / (2 * boxes) + 64);
    shared.slots_of_processor = whole_pages<Slot>(2 * most);  // twice: what has been given is not free at once
    shared.slot = allocate_shared<Slot>(shared.processors * shared.slots_of_processor, MG_HOME_BLOCKED);
    const size_t links_of_processor = whole_pages<Link>(most_boxes);
    links = allocate_shared<Link>(shared.processors * links_of_processor, MG_HOME_BLOCKED);
    std::vector<size_t> used(shared.processors);
    for (const unsigned o : owner) heads.push_back(links + o * links_of_processor + used[o]++);
  } else {
    shared.slot = allocate_shared<Slot>(system.molecules, MG_HOME_BLOCKED);
    links = allocate_shared<Link>(boxes, MG_HOME_BLOCKED);
    for (size_t box = 0; box < boxes; ++box) heads.push_back(links + box);
  }
  shared.head = heads.data();
  system.sums = allocate_shared<Sums>(1);
  std::vector<mg_lock_t> locks(boxes);
  for (mg_lock_t& lock : locks) lock = mg_lock_create();
  system.lock = locks.data();
  system.sums_lock = mg_lock_create();
  system.barrier = mg_barrier_create(0);

  print_header("water-spatial", variant + ", " + std::to_string(system.molecules) + " molecules, " +
                                    std::to_string(boxes) + " boxes, " + std::to_string(iterations) + " iterations");
  run_on_all(slave);
  print_parallel(elapsed, total(sums_at_end));

  int status = 0;
  if (options.speedup || options.check) {
    Boxes alone;
    std::vector<Slot> slots;
    std::vector<Link> lists;
    std::vector<Link*> list_heads;
    std::vector<unsigned> owner_alone;
    Sums sums{};
    const uint64_t sequential = run_sequentially(alone, slots, lists, list_heads, owner_alone, sums);
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(alone);
  }
  mg_barrier_destroy(system.barrier);
  mg_lock_destroy(system.sums_lock);
  for (const mg_lock_t lock : locks) mg_lock_destroy(lock);
  mg_free(system.sums);
  mg_free(links);
  mg_free(shared.slot);
  return status;
}
