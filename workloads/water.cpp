// Water: forces and potentials in a system of flexible water molecules over time, in the liquid state
// (mgs.txt, section 5.2; the n-squared kind of the SPLASH programs).
//
// A molecule is three atoms (O, H, H) held by springs along its three sides. Molecules interact through the charges of
// their atoms and a Lennard-Jones potential between oxygens, in a cubic box with periodic boundaries, up to a cutoff
// of half its side, where the interaction is switched off smoothly: so total energy is conserved, which is the check.
// Newton's equations are integrated by Gear's sixth-order predictor-corrector method.
//
// A processor owns a contiguous part of the molecules. For each of its own it computes the forces between that one and
// the half of all others that follow it in a circle, gathers them in private memory, and adds them to the molecules
// under a lock for each molecule: medium-grain sharing, all to all.
#include <cmath>
#include <memory>
#include <vector>

#include "common.h"

namespace {

using namespace workloads;

// Units: nanometre, picosecond, atomic mass; hence energy in kJ/mol. Charges and Lennard-Jones parameters are those of
// the SPC model (Berendsen and others, 1981), the springs those of its flexible variants.
constexpr double kMass[3] = {15.9994, 1.008, 1.008};
constexpr double kCharge[3] = {-0.82, 0.41, 0.41};
constexpr double kCoulomb = 138.935458;
constexpr double kLjEpsilon = 0.650;
constexpr double kLjSigma = 0.3166;
constexpr double kBondLength = 0.1;
constexpr double kBondSpring = 345000;
constexpr double kHydrogenDistance = 0.16330;
constexpr double kHydrogenSpring = 115000;
constexpr double kBoltzmann = 0.0083144626;
constexpr double kTemperature = 298;
constexpr double kVolumeOfMolecule = 0.02997;  // at 1 g/cm3
constexpr double kTimeStep = 0.0001;

// Position and its first six derivatives, each scaled by h^k / k!.
constexpr int kOrder = 7;
// Gear's corrector for second-order equations (Allen and Tildesley, appendix E).
constexpr double kCorrector[kOrder] = {863.0 / 6048, 665.0 / 1008, 1, 25.0 / 36, 35.0 / 144, 1.0 / 24, 1.0 / 360};

struct Vec {
  double x, y, z;
};
Vec operator+(Vec a, Vec b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
Vec operator-(Vec a, Vec b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
Vec operator*(double s, Vec a) {
  return {s * a.x, s * a.y, s * a.z};
}
double dot(Vec a, Vec b) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}

struct Forces {
  Vec on[3];  // O, H, H
};

struct Molecule {
  Vec atom[kOrder][3];
  Forces force;
};

// What all processors add to, under one lock.
struct Sums {
  double kinetic;
  double inside;   // potential energy of the springs
  double between;  // potential energy between molecules
  Vec momentum;
};

// A system of molecules and the ways to work on a part of it; the same code runs on shared and on private memory.
struct System {
  size_t molecules;
  double side;
  double cutoff;
  Molecule* molecule;
  Sums* sums;
  const mg_lock_t* lock;  // one a molecule; null for the sequential version
  mg_lock_t sums_lock;
};

// Written by main() before the processors start.
System shared;
unsigned iterations;
uint64_t seed;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node; so are the energies
Sums sums_at_start;
Sums sums_at_end;

// A number with the normal distribution, by Box and Muller.
double random_normal(uint64_t index) {
  const double u = 1 - random_unit(seed, 2 * index);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * random_unit(seed, 2 * index + 1));
}

// A molecule at its place of a cubic lattice, turned at random, with thermal velocities.
void initialise(const System& system, size_t m) {
  constexpr uint64_t kRandomsOfMolecule = 16;
  const size_t edge = static_cast<size_t>(std::ceil(std::cbrt(static_cast<double>(system.molecules))));
  const double spacing = system.side / static_cast<double>(edge);
  Molecule& molecule = system.molecule[m];
  molecule = {};
  const Vec oxygen = {spacing * (static_cast<double>(m % edge) + 0.5),
                      spacing * (static_cast<double>(m / edge % edge) + 0.5),
                      spacing * (static_cast<double>(m / edge / edge) + 0.5)};
  // Two random vectors, made orthogonal, span the plane of the molecule.
  const uint64_t base = m * kRandomsOfMolecule;
  Vec axis = {random_normal(base), random_normal(base + 1), random_normal(base + 2)};
  axis = (1 / std::sqrt(dot(axis, axis))) * axis;
  Vec across = {random_normal(base + 3), random_normal(base + 4), random_normal(base + 5)};
  across = across - dot(across, axis) * axis;
  across = (1 / std::sqrt(dot(across, across))) * across;
  const double half = kHydrogenDistance / 2;
  const double height = std::sqrt(kBondLength * kBondLength - half * half);
  molecule.atom[0][0] = oxygen;
  molecule.atom[0][1] = oxygen + height * axis + half * across;
  molecule.atom[0][2] = oxygen + height * axis - half * across;
  for (uint64_t a = 0; a < 3; ++a) {
    const double speed = kTimeStep * std::sqrt(kBoltzmann * kTemperature / kMass[a]);
    const uint64_t first = base + 6 + 3 * a;
    molecule.atom[1][a] = speed * Vec{random_normal(first), random_normal(first + 1), random_normal(first + 2)};
  }
}

void predict(Molecule& molecule) {
  // Pascal's triangle by repeated addition: Gear's Taylor prediction in scaled derivatives.
  for (int k = 0; k < kOrder - 1; ++k)
    for (int d = kOrder - 2; d >= k; --d)
      for (int a = 0; a < 3; ++a) molecule.atom[d][a] = molecule.atom[d][a] + molecule.atom[d + 1][a];
}

// The scaled second derivative that the forces ask for.
Vec wanted_acceleration(const Molecule& molecule, int a) {
  return (0.5 * kTimeStep * kTimeStep / kMass[a]) * molecule.force.on[a];
}

void correct(Molecule& molecule) {
  for (int a = 0; a < 3; ++a) {
    const Vec error = wanted_acceleration(molecule, a) - molecule.atom[2][a];
    for (int d = 0; d < kOrder; ++d) molecule.atom[d][a] = molecule.atom[d][a] + kCorrector[d] * error;
  }
}

// Molecules whose oxygen has left the box come back on the other side, whole.
void apply_boundary(const System& system, Molecule& molecule) {
  const Vec oxygen = molecule.atom[0][0];
  const double side = system.side;
  const Vec shift = {side * std::floor(oxygen.x / side), side * std::floor(oxygen.y / side),
                     side * std::floor(oxygen.z / side)};
  for (Vec& position : molecule.atom[0]) position = position - shift;
}

// A spring between two atoms of a molecule. Returns its energy.
double stretch(const Molecule& molecule, Forces& forces, int a, int b, double length, double stiffness) {
  const Vec apart = molecule.atom[0][a] - molecule.atom[0][b];
  const double distance = std::sqrt(dot(apart, apart));
  const double too_long = distance - length;
  const Vec force = (-stiffness * too_long / distance) * apart;
  forces.on[a] = forces.on[a] + force;
  forces.on[b] = forces.on[b] - force;
  return 0.5 * stiffness * too_long * too_long;
}

double forces_inside(const Molecule& molecule, Forces& forces) {
  return stretch(molecule, forces, 0, 1, kBondLength, kBondSpring) +
         stretch(molecule, forces, 0, 2, kBondLength, kBondSpring) +
         stretch(molecule, forces, 1, 2, kHydrogenDistance, kHydrogenSpring);
}

// The forces between two molecules. Returns their energy, 0 beyond the cutoff.
double forces_between(const System& system, const Molecule& m, const Molecule& n, Forces& on_m, Forces& on_n) {
  const double side = system.side;
  const Vec direct = m.atom[0][0] - n.atom[0][0];
  const Vec image = {side * std::round(direct.x / side), side * std::round(direct.y / side),
                     side * std::round(direct.z / side)};
  const Vec apart = direct - image;
  const double squared = dot(apart, apart);
  if (squared >= system.cutoff * system.cutoff) return 0;

  double energy = 0;
  Forces pair{};  // on m; n has the opposite
  Forces opposite{};
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      const Vec r = m.atom[0][a] - n.atom[0][b] - image;
      const double r2 = dot(r, r);
      const double coulomb = kCoulomb * kCharge[a] * kCharge[b] / std::sqrt(r2);
      const Vec force = (coulomb / r2) * r;
      energy += coulomb;
      pair.on[a] = pair.on[a] + force;
      opposite.on[b] = opposite.on[b] - force;
    }
  }
  const double s6 = std::pow(kLjSigma * kLjSigma / squared, 3);
  energy += 4 * kLjEpsilon * (s6 * s6 - s6);
  const Vec repulsion = (24 * kLjEpsilon * (2 * s6 * s6 - s6) / squared) * apart;
  pair.on[0] = pair.on[0] + repulsion;
  opposite.on[0] = opposite.on[0] - repulsion;

  // The switch falls from 1 to 0 in the last tenth before the cutoff, with zero first and second derivatives at both
  // ends. It multiplies the energy, so its slope is a force between the oxygens.
  const double distance = std::sqrt(squared);
  const double width = 0.1 * system.cutoff;
  const double t = (distance - (system.cutoff - width)) / width;
  double factor = 1;
  Vec switching{};
  if (t > 0) {
    factor = 1 - t * t * t * (10 - 15 * t + 6 * t * t);
    const double slope = -30 * t * t * (1 - t) * (1 - t) / width;
    switching = (-energy * slope / distance) * apart;
  }
  for (int a = 0; a < 3; ++a) {
    on_m.on[a] = on_m.on[a] + factor * pair.on[a];
    on_n.on[a] = on_n.on[a] + factor * opposite.on[a];
  }
  on_m.on[0] = on_m.on[0] + switching;
  on_n.on[0] = on_n.on[0] - switching;
  return factor * energy;
}

