// Barnes-Hut: the motion of bodies under gravity, in a hierarchical way ([MGS], section 5.2; Barnes and Hut, "A
// hierarchical O(N log N) force-calculation algorithm"; Singh, Weber and Gupta, "SPLASH").
//
// Space is an octree of cells down to single bodies. In each iteration all processors put their bodies into one shared
// tree, under a lock for each cell; find the cells' masses and centres from the leaves up; share out the bodies by the
// cost of their forces in the last iteration (costzones); compute the forces on their bodies by walking the tree, which
// takes a distant cell for a single body; and move them. Medium-grain sharing: the tree is irregular, and a body's
// owner changes.
//
// Release consistency orders what is read under a lock or after a barrier, and nothing else. So a processor reads a
// cell's links under the cell's lock while the tree grows, and remembers (in private memory) which of them lead to
// cells, which does not change; the SPLASH program reads links without the lock.
//
// Variants, each with those before ([MGS], section 5.4 and Table 4). By default new cells come off one free list
// under one lock. `concurrent-alloc`: its entries belong to processors in turn, and no lock is needed.
// `distributed-freelist`: a processor's entries are neighbours in memory, at home on its node, and share no page with
// another's. `early-release`: a release before critical sections that are entered with many pages changed.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common.h"
#include "vec.h"

