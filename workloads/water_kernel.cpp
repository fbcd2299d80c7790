// Water-kernel: the force interaction of water, where it spends most of its time and where all processors write what
// all others own ([MGS], section 5.4).
//
// original: as in water. A processor computes the forces between its own molecules and the half of all others that
// follow, gathers them in private memory, and adds them to the molecules under a lock for each molecule.
//
// tiled (Table 4, data locality): the molecules are cut into tiles, two for each SMP, and all interactions of a pair of
// tiles are computed before the next pair. Which SMP computes which pair when is known beforehand: the rounds of a
// tournament, in which every tile meets every other once and never has two SMPs at a time. So a page goes to one SMP
// a round, no lock is needed between SMPs, and the processors of an SMP gather in memory that hardware shares. Larger
// SMPs have larger tiles, fewer rounds and less to communicate.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common.h"
#include "smp.h"
#include "water_forces.h"

namespace {

using namespace workloads;
using namespace workloads::water;

// Written by main() before the processors start.
System shared;
unsigned iterations;
bool tiled;
size_t tile_bytes;  // of a tile's place: whole pages, so that tiles share none
uint64_t elapsed;   // processor 0's, on main()'s node

// Of one SMP: what each of its processors has gathered for a pair of tiles, first the one's molecules, then the
// other's.
std::vector<std::vector<Forces>> gathered_in_smp;
smp::Barrier smp_barrier;

size_t tiles() {
  return 2 * mg_nodes();
}
Range tile_range(size_t tile) {
  return {shared.molecules * tile / tiles(), shared.molecules * (tile + 1) / tiles()};
}
Molecule* tile_molecules(size_t tile) {
  return reinterpret_cast<Molecule*>(reinterpret_cast<char*>(shared.molecule) + tile * tile_bytes);
}

struct Pair {
  size_t first;
  size_t second;
};
// The two tiles of an SMP in a round: the last tile stays, the others move round the table by one seat a round.
Pair pair_of(size_t smp, size_t round) {
  const size_t seats = tiles() - 1;
  if (smp == 0) return {seats, round % seats};
  return {(round + smp) % seats, (round + seats - smp) % seats};
}

// A pair of tiles and the molecules in them, numbered through.
struct TilePair {
  Molecule* molecule[2];
  size_t count[2];
  explicit TilePair(Pair pair) : molecule{tile_molecules(pair.first), tile_molecules(pair.second)}, count{0, 0} {
    const Range first = tile_range(pair.first);
    const Range second = tile_range(pair.second);
    count[0] = first.last - first.first;
    count[1] = second.last - second.first;
  }
  [[nodiscard]] size_t size() const { return count[0] + count[1]; }
  Molecule& operator[](size_t m) const { return m < count[0] ? molecule[0][m] : molecule[1][m - count[0]]; }
};

// The part of `count` that is the caller's among the processors of its SMP.
Range share_in_smp(size_t count) {
  const size_t processors = mg_processors_per_node();
  const size_t rank = smp::rank();
  return {count * rank / processors, count * (rank + 1) / processors};
}

// The interactions of one pair of tiles, those inside the tiles too if it is the first round. All processors of the SMP
// call it together.
void compute_pair(const TilePair& tile, bool first_round, Sums& energy) {
  std::vector<Forces>& gathered = gathered_in_smp[smp::rank()];
  gathered.assign(tile.size(), Forces{});
  if (first_round) {
    const Range mine = share_in_smp(tile.size());
    for (size_t m = mine.first; m < mine.last; ++m) {
      energy.inside += forces_inside(tile[m], gathered[m]);
      const size_t partners = partners_of(m, tile.size());
      for (size_t k = 1; k <= partners; ++k) {
        const size_t other = (m + k) % tile.size();
        energy.between += forces_between(shared, tile[m], tile[other], gathered[m], gathered[other]);
      }
    }
  } else {
    const Range mine = share_in_smp(tile.count[0]);
    for (size_t m = mine.first; m < mine.last; ++m)
      for (size_t other = tile.count[0]; other < tile.size(); ++other)
        energy.between += forces_between(shared, tile[m], tile[other], gathered[m], gathered[other]);
  }
  smp_barrier.wait();
  const Range mine = share_in_smp(tile.size());
  for (size_t m = mine.first; m < mine.last; ++m) {
    Forces sum = first_round ? Forces{} : tile[m].force;
    for (const std::vector<Forces>& part : gathered_in_smp)
      for (int a = 0; a < 3; ++a) sum.on[a] = sum.on[a] + part[m].on[a];
    tile[m].force = sum;
  }
}

void compute_tiled() {
  Sums energy{};
  for (size_t round = 0; round + 1 < tiles(); ++round) {
    compute_pair(TilePair(pair_of(mg_node(), round)), round == 0, energy);
    mg_barrier(shared.barrier);
  }
  mg_lock(shared.sums_lock);
  shared.sums->inside += energy.inside;
  shared.sums->between += energy.between;
  mg_unlock(shared.sums_lock);
  mg_barrier(shared.barrier);
}

Molecule& molecule_at(size_t m) {
  if (!tiled) return shared.molecule[m];
  size_t tile = m * tiles() / shared.molecules;
  while (tile_range(tile).last <= m) ++tile;
  while (tile_range(tile).first > m) --tile;
  return tile_molecules(tile)[m - tile_range(tile).first];
}

void slave(void*) {
  const bool first = mg_processor() == 0;
  const Range mine = share_of(mg_processor(), shared.molecules);
  std::vector<Forces> gathered(tiled ? 0 : shared.molecules);
  if (smp::rank() == 0 && tiled) {
    smp_barrier.open();
    gathered_in_smp.resize(mg_processors_per_node());
  }
  for (size_t m = mine.first; m < mine.last; ++m) initialise(shared, m, molecule_at(m));
  const uint64_t start = start_measuring(shared.barrier);
  for (unsigned t = 0; t < iterations; ++t) {
    clear_sums(shared, first);
    if (tiled)
      compute_tiled();
    else
      compute_forces(shared, mine, gathered);
  }
  if (first) elapsed = mg_time_ns() - start;
  mg_barrier(shared.barrier);
  if (first) mg_profile_stop();
  if (smp::rank() == 0 && tiled) smp_barrier.close();
}

// Against the sequential run, from which rounding may part it: forces are added in another order.
int check(const System& expected) {
  double largest = 0;
  double apart = 0;
  Vec total{};
  for (size_t m = 0; m < shared.molecules; ++m) {
    for (int a = 0; a < 3; ++a) {
      const Vec force = molecule_at(m).force.on[a];
      const Vec difference = force - expected.molecule[m].force.on[a];
      total = total + force;
      keep_worst(largest, std::sqrt(dot(force, force)));
      keep_worst(apart, std::sqrt(dot(difference, difference)));
    }
  }
  const double energy = expected.sums->inside + expected.sums->between;
  const double energy_apart = std::abs(shared.sums->inside + shared.sums->between - energy) / std::abs(energy);
  const double push = std::sqrt(dot(total, total));
  char text[200];
  std::snprintf(text, sizeof text,
                "of the largest force, forces are %.1e from the sequential run's and their sum %.1e from zero; "
                "energy is %.1e from it",
                apart / largest, push / largest, energy_apart);
  return print_check(apart < 1e-11 * largest && push < 1e-10 * largest && energy_apart < 1e-11, text);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("The force interaction of water on Multigrain", "water-kernel");
  size_t given_molecules = 0;
  app.add_number("-n,--molecules", given_molecules, "molecules (test 128, paper 512, large 4096)", 8, 1'000'000);
  std::string variant;
  add_variants(app, variant, {"tiled"});
  const Options options = parse_command_line(app, argc, argv);
  tiled = variant == "tiled";
  shared.molecules = choose<size_t>(options, given_molecules, 128, 512, 4096);
  shared.side = std::cbrt(kVolumeOfMolecule * static_cast<double>(shared.molecules));
  shared.cutoff = shared.side / 2;
  iterations = choose(options, options.iterations, 2u, 1u, 1u);
  shared.seed = options.seed;
  if (tiled) {
    const size_t most = (shared.molecules + tiles() - 1) / tiles();
    tile_bytes = (most * sizeof(Molecule) + mg_page_size() - 1) / mg_page_size() * mg_page_size();
    shared.molecule = reinterpret_cast<Molecule*>(allocate_shared<char>(tiles() * tile_bytes, MG_HOME_BLOCKED));
  } else {
    shared.molecule = allocate_shared<Molecule>(shared.molecules, MG_HOME_BLOCKED);
  }
  shared.sums = allocate_shared<Sums>(1);
  mg_lock_t* const locks = allocate_shared<mg_lock_t>(shared.molecules);
  for (size_t m = 0; m < shared.molecules; ++m) locks[m] = mg_lock_create();
  shared.lock = locks;
  shared.sums_lock = mg_lock_create();
  shared.barrier = mg_barrier_create(0);

  print_header("water-kernel", variant + ", " + std::to_string(shared.molecules) + " molecules, " +
                                   std::to_string(iterations) + " iterations");
  run_on_all(slave);
  print_parallel(elapsed, shared.sums->inside + shared.sums->between);

  int status = 0;
  if (options.speedup || options.check) {
    Sums sums{};
    std::vector<Molecule> molecules(shared.molecules);
    System alone = shared;
    alone.molecule = molecules.data();
    alone.sums = &sums;
    alone.lock = nullptr;
    std::vector<Forces> gathered(alone.molecules);
    for (size_t m = 0; m < alone.molecules; ++m) initialise(alone, m, molecules[m]);
    const uint64_t start = mg_time_ns();
    for (unsigned t = 0; t < iterations; ++t) {
      clear_sums(alone, true);
      compute_forces(alone, {0, alone.molecules}, gathered);
    }
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