void synchronise(const System& system) {
  if (system.lock != nullptr) mg_barrier(barrier);
}

// Computes all forces. `mine` is the caller's part; `gathered` has one entry a molecule and is private to the caller.
// All processors call it together. Their forces are complete when it returns.
void compute_forces(const System& system, Range mine, std::vector<Forces>& gathered) {
  double inside = 0;
  double between = 0;
  for (Forces& forces : gathered) forces = {};
  for (size_t m = mine.first; m < mine.last; ++m) system.molecule[m].force = {};
  synchronise(system);

  const size_t count = system.molecules;
  for (size_t m = mine.first; m < mine.last; ++m) {
    inside += forces_inside(system.molecule[m], gathered[m]);
    // Each pair once: the half of the circle that follows. When the number is even, opposites meet from one side only.
    const size_t partners = count % 2 == 0 ? count / 2 - (m >= count / 2 ? 1 : 0) : count / 2;
    for (size_t k = 1; k <= partners; ++k) {
      const size_t other = (m + k) % count;
      between += forces_between(system, system.molecule[m], system.molecule[other], gathered[m], gathered[other]);
    }
  }

  // Beginning with its own, so that processors do not queue for the same molecules in the same order.
  for (size_t k = 0; k < count; ++k) {
    const size_t m = (mine.first + k) % count;
    const Forces& part = gathered[m];
    bool touched = false;
    for (const Vec& force : part.on) touched |= force.x != 0 || force.y != 0 || force.z != 0;
    if (!touched) continue;
    if (system.lock != nullptr) mg_lock(system.lock[m]);
    for (int a = 0; a < 3; ++a) system.molecule[m].force.on[a] = system.molecule[m].force.on[a] + part.on[a];
    if (system.lock != nullptr) mg_unlock(system.lock[m]);
  }
  if (system.lock != nullptr) mg_lock(system.sums_lock);
  system.sums->inside += inside;
  system.sums->between += between;
  if (system.lock != nullptr) mg_unlock(system.sums_lock);
  synchronise(system);
}