namespace {

using namespace workloads;

// The SPLASH program's parameters, in units in which the bodies' mass and the constant of gravity are 1.
constexpr double kTimeStep = 0.025;
constexpr double kSoftening = 0.05;
constexpr double kOpening = 1.0;  // a cell whose side is less than this times its distance is taken for one body

constexpr unsigned kChildren = 8;
constexpr unsigned kLevels = 30;  // bits of a coordinate

struct Body {
  Vec position;
  Vec velocity;  // half a time step behind the position, except at the start
  double mass;
  Vec acceleration;
  double potential;
  uint64_t cost;  // interactions in the last iteration
};

// What a cell has in an octant: nothing, a body or a cell.
using Link = uint32_t;
constexpr Link kNothing = 0;
constexpr Link kIsCell = Link{1} << 31;
bool leads_to_cell(Link link) {
  return (link & kIsCell) != 0;
}
Link link_to_cell(uint32_t cell) {
  return cell | kIsCell;
}
Link link_to_body(size_t body) {
  return static_cast<Link>(body + 1);
}
uint32_t cell_of(Link link) {
  return link & ~kIsCell;
}
size_t body_of(Link link) {
  return link - 1;
}

// A whole number of them is a page.
struct alignas(128) Cell {
  Link child[kChildren];
  Vec centre;  // of mass
  double mass;
  uint64_t cost;
  uint32_t parent;
  uint32_t arrived;  // children that are cells and have their masses
};
constexpr uint32_t kRoot = 0;

// The sums of one iteration. They begin as zeros and are used once, so nobody has to clear them.
struct Sums {
  double kinetic;
  double potential;
  unsigned parts;  // that are in low and high
  Vec low, high;   // the corners of the box around all bodies at the start of the iteration
};

enum class FreeList { kShared, kConcurrent, kDistributed };

// Bodies, tree and sums, and the ways to work on a part; the same code runs on shared and on private memory.
struct System {
  size_t bodies;
  unsigned processors;
  FreeList free_list;
  bool early_release;
  uint32_t cells_of_processor;
  Body* body;
  Cell* cell;
  uint32_t* taken;        // cells off the shared list
  Sums* sums;             // one an iteration, and one for the box after the last
  const mg_lock_t* lock;  // one a cell
  mg_lock_t list_lock;
  mg_lock_t sums_lock;
  [[nodiscard]] uint32_t cells() const { return processors * cells_of_processor; }
};

// Written by main() before the processors start.
System shared;
unsigned iterations;
uint64_t seed;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

void synchronise(const System& system) {
  if (system.processors > 1) mg_barrier(barrier);
}

// None if only one processor works.
Holding hold(const System& system, mg_lock_t lock) {
  return Holding(system.processors > 1 ? lock : 0);
}

// Before a critical section that is entered with many pages changed: else their coherence is a part of it.
void release_early(const System& system) {
  if (system.early_release && system.processors > 1) mg_release();
}

// --- The bodies --------------------------------------------------------------------------------------------------

Vec random_direction(uint64_t index) {
  const double z = 2 * random_unit(seed, index) - 1;
  const double angle = 2 * M_PI * random_unit(seed, index + 1);
  const double across = std::sqrt(1 - z * z);
  return {across * std::cos(angle), across * std::sin(angle), z};
}

// Plummer's model of a star cluster, in virial units (Aarseth, Henon and Wielen, "A comparison of numerical methods
// for the study of star cluster dynamics").
Body random_body(size_t bodies, size_t b) {
  constexpr uint64_t kRandomsOfBody = 1024;
  constexpr double kScale = 3 * M_PI / 16;
  constexpr double kMassFraction = 0.999;  // without the few that are very far away
  uint64_t index = b * kRandomsOfBody;
  const double inner_mass = kMassFraction * (1 - random_unit(seed, index++));
  const double radius = 1 / std::sqrt(std::pow(inner_mass, -2.0 / 3.0) - 1);
  const Vec at = random_direction(index);
  index += 2;
  // Velocity as a part of the velocity of escape, by rejection.
  double part;
  double height;
  do {
    part = random_unit(seed, index++);
    height = 0.1 * random_unit(seed, index++);
  } while (height > part * part * std::pow(1 - part * part, 3.5) && index % kRandomsOfBody < kRandomsOfBody - 4);
  const double speed = part * std::sqrt(2.0) / std::pow(1 + radius * radius, 0.25);
  Body body{};
  body.mass = 1 / static_cast<double>(bodies);
  body.position = kScale * radius * at;
  body.velocity = (speed / std::sqrt(kScale)) * random_direction(index);
  body.cost = 1;
  return body;
}

// --- The tree ----------------------------------------------------------------------------------------------------

// The cube that the root stands for.
struct Cube {
  Vec low;
  double side;
};

Cube cube_around(const Sums& sums) {
  const Vec extent = sums.high - sums.low;
  const double side = std::max({extent.x, extent.y, extent.z, 1e-9}) * 1.0001;
  const Vec middle = 0.5 * (sums.low + sums.high);
  return {middle - 0.5 * side * Vec{1, 1, 1}, side};
}

// Where a body is in the cube, in units of the smallest cells.
struct Place {
  uint32_t x, y, z;
};
Place place_of(const Cube& cube, const Vec& position) {
  const double scale = static_cast<double>(uint32_t{1} << kLevels) / cube.side;
  const Vec from_corner = scale * (position - cube.low);
  return {static_cast<uint32_t>(from_corner.x), static_cast<uint32_t>(from_corner.y),
          static_cast<uint32_t>(from_corner.z)};
}
// The octant of a cell at this level, the root's being 0, that has the place.
unsigned octant_of(const Place& place, unsigned level) {
  const unsigned bit = kLevels - 1 - level;
  return (place.x >> bit & 1) << 2 | (place.y >> bit & 1) << 1 | (place.z >> bit & 1);
}

// What is one processor's, in private memory.
struct Part {
  explicit Part(const System& system, unsigned number_of_processor)
      : processor(number_of_processor), known(size_t{kChildren} * system.cells(), kNothing) {
    for (size_t b = system.bodies * processor / system.processors;
         b < system.bodies * (processor + 1) / system.processors; ++b)
      bodies.push_back(b);
  }
  unsigned processor;
  std::vector<size_t> bodies;   // that it works on
  std::vector<uint32_t> cells;  // that it made in this iteration; processor 0's begin with the root
  std::vector<Link> known;      // links that lead to cells: [kChildren * cell + octant]
  std::vector<size_t> learned;  // where in `known` there is something
  std::vector<uint64_t> costs;  // of `bodies`, in this iteration
};

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "barnes: %s\n", why);
  std::exit(kCheckFailed);
}

