// TSP: the shortest round trip through all cities, by branch and bound ([MGS], section 5.2).
//
// original: one pool of partial tours for the whole machine, under one lock: the critical sections that MGS's
// section 5.3.3 sees dilated. A processor takes the newest tour from the pool; while it is short, its extensions go
// back to the pool, and once it is long enough, the processor finishes it alone. The shortest tour found so far is
// under a lock of its own; processors look at it whenever they take a tour and prune with what they saw.
//
// distributed-pool ([MGS], Table 4 and section 5.4): each SMP has a pool of its own, in its private memory, which its
// processors share by hardware. The central pool remains to distribute work between SMPs: through it go the tours of
// the first few cities only, and an SMP takes one from there when its own pool is empty, by one processor at a time. An
// SMP also remembers the length of the shortest tour that it heard of, and asks again when it takes from the centre.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common.h"
#include "smp.h"

namespace {

using namespace workloads;

constexpr unsigned kMaxCities = 24;
// distributed-pool: tours of up to so many cities go through the central pool, longer ones through an SMP's.
constexpr unsigned kCentralDepth = 3;

struct Problem {
  unsigned cities;
  int distance[kMaxCities][kMaxCities];
  int nearest[kMaxCities];  // distance to the nearest other city: what leaving this one costs at least
};

struct Tour {
  int length;  // of the part that is fixed
  int rest;    // the least that the remaining steps can cost
  unsigned visited;
  unsigned at[kMaxCities];  // the first `visited` are fixed, the others in any order
};

struct Best {
  int length;
  unsigned tour[kMaxCities];
};

struct Pool {
  size_t tours;      // in pool_tour
  unsigned working;  // processors that hold a tour and may put more
};

// An SMP's own pool, under its lock.
struct LocalPool {
  std::vector<Tour> tours;
  unsigned working = 0;  // processors that hold a tour and may put more
  bool asking = false;   // one processor is at the central pool
  bool last = false;     // the central pool will have no more
  int bound = std::numeric_limits<int>::max();
  unsigned waiting = 0;  // processors that wait for any of this to change
  mg_sem_t changed = 0;
  mg_lock_t lock = 0;
};

// Written by main() before the processors start.
Problem problem;
bool distributed_pool;
unsigned pool_depth;
Pool* pool;
Tour* pool_tour;
mg_lock_t pool_lock;
mg_cond_t pool_changed;
Best* best;
mg_lock_t best_lock;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

LocalPool local;  // of this SMP

void make_problem(unsigned cities, uint64_t seed) {
  problem.cities = cities;
  for (unsigned i = 0; i < cities; ++i) {
    problem.nearest[i] = std::numeric_limits<int>::max();
    for (unsigned j = 0; j < cities; ++j) {
      const double dx = random_unit(seed, 2 * i) - random_unit(seed, 2 * j);
      const double dy = random_unit(seed, 2 * i + 1) - random_unit(seed, 2 * j + 1);
      problem.distance[i][j] = static_cast<int>(std::lround(1000 * std::hypot(dx, dy)));
      if (i != j) problem.nearest[i] = std::min(problem.nearest[i], problem.distance[i][j]);
    }
  }
}

Tour first_tour() {
  Tour tour{};
  tour.visited = 1;
  std::iota(tour.at, tour.at + problem.cities, 0u);
  tour.rest = std::accumulate(problem.nearest, problem.nearest + problem.cities, 0);
  return tour;
}

// Appends the unvisited city at position `next`.
void extend(Tour& tour, unsigned next) {
  const unsigned from = tour.at[tour.visited - 1];
  std::swap(tour.at[tour.visited], tour.at[next]);
  tour.length += problem.distance[from][tour.at[tour.visited]];
  tour.rest -= problem.nearest[from];
  ++tour.visited;
}

// Searches all completions of the tour, depth first. Calls improve(tour, length) for each that is shorter than bound;
// it returns the new bound.
template <typename Improve>
void search(const Tour& tour, int& bound, Improve&& improve) {
  if (tour.visited == problem.cities) {
    const int length = tour.length + problem.distance[tour.at[problem.cities - 1]][tour.at[0]];
    if (length < bound) bound = improve(tour, length);
    return;
  }
  for (unsigned next = tour.visited; next < problem.cities; ++next) {
    Tour longer = tour;
    extend(longer, next);
    if (longer.length + longer.rest < bound) search(longer, bound, improve);
  }
}

// The extensions of the tour by one city that may beat the bound, the one to look at first last. Returns how many.
unsigned branch(const Tour& tour, int bound, Tour* extensions) {
  unsigned count = 0;
  for (unsigned next = tour.visited; next < problem.cities; ++next) {
    extensions[count] = tour;
    extend(extensions[count], next);
    if (extensions[count].length + extensions[count].rest < bound) ++count;
  }
  std::sort(extensions, extensions + count, [](const Tour& x, const Tour& y) { return x.length > y.length; });
  return count;
}

int best_length() {
  mg_lock(best_lock);
  const int length = best->length;
  mg_unlock(best_lock);
  return length;
}

// Records the tour if it still is the shortest. Returns the length of the shortest.
int record(const Tour& tour, int length) {
  mg_lock(best_lock);
  if (length < best->length) {
    best->length = length;
    std::copy_n(tour.at, problem.cities, best->tour);
  }
  const int shortest = best->length;
  mg_unlock(best_lock);
  return shortest;
}

// Whether who works on the tour reports to the pool of the whole machine.
bool central(const Tour& tour) {
  return !distributed_pool || tour.visited < std::min(kCentralDepth, pool_depth);
}

// Takes the newest tour; waits while there is none but some may come. False when all are done.
bool take(Tour& tour) {
  mg_lock(pool_lock);
  while (pool->tours == 0 && pool->working != 0) mg_cond_wait(pool_changed, pool_lock);
  const bool got = pool->tours != 0;
  if (got) {
    tour = pool_tour[--pool->tours];
    if (central(tour)) ++pool->working;
  }
  mg_unlock(pool_lock);
  return got;
}

// Ends the work on a tour that was taken, with the extensions that came of it.
void put(const Tour* extensions, unsigned count) {
  mg_lock(pool_lock);
  std::copy_n(extensions, count, pool_tour + pool->tours);
  pool->tours += count;
  --pool->working;
  if (count != 0 || pool->working == 0) mg_cond_broadcast(pool_changed);
  mg_unlock(pool_lock);
}

void search_with_one_pool() {
  Tour tour;
  while (take(tour)) {
    int bound = best_length();
    Tour extensions[kMaxCities];
    unsigned count = 0;
    if (tour.visited < pool_depth)
      count = branch(tour, bound, extensions);
    else
      search(tour, bound, record);
    put(extensions, count);
  }
}

// Opens and closes this SMP's pool: its first processor only. A semaphore lives on the node that created it, so the
// processors of an SMP wait for each other without a message.
void open_local_pool() {
  local.lock = mg_lock_create();
  local.changed = mg_sem_create(0);
}
void close_local_pool() {
  mg_lock_destroy(local.lock);
  mg_sem_destroy(local.changed);
}

// Both with the local lock held.
void wake_local() {
  for (; local.waiting != 0; --local.waiting) mg_sem_post(local.changed);
}
void wait_local() {
  ++local.waiting;
  mg_unlock(local.lock);
  mg_sem_wait(local.changed);
  mg_lock(local.lock);
}

// Takes the newest tour of this SMP's pool, or one from the centre; waits while some may come. False when all are done.
bool take_local(Tour& tour, int& bound) {
  mg_lock(local.lock);
  for (;;) {
    if (!local.tours.empty()) {
      tour = local.tours.back();
      local.tours.pop_back();
      break;
    }
    if (local.last) {
      if (local.working != 0) {
        wait_local();
        continue;
      }
      mg_unlock(local.lock);
      return false;
    }
    if (local.asking) {
      wait_local();
      continue;
    }
    local.asking = true;
    mg_unlock(local.lock);
    const bool got = take(tour);
    const int shortest = got ? best_length() : 0;
    mg_lock(local.lock);
    local.asking = false;
    wake_local();
    if (got) {
      local.bound = std::min(local.bound, shortest);
      break;
    }
    local.last = true;
  }
  ++local.working;
  bound = local.bound;
  mg_unlock(local.lock);
  return true;
}

// Ends the work on a tour that was taken, with those of its extensions that are for this SMP and a length that was
// found.
void put_local(const Tour* extensions, unsigned count, int bound) {
  mg_lock(local.lock);
  local.tours.insert(local.tours.end(), extensions, extensions + count);
  local.bound = std::min(local.bound, bound);
  --local.working;
  if (count != 0 || local.working == 0) wake_local();
  mg_unlock(local.lock);
}

void search_with_distributed_pool() {
  Tour tour;
  int bound;
  while (take_local(tour, bound)) {
    Tour extensions[kMaxCities];
    unsigned count = 0;
    if (tour.visited < pool_depth)
      count = branch(tour, bound, extensions);
    else
      search(tour, bound, record);
    if (central(tour)) {
      put(extensions, count);
      count = 0;
    }
    put_local(extensions, count, bound);
  }
}

void slave(void*) {
  const bool opens = distributed_pool && smp::rank() == 0;
  if (opens) open_local_pool();
  const uint64_t start = start_measuring(barrier);
  if (distributed_pool)
    search_with_distributed_pool();
  else
    search_with_one_pool();
  mg_barrier(barrier);
  if (mg_processor() == 0) elapsed = stop_measuring(start);
  if (opens) close_local_pool();
}

// The same by one processor with a pool of its own. Returns the length of the shortest tour.
int sequential_search() {
  std::vector<Tour> tours = {first_tour()};
  int shortest = std::numeric_limits<int>::max();
  while (!tours.empty()) {
    const Tour tour = tours.back();
    tours.pop_back();
    Tour extensions[kMaxCities];
    if (tour.visited < pool_depth) {
      const unsigned count = branch(tour, shortest, extensions);
      tours.insert(tours.end(), extensions, extensions + count);
    } else {
      search(tour, shortest, [](const Tour&, int length) { return length; });
    }
  }
  return shortest;
}

// The most tours that the pool can hold at once: all of the greatest length that goes there.
size_t pool_capacity() {
  size_t tours = 1;
  for (unsigned visited = 1; visited < pool_depth; ++visited) tours *= problem.cities - visited;
  return tours + problem.cities;
}

// What is wrong with the tour, as a sentence; empty if nothing is.
std::string fault_of(const Best& found) {
  bool seen[kMaxCities] = {};
  int length = 0;
  for (unsigned i = 0; i < problem.cities; ++i) {
    if (found.tour[i] >= problem.cities || seen[found.tour[i]]) return "the tour does not visit each city once";
    seen[found.tour[i]] = true;
    length += problem.distance[found.tour[i]][found.tour[(i + 1) % problem.cities]];
  }
  if (length != found.length) return "the tour is not as long as it is said to be";
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("The travelling salesman's problem by branch and bound on Multigrain", "tsp");
  unsigned given_cities = 0;
  app.add_number("-n,--cities", given_cities, "cities (test 8, paper 10, large 20)", 3, kMaxCities);
  pool_depth = 0;
  app.add_number("--depth", pool_depth, "tours shorter than this are extended by way of the pool (default 4)", 1, 6);
  std::string variant;
  add_variants(app, variant, {"distributed-pool"});
  const Options options = parse_command_line(app, argc, argv);
  distributed_pool = variant == "distributed-pool";
  if (options.iterations > 1) {
    std::fprintf(stderr, "tsp: the search has one iteration, --iterations %u makes no sense\n", options.iterations);
    return kBadUsage;
  }
  make_problem(choose(options, given_cities, 8u, 10u, 20u), options.seed);
  pool_depth = std::min(pool_depth == 0 ? 4u : pool_depth, problem.cities);

  pool = allocate_shared<Pool>(1);
  pool_tour = allocate_shared<Tour>(pool_capacity());
  pool_tour[pool->tours++] = first_tour();
  best = allocate_shared<Best>(1);
  best->length = std::numeric_limits<int>::max();
  pool_lock = mg_lock_create();
  pool_changed = mg_cond_create();
  best_lock = mg_lock_create();
  barrier = mg_barrier_create(0);

  print_header("tsp", variant + ", " + std::to_string(problem.cities) + " cities");
  run_on_all(slave);
  print_parallel(elapsed, best->length);

  int status = 0;
  if (options.speedup || options.check) {
    const uint64_t start = mg_time_ns();
    const int shortest = sequential_search();
    const uint64_t sequential = mg_time_ns() - start;
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) {
      std::string fault = fault_of(*best);
      if (fault.empty() && best->length != shortest)
        fault = "the tour's length is " + std::to_string(best->length) + ", the shortest " + std::to_string(shortest);
      status =
          print_check(fault.empty(), fault.empty() ? "the tour is valid and as short as the sequential run's" : fault);
    }
  }
  mg_barrier_destroy(barrier);
  mg_lock_destroy(best_lock);
  mg_cond_destroy(pool_changed);
  mg_lock_destroy(pool_lock);
  mg_free(best);
  mg_free(pool_tour);
  mg_free(pool);
  return status;
}