void sum_motion(const System& system, Range mine) {
  double kinetic = 0;
  Vec momentum{};
  for (size_t m = mine.first; m < mine.last; ++m) {
    for (int a = 0; a < 3; ++a) {
      const Vec velocity = (1 / kTimeStep) * system.molecule[m].atom[1][a];
      kinetic += 0.5 * kMass[a] * dot(velocity, velocity);
      momentum = momentum + kMass[a] * velocity;
    }
  }
  if (system.lock != nullptr) mg_lock(system.sums_lock);
  system.sums->kinetic += kinetic;
  system.sums->momentum = system.sums->momentum + momentum;
  if (system.lock != nullptr) mg_unlock(system.sums_lock);
}

void clear_sums(const System& system, bool first) {
  synchronise(system);
  if (first) *system.sums = {};
  synchronise(system);
}

// Initial positions, velocities and accelerations of the caller's molecules, and the energies that belong to them.
void prepare(const System& system, Range mine, bool first, std::vector<Forces>& gathered) {
  for (size_t m = mine.first; m < mine.last; ++m) initialise(system, m);
  clear_sums(system, first);
  compute_forces(system, mine, gathered);
  for (size_t m = mine.first; m < mine.last; ++m)
    for (int a = 0; a < 3; ++a) system.molecule[m].atom[2][a] = wanted_acceleration(system.molecule[m], a);
  sum_motion(system, mine);
  synchronise(system);
}