void make_cell(const System& system, Part& part, uint32_t cell, uint32_t parent) {
  system.cell[cell] = {};
  system.cell[cell].parent = parent;
  part.cells.push_back(cell);
}

uint32_t allocate_cell(const System& system, Part& part, uint32_t parent) {
  const uint32_t processors = system.processors;
  // How many cells are gone of the caller's entries: of the root's owner, one more than it looks.
  const auto mine = static_cast<uint32_t>(part.cells.size());
  uint32_t cell;
  uint32_t limit;
  if (system.free_list == FreeList::kShared) {
    const Holding holding = hold(system, system.list_lock);
    cell = ++*system.taken;
    limit = system.cells();
  } else if (system.free_list == FreeList::kConcurrent) {
    cell = part.processor + processors * mine;
    limit = system.cells();
  } else {
    cell = part.processor * system.cells_of_processor + mine;
    limit = (part.processor + 1) * system.cells_of_processor;
  }
  if (cell >= limit) give_up("the free list is used up: the bodies are too unevenly distributed");
  make_cell(system, part, cell, parent);
  return cell;
}

void load_body(const System& system, Part& part, const Cube& cube, size_t body) {
  const Place place = place_of(cube, system.body[body].position);
  uint32_t cell = kRoot;
  for (unsigned level = 0; level < kLevels; ++level) {
    const unsigned octant = octant_of(place, level);
    const size_t here = size_t{kChildren} * cell + octant;
    if (part.known[here] == kNothing) {
      const Holding holding = hold(system, system.lock[cell]);
      Link& link = system.cell[cell].child[octant];
      if (link == kNothing) {
        link = link_to_body(body);
        return;
      }
      if (!leads_to_cell(link)) {
        // Two bodies in one octant: a new cell takes the one that was there.
        if (level + 1 == kLevels) break;
        const uint32_t inner = allocate_cell(system, part, cell);
        const Place other = place_of(cube, system.body[body_of(link)].position);
        system.cell[inner].child[octant_of(other, level + 1)] = link;
        link = link_to_cell(inner);
      }
      part.known[here] = link;
      part.learned.push_back(here);
    }
    cell = cell_of(part.known[here]);
  }
  give_up("two bodies are too close to be told apart");
}

// Mass, centre and cost of a cell whose children have theirs.
void weigh(const System& system, Cell& cell) {
  Vec moment{};
  double mass = 0;
  uint64_t cost = 0;
  for (const Link link : cell.child) {
    if (link == kNothing) continue;
    const Cell* const inner = leads_to_cell(link) ? &system.cell[cell_of(link)] : nullptr;
    const Body* const body = inner == nullptr ? &system.body[body_of(link)] : nullptr;
    const double weight = inner != nullptr ? inner->mass : body->mass;
    moment = moment + weight * (inner != nullptr ? inner->centre : body->position);
    mass += weight;
    cost += inner != nullptr ? inner->cost : body->cost;
  }
  cell.mass = mass;
  cell.centre = (1 / mass) * moment;
  cell.cost = cost;
}

uint32_t inner_cells(const Cell& cell) {
  return static_cast<uint32_t>(std::count_if(std::begin(cell.child), std::end(cell.child), leads_to_cell));
}

// From the leaves to the root. Who weighs the last child of a cell goes on with that cell; sums are made in the order
// of octants, so they do not depend on who that is.
void weigh_tree(const System& system, const Part& part) {
  std::vector<uint32_t> leaves;
  for (const uint32_t cell : part.cells) {
    if (inner_cells(system.cell[cell]) != 0) continue;
    weigh(system, system.cell[cell]);
    leaves.push_back(cell);
  }
  release_early(system);
  for (uint32_t cell : leaves) {
    while (cell != kRoot) {
      cell = system.cell[cell].parent;
      Cell& parent = system.cell[cell];
      bool last;
      {
        const Holding holding = hold(system, system.lock[cell]);
        last = ++parent.arrived == inner_cells(parent);
      }
      if (!last) break;
      weigh(system, parent);
    }
  }
}

