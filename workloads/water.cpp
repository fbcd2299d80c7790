// Water: forces and potentials in a system of flexible water molecules over time, in the liquid state
// ([MGS], section 5.2; the n-squared kind of the SPLASH programs).
//
// A molecule is three atoms (O, H, H) held by springs along its three sides. Molecules interact through the charges of
// their atoms and a Lennard-Jones potential between oxygens, in a cubic box with periodic boundaries, up to a cutoff
// of half its side, where the interaction is switched off smoothly: so total energy is conserved, which is the check.
// Newton's equations are integrated by Gear's sixth-order predictor-corrector method.
//
// A processor owns a contiguous part of the molecules. For each of its own it computes the forces between that one and
// the half of all others that follow it in a circle, gathers them in private memory, and adds them to the molecules
// under a lock for each molecule: medium-grain sharing, all to all. The variant "pairwise" adds the forces of each pair to both
// molecules at once, as the first SPLASH's program does: a lock is taken twice a pair.
#include <cmath>
#include <string>
#include <vector>

#include "common.h"
#include "water_forces.h"
#include "water_motion.h"

namespace {

using namespace workloads;
using namespace workloads::water;

// Written by main() before the processors start.
System shared;
unsigned iterations;
uint64_t elapsed;  // processor 0's, on main()'s node; so are the energies
Sums sums_at_start;
Sums sums_at_end;

void sum_motion(const System& system, Range mine) {
  Sums motion{};
  for (size_t m = mine.first; m < mine.last; ++m) add_motion(system.molecule[m], motion);
  add_to_sums(system, motion);
}

// Initial positions, velocities and accelerations of the caller's molecules, and the energies that belong to them.
void prepare(const System& system, Range mine, bool first, std::vector<Forces>& gathered) {
  for (size_t m = mine.first; m < mine.last; ++m) initialise(system, m, system.molecule[m]);
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
  const uint64_t start = start_measuring(shared.barrier);
  simulate(shared, mine, first, gathered);
  if (first) {
    elapsed = stop_measuring(start);
    sums_at_end = *shared.sums;
  }
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
      keep_worst(apart, std::sqrt(dot(difference, difference)));
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
  CommandLine app("Molecular dynamics of water, n-squared, on Multigrain", "water");
  size_t given_molecules = 0;
  app.add_number("-n,--molecules", given_molecules, "molecules (test 64, paper 343, large 1728)", 8, 1'000'000);
  std::string variant;
  add_variants(app, variant, {"pairwise"});
  const Options options = parse_command_line(app, argc, argv);
  shared.pairwise = variant == "pairwise";
  shared.molecules = choose<size_t>(options, given_molecules, 64, 343, 1728);
  shared.side = std::cbrt(kVolumeOfMolecule * static_cast<double>(shared.molecules));
  shared.cutoff = shared.side / 2;
  iterations = choose(options, options.iterations, 3u, 2u, 2u);
  shared.seed = options.seed;
  shared.molecule = allocate_shared<Molecule>(shared.molecules, MG_HOME_BLOCKED);
  shared.sums = allocate_shared<Sums>(1);
  mg_lock_t* const locks = allocate_shared<mg_lock_t>(shared.molecules);
  for (size_t m = 0; m < shared.molecules; ++m) locks[m] = mg_lock_create();
  shared.lock = locks;
  shared.sums_lock = mg_lock_create();
  shared.barrier = mg_barrier_create(0);

  print_header("water", variant + ", " + std::to_string(shared.molecules) + " molecules, " +
                            std::to_string(iterations) + " iterations");
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
  mg_barrier_destroy(shared.barrier);
  mg_lock_destroy(shared.sums_lock);
  for (size_t m = 0; m < shared.molecules; ++m) mg_lock_destroy(locks[m]);
  mg_free(locks);
  mg_free(shared.sums);
  mg_free(shared.molecule);
  return status;
}