void simulate(const System& system, Range mine, bool first, std::vector<Forces>& gathered) {
  for (unsigned t = 0; t < iterations; ++t) {
    for (size_t m = mine.first; m < mine.last; ++m) predict(system.molecule[m]);
    clear_sums(system, first);
    compute_forces(system, mine, gathered);
    for (size_t m = mine.first; m < mine.last; ++m) {
      correct(system.molecule[m]);
      apply_boundary(system, system.molecule[m]);
    }
    sum_motion(system, mine);
    synchronise(system);
  }
}

void slave(void*) {
  const bool first = mg_processor() == 0;
  const Range mine = share_of(mg_processor(), shared.molecules);
  std::vector<Forces> gathered(shared.molecules);
  prepare(shared, mine, first, gathered);
  if (first) sums_at_start = *shared.sums;
  const uint64_t start = start_measuring(barrier);
  simulate(shared, mine, first, gathered);
  if (first) {
    elapsed = mg_time_ns() - start;
    sums_at_end = *shared.sums;
  }
}

double total(const Sums& sums) {
  return sums.kinetic + sums.inside + sums.between;
}

// Against the invariants of the physics and against the sequential run, from which rounding may part it: forces are
// added in the order in which processors come to them.
int check(const System& expected) {
  char text[200];
  const double drift = std::abs(total(sums_at_end) - total(sums_at_start)) / sums_at_start.kinetic;
  const Vec change = sums_at_end.momentum - sums_at_start.momentum;
  const double push = std::sqrt(dot(change, change)) / (static_cast<double>(shared.molecules) * kMass[0]);
  double apart = 0;
  for (size_t m = 0; m < shared.molecules; ++m) {
    for (int a = 0; a < 3; ++a) {
      const Vec difference = shared.molecule[m].atom[0][a] - expected.molecule[m].atom[0][a];
      apart = std::max(apart, std::sqrt(dot(difference, difference)));
    }
  }
  std::snprintf(text, sizeof text,
                "energy drifts by %.1e of the kinetic energy, mean momentum by %.1e, atoms are %.1e nm from the "
                "sequential run's",
                drift, push, apart);
  return print_check(drift < 1e-3 && push < 1e-9 && apart < 1e-9, text);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Molecular dynamics of water, n-squared, on Multigrain", "water");
  size_t given_molecules = 0;
  app.add_option("-n,--molecules", given_molecules, "molecules (test 64, paper 343, large 1728)")
      ->check(CLI::Range(size_t{8}, size_t{1'000'000}));
  const Options options = parse_command_line(app, argc, argv);
  shared.molecules = choose<size_t>(options, given_molecules, 64, 343, 1728);
  shared.side = std::cbrt(kVolumeOfMolecule * static_cast<double>(shared.molecules));
  shared.cutoff = shared.side / 2;
  iterations = choose(options, options.iterations, 3u, 2u, 2u);
  seed = options.seed;
  shared.molecule = allocate_shared<Molecule>(shared.molecules, MG_HOME_BLOCKED);
  shared.sums = allocate_shared<Sums>(1);
  mg_lock_t* const locks = allocate_shared<mg_lock_t>(shared.molecules);
  for (size_t m = 0; m < shared.molecules; ++m) locks[m] = mg_lock_create();
  shared.lock = locks;
  shared.sums_lock = mg_lock_create();
  barrier = mg_barrier_create(0);

  print_header("water", std::to_string(shared.molecules) + " molecules, " + std::to_string(iterations) + " iterations");
  run_on_all(slave);
  print_parallel(elapsed, total(sums_at_end));

  int status = 0;
  if (options.speedup || options.check) {
    Sums sums{};
    std::vector<Molecule> molecules(shared.molecules);
    System alone = shared;
    alone.molecule = molecules.data();
    alone.sums = &sums;
    alone.lock = nullptr;
    const Range all = {0, alone.molecules};
    std::vector<Forces> gathered(alone.molecules);
    prepare(alone, all, true, gathered);
    const uint64_t start = mg_time_ns();
    simulate(alone, all, true, gathered);
    const uint64_t sequential = mg_time_ns() - start;
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(alone);
  }
  mg_barrier_destroy(barrier);
  mg_lock_destroy(shared.sums_lock);
  for (size_t m = 0; m < shared.molecules; ++m) mg_lock_destroy(locks[m]);
  mg_free(locks);
  mg_free(shared.sums);
  mg_free(shared.molecule);
  return status;
}