// Costzones: the bodies are in the order in which the tree has them, and a processor takes those at which the costs of
// all before are in its share of the total.
void find_bodies(const System& system, Part& part, uint32_t cell, uint64_t before, uint64_t first, uint64_t last) {
  for (const Link link : system.cell[cell].child) {
    if (link == kNothing) continue;
    if (before >= last) return;
    const uint64_t cost = leads_to_cell(link) ? system.cell[cell_of(link)].cost : system.body[body_of(link)].cost;
    if (leads_to_cell(link)) {
      if (before + cost > first) find_bodies(system, part, cell_of(link), before, first, last);
    } else if (before >= first) {
      part.bodies.push_back(body_of(link));
    }
    before += cost;
  }
}

// --- Forces and motion -------------------------------------------------------------------------------------------

struct Force {
  Vec acceleration;
  double potential;
  uint64_t interactions;
};

void attract(Force& force, const Vec& apart, double mass) {
  const double squared = dot(apart, apart) + kSoftening * kSoftening;
  const double potential = mass / std::sqrt(squared);
  force.potential -= potential;
  force.acceleration = force.acceleration + (potential / squared) * apart;
  ++force.interactions;
}

void add_forces(const System& system, size_t body, const Vec& at, uint32_t cell, double side, Force& force) {
  for (const Link link : system.cell[cell].child) {
    if (link == kNothing) continue;
    if (!leads_to_cell(link)) {
      const Body& other = system.body[body_of(link)];
      if (body_of(link) != body) attract(force, other.position - at, other.mass);
      continue;
    }
    const Cell& inner = system.cell[cell_of(link)];
    const Vec apart = inner.centre - at;
    const double inner_side = 0.5 * side;
    if (inner_side * inner_side < kOpening * kOpening * dot(apart, apart))
      attract(force, apart, inner.mass);
    else
      add_forces(system, body, at, cell_of(link), inner_side, force);
  }
}

void add_to_box(Sums& box, const Vec& low, const Vec& high) {
  const bool first = box.parts++ == 0;
  box.low = first ? low : Vec{std::min(box.low.x, low.x), std::min(box.low.y, low.y), std::min(box.low.z, low.z)};
  box.high =
      first ? high : Vec{std::max(box.high.x, high.x), std::max(box.high.y, high.y), std::max(box.high.z, high.z)};
}

// Adds the energies of the caller's bodies to this iteration's sums, and their places to the next one's.
void merge(const System& system, unsigned t, const Sums& energies, const Sums& box) {
  const Holding holding = hold(system, system.sums_lock);
  system.sums[t].kinetic += energies.kinetic;
  system.sums[t].potential += energies.potential;
  if (box.parts != 0) add_to_box(system.sums[t + 1], box.low, box.high);
}

// Moves the caller's bodies, whose forces are known, by a time step (leapfrog).
void advance(const System& system, const Part& part, unsigned t) {
  Sums energies{};
  Sums box{};
  for (size_t i = 0; i < part.bodies.size(); ++i) {
    Body& body = system.body[part.bodies[i]];
    const Vec half = (0.5 * kTimeStep) * body.acceleration;
    // The first velocities are of the same time as the positions.
    const Vec now = t == 0 ? body.velocity : body.velocity + half;
    energies.kinetic += 0.5 * body.mass * dot(now, now);
    energies.potential += 0.5 * body.mass * body.potential;
    body.velocity = now + half;
    body.position = body.position + kTimeStep * body.velocity;
    body.cost = part.costs[i];
    add_to_box(box, body.position, body.position);
  }
  release_early(system);
  merge(system, t, energies, box);
}

// Forgets the tree. All have to be done with it; another may be made after a barrier.
void forget_tree(const System& system, Part& part) {
  for (const size_t here : part.learned) part.known[here] = kNothing;
  part.learned.clear();
  part.cells.clear();
  if (part.processor != 0) return;
  *system.taken = 0;
  make_cell(system, part, kRoot, kRoot);
}

// The bodies that are the caller's at first, the box around them, and an empty tree.
void prepare(const System& system, Part& part) {
  Sums box{};
  for (const size_t b : part.bodies) {
    system.body[b] = random_body(system.bodies, b);
    add_to_box(box, system.body[b].position, system.body[b].position);
  }
  {
    const Holding holding = hold(system, system.sums_lock);
    if (box.parts != 0) add_to_box(system.sums[0], box.low, box.high);
  }
  forget_tree(system, part);
}

// All processors call it together, after a barrier.
void simulate(const System& system, Part& part) {
  for (unsigned t = 0; t < iterations; ++t) {
    const Cube cube = cube_around(system.sums[t]);
    for (const size_t b : part.bodies) load_body(system, part, cube, b);
    synchronise(system);
    weigh_tree(system, part);
    synchronise(system);
    const uint64_t total = system.cell[kRoot].cost;
    part.bodies.clear();
    find_bodies(system, part, kRoot, 0, total * part.processor / system.processors,
                total * (part.processor + 1) / system.processors);
    part.costs.clear();
    for (const size_t b : part.bodies) {
      Force force{};
      add_forces(system, b, system.body[b].position, kRoot, cube.side, force);
      system.body[b].acceleration = force.acceleration;
      system.body[b].potential = force.potential;
      part.costs.push_back(std::max<uint64_t>(force.interactions, 1));
    }
    synchronise(system);
    advance(system, part, t);
    forget_tree(system, part);
    synchronise(system);
  }
}

void slave(void*) {
  Part part(shared, mg_processor());
  prepare(shared, part);
  const uint64_t start = start_measuring(barrier);
  simulate(shared, part);
  if (mg_processor() == 0) elapsed = stop_measuring(start);
}

// --- Results -----------------------------------------------------------------------------------------------------

double energy(const Sums& sums) {
  return sums.kinetic + sums.potential;
}

// By how much the accelerations of some bodies are off, against sums over all bodies; root of mean squares, relative.
double error_of_forces(const System& system) {
  // They belong to the positions before the last time step.
  std::vector<Vec> at(system.bodies);
  for (size_t b = 0; b < system.bodies; ++b) at[b] = system.body[b].position - kTimeStep * system.body[b].velocity;
  const size_t step = (system.bodies + 511) / 512;
  double error = 0;
  double size = 0;
  for (size_t b = 0; b < system.bodies; b += step) {
    Force exact{};
    for (size_t other = 0; other < system.bodies; ++other)
      if (other != b) attract(exact, at[other] - at[b], system.body[other].mass);
    const Vec off = system.body[b].acceleration - exact.acceleration;
    error += dot(off, off);
    size += dot(exact.acceleration, exact.acceleration);
  }
  return std::sqrt(error / size);
}

// Against the sequential run, to the last bit: the tree does not depend on the order in which bodies come to it, nor
// the forces on who computes them. Energies are added in the order in which processors come, so rounding parts them.
int check(const System& result, const System& expected) {
  for (size_t b = 0; b < result.bodies; ++b) {
    if (std::memcmp(&result.body[b], &expected.body[b], sizeof(Body)) != 0)
      return print_check(false, "body " + std::to_string(b) + " differs from the sequential run's");
  }
  const double start = energy(result.sums[0]);
  const double end = energy(result.sums[iterations - 1]);
  const double rounding = std::abs(end - energy(expected.sums[iterations - 1])) / std::abs(end);
  const double drift = std::abs(end - start) / std::abs(start);
  const double error = error_of_forces(result);
  char text[200];
  std::snprintf(text, sizeof text,
                "bodies equal the sequential run's, energy by %.1e, which drifts by %.1e; forces are off by %.1e",
                rounding, drift, error);
  return print_check(rounding < 1e-12 && drift < 0.02 && error < 0.1, text);
}

// The sequential version. Returns its time.
uint64_t run_sequentially(System& alone, std::vector<Body>& bodies, std::vector<Cell>& cells, std::vector<Sums>& sums) {
  uint32_t taken = 0;
  std::vector<mg_lock_t> no_locks;
  bodies.resize(alone.bodies);
  cells.resize(alone.bodies + mg_page_size() / sizeof(Cell));
  sums.resize(iterations + 1);
  alone.processors = 1;
  alone.free_list = FreeList::kDistributed;
  alone.cells_of_processor = static_cast<uint32_t>(cells.size());
  alone.body = bodies.data();
  alone.cell = cells.data();
  alone.sums = sums.data();
  alone.taken = &taken;
  no_locks.resize(cells.size());
  alone.lock = no_locks.data();
  Part part(alone, 0);
  prepare(alone, part);
  const uint64_t start = mg_time_ns();
  simulate(alone, part);
  return mg_time_ns() - start;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("The Barnes-Hut simulation of gravity on Multigrain", "barnes");
  size_t given_bodies = 0;
  app.add_number("-n,--bodies", given_bodies, "bodies (test 256, paper 2048, large 16384)", 2, 1'000'000);
  std::string variant;
  add_variants(app, variant, {"concurrent-alloc", "distributed-freelist", "early-release"});
  const Options options = parse_command_line(app, argc, argv);
  shared.bodies = choose<size_t>(options, given_bodies, 256, 2048, 16384);
  iterations = choose(options, options.iterations, 2u, 3u, 3u);
  seed = options.seed;
  shared.processors = mg_processors();
  shared.early_release = variant == "early-release";
  shared.free_list = variant == "original"           ? FreeList::kShared
                     : variant == "concurrent-alloc" ? FreeList::kConcurrent
                                                     : FreeList::kDistributed;
  // Trees have about half as many cells as bodies. Processors have different numbers of bodies, and bodies of cells: so
  // there is room for eight times that, and some more. It is used only where cells are.
  const size_t page_cells = mg_page_size() / sizeof(Cell);
  const size_t cells_wanted = std::min(shared.bodies, 4 * shared.bodies / shared.processors + 256);
  shared.cells_of_processor = static_cast<uint32_t>((cells_wanted + page_cells) / page_cells * page_cells);
  shared.body = allocate_shared<Body>(shared.bodies, MG_HOME_BLOCKED);
  shared.cell = allocate_shared<Cell>(shared.cells(),
                                      shared.free_list == FreeList::kDistributed ? MG_HOME_BLOCKED : MG_HOME_DEFAULT);
  shared.taken = allocate_shared<uint32_t>(1);
  shared.sums = allocate_shared<Sums>(iterations + 1);
  std::vector<mg_lock_t> locks(shared.cells());
  for (mg_lock_t& lock : locks) lock = mg_lock_create();
  shared.lock = locks.data();
  shared.list_lock = mg_lock_create();
  shared.sums_lock = mg_lock_create();
  barrier = mg_barrier_create(0);

  print_header("barnes",
               std::to_string(shared.bodies) + " bodies, " + std::to_string(iterations) + " iterations, " + variant);
  run_on_all(slave);
  print_parallel(elapsed, energy(shared.sums[iterations - 1]));

  int status = 0;
  if (options.speedup || options.check) {
    System alone = shared;
    std::vector<Body> bodies;
    std::vector<Cell> cells;
    std::vector<Sums> sums;
    const uint64_t sequential = run_sequentially(alone, bodies, cells, sums);
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(shared, alone);
  }
  mg_barrier_destroy(barrier);
  mg_lock_destroy(shared.sums_lock);
  mg_lock_destroy(shared.list_lock);
  for (const mg_lock_t lock : locks) mg_lock_destroy(lock);
  mg_free(shared.sums);
  mg_free(shared.taken);
  mg_free(shared.cell);
  mg_free(shared.body);
  return status;
}
