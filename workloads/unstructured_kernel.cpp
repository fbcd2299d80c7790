// Unstructured-kernel: a single edge loop over an unstructured mesh ([MGS], section 5.4). For every edge it reads the
// flow in the edge's two nodes, computes the flux between them, and adds it to the residuals of both.
//
// original: as in unstructured. Edges belong to processors by run-time preprocessing; nodes at which edges of several
// processors meet take a lock.
//
// runtime-tiled (Table 4, data locality): the nodes are cut into tiles, two for each SMP, which lie together in memory.
// All edges between a pair of tiles are computed before the next pair. Which SMP computes which pair when is found out
// at run time from the mesh: in a round a tile belongs to one SMP. So no lock is needed between SMPs. The processors of
// an SMP add up in its private memory, which hardware shares; edges go to the processor that owns the node they have in
// the pair's first tile.
//
// load-balanced: the same, and the edges of a pair are spread evenly over the processors of its SMP. The balance
// between SMPs stays what it is.
#include <atomic>
#include <map>
#include <utility>

#include "common.h"
#include "mesh.h"
#include "smp.h"

namespace {

using namespace workloads;
using namespace workloads::mesh;

struct Node {
  Flow flow;
  Flow residual;
};

// The edges of a pair of tiles: what an SMP does in a round.
struct Task {
  std::vector<std::vector<Edge>> edges_of;  // by processor of the SMP
  std::vector<uint32_t> touched;            // nodes with such an edge
  std::vector<uint8_t> contended;           // by node: edges of several of these processors meet there
};

// Written by main() before the processors start.
Mesh grid;
unsigned iterations;
uint64_t seed;
bool tiled;
bool balanced;
std::vector<Node*> node_at;  // in shared memory
EdgeSchedule schedule;
std::vector<mg_lock_t> node_lock;       // of contended nodes
std::vector<std::vector<Task>> rounds;  // [round][smp]
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

// Of one SMP: the residuals that its processors have added up in a round.
std::vector<Flow> smp_residual;
smp::Barrier smp_barrier;

// --- Tiles and their schedule, by main() ---

struct Tiling {
  std::vector<unsigned> tile_of;                // by node
  std::vector<unsigned> rank_of;                // by node: its owner among the processors of an SMP
  std::vector<std::vector<uint32_t>> nodes_of;  // by tile, in the order of their owners
};

Tiling make_tiles() {
  const size_t nodes = grid.place.size();
  const unsigned tiles = 2 * mg_nodes();
  Tiling tiling;
  tiling.tile_of.resize(nodes);
  tiling.rank_of.resize(nodes);
  tiling.nodes_of.resize(tiles);
  std::vector<uint32_t> order(nodes);
  std::iota(order.begin(), order.end(), 0u);
  bisect(grid, order.data(), order.data() + nodes, tiles, 0, tiling.tile_of);
  for (const uint32_t node : order) tiling.nodes_of[tiling.tile_of[node]].push_back(node);
  for (std::vector<uint32_t>& list : tiling.nodes_of)
    bisect(grid, list.data(), list.data() + list.size(), mg_processors_per_node(), 0, tiling.rank_of);
  return tiling;
}

// Divides the edges of a pair among the processors of an SMP.
Task make_task(const Tiling& tiling, unsigned first_tile, const std::vector<Edge>& edges) {
  const unsigned processors = mg_processors_per_node();
  Task task;
  task.edges_of.resize(processors);
  for (const Edge& edge : edges) {
    const uint32_t deciding = tiling.tile_of[edge.a] == first_tile ? edge.a : edge.b;
    task.edges_of[tiling.rank_of[deciding]].push_back(edge);
  }
  if (balanced) {
    std::vector<Edge> all;
    for (const std::vector<Edge>& part : task.edges_of) all.insert(all.end(), part.begin(), part.end());
    for (unsigned rank = 0; rank < processors; ++rank)
      task.edges_of[rank].assign(all.data() + all.size() * rank / processors,
                                 all.data() + all.size() * (rank + 1) / processors);
  }
  task.contended.resize(grid.place.size());
  std::vector<unsigned> user(grid.place.size(), processors);
  for (unsigned rank = 0; rank < processors; ++rank) {
    for (const Edge& edge : task.edges_of[rank]) {
      for (const uint32_t node : {edge.a, edge.b}) {
        if (user[node] == processors) task.touched.push_back(node);
        if (user[node] != processors && user[node] != rank) task.contended[node] = 1;
        user[node] = rank;
      }
    }
  }
  // In the order of memory, so that the processors that add to the shared residuals have parts apart.
  std::sort(task.touched.begin(), task.touched.end(), [](uint32_t x, uint32_t y) { return node_at[x] < node_at[y]; });
  return task;
}

// In round 0 each SMP has its own two tiles. Then come the pairs that share edges, those with most first: each in the
// first round in which both tiles and the home SMP of one of them are free.
void make_rounds(const Tiling& tiling) {
  const unsigned smps = mg_nodes();
  std::map<std::pair<unsigned, unsigned>, std::vector<Edge>> edges_between;
  std::vector<std::vector<Edge>> own(smps);
  for (const Edge& edge : grid.edges) {
    const auto [low, high] = std::minmax(tiling.tile_of[edge.a], tiling.tile_of[edge.b]);
    if (low / 2 == high / 2)
      own[low / 2].push_back(edge);
    else
      edges_between[{low, high}].push_back(edge);
  }
  rounds.resize(1);
  for (unsigned smp = 0; smp < smps; ++smp) rounds[0].push_back(make_task(tiling, 2 * smp, own[smp]));

  std::vector<std::pair<unsigned, unsigned>> pairs;
  for (const auto& entry : edges_between) pairs.push_back(entry.first);
  std::sort(pairs.begin(), pairs.end(), [&](const auto& x, const auto& y) {
    const size_t edges_x = edges_between[x].size();
    const size_t edges_y = edges_between[y].size();
    return edges_x != edges_y ? edges_x > edges_y : x < y;
  });
  std::vector<std::vector<uint8_t>> tile_busy(1, std::vector<uint8_t>(2 * smps, 1));
  std::vector<std::vector<uint8_t>> smp_busy(1, std::vector<uint8_t>(smps, 1));
  for (const auto& [first, second] : pairs) {
    size_t round = 1;
    const auto fits = [&] {
      return !tile_busy[round][first] && !tile_busy[round][second] &&
             !(smp_busy[round][first / 2] && smp_busy[round][second / 2]);
    };
    while (round < rounds.size() && !fits()) ++round;
    if (round == rounds.size()) {
      rounds.emplace_back(smps);
      tile_busy.emplace_back(2 * smps);
      smp_busy.emplace_back(smps);
    }
    const unsigned smp = smp_busy[round][first / 2] ? second / 2 : first / 2;
    tile_busy[round][first] = tile_busy[round][second] = smp_busy[round][smp] = 1;
    rounds[round][smp] = make_task(tiling, smp == first / 2 ? first : second, edges_between[{first, second}]);
  }
}

// --- The edge loop ---

void add_locked(uint32_t node, double sign, const Flow& flux) {
  const bool contended = schedule.contended[node] != 0;
  if (contended) mg_lock(node_lock[node]);
  add_to(node_at[node]->residual, sign, flux);
  if (contended) mg_unlock(node_lock[node]);
}

void loop_over_own_edges() {
  double fastest;
  for (const Edge& edge : schedule.edges_of[mg_processor()]) {
    const Flow flux = edge_flux(edge, node_at[edge.a]->flow, node_at[edge.b]->flow, fastest);
    add_locked(edge.a, -1, flux);
    add_locked(edge.b, 1, flux);
  }
  mg_barrier(barrier);
}

void add_in_smp(const Task& task, uint32_t node, double sign, const Flow& flux) {
  Flow& sum = smp_residual[node];
  if (task.contended[node] == 0) return add_to(sum, sign, flux);
  for (size_t v = 0; v < kVariables; ++v)
    std::atomic_ref<double>(sum[v]).fetch_add(sign * flux[v], std::memory_order_relaxed);
}

void loop_over_tiles() {
  const size_t rank = smp::rank();
  const size_t processors = mg_processors_per_node();
  for (const std::vector<Task>& round : rounds) {
    const Task& task = round[mg_node()];
    if (!task.touched.empty()) {
      double fastest;
      for (const Edge& edge : task.edges_of[rank]) {
        const Flow flux = edge_flux(edge, node_at[edge.a]->flow, node_at[edge.b]->flow, fastest);
        add_in_smp(task, edge.a, -1, flux);
        add_in_smp(task, edge.b, 1, flux);
      }
      smp_barrier.wait();
      const size_t count = task.touched.size();
      for (size_t i = count * rank / processors; i < count * (rank + 1) / processors; ++i) {
        const uint32_t node = task.touched[i];
        add_to(node_at[node]->residual, 1, smp_residual[node]);
        smp_residual[node] = {};
      }
    }
    mg_barrier(barrier);
  }
}

void slave(void*) {
  const bool opens = tiled && smp::rank() == 0;
  if (opens) {
    smp_barrier.open();
    smp_residual.assign(grid.place.size(), Flow{});
  }
  const Range mine = share_of(mg_processor(), grid.place.size());
  for (size_t node = mine.first; node < mine.last; ++node) node_at[node]->flow = initial_flow(grid, node, seed);
  const uint64_t start = start_measuring(barrier);
  for (unsigned t = 0; t < iterations; ++t) {
    if (tiled)
      loop_over_tiles();
    else
      loop_over_own_edges();
  }
  if (mg_processor() == 0) elapsed = stop_measuring(start);
  if (opens) smp_barrier.close();
}

// Against the sequential run, from which rounding may part it: fluxes are added in another order. What leaves a node
// enters another, so all residuals together are zero.
int check(const std::vector<Node>& expected) {
  double largest = 0;
  double apart = 0;
  Flow total{};
  for (size_t n = 0; n < expected.size(); ++n) {
    const Flow& residual = node_at[n]->residual;
    for (size_t v = 0; v < kVariables; ++v) {
      keep_worst(largest, std::abs(expected[n].residual[v]));
      keep_worst(apart, std::abs(residual[v] - expected[n].residual[v]));
      total[v] += residual[v];
    }
  }
  double sum = 0;
  for (const double part : total) keep_worst(sum, std::abs(part));
  char text[200];
  std::snprintf(text, sizeof text,
                "of the largest residual, residuals are %.1e from the sequential run's and their sum %.1e from zero",
                apart / largest, sum / largest);
  return print_check(apart < 1e-11 * largest && sum < 1e-10 * largest, text);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("An edge loop over an unstructured mesh on Multigrain", "unstructured-kernel");
  std::string variant;
  add_variants(app, variant, {"runtime-tiled", "load-balanced"});
  const Options options = parse_command_line(app, argc, argv);
  balanced = variant == "load-balanced";
  tiled = balanced || variant == "runtime-tiled";
  iterations = choose(options, options.iterations, 2u, 1u, 1u);
  seed = options.seed;
  grid = make_mesh(mesh_size(options.size), seed);
  const size_t nodes = grid.place.size();

  const uint64_t before = mg_time_ns();
  void* memory;
  if (tiled) {
    const Tiling tiling = make_tiles();
    size_t most = 0;
    for (const std::vector<uint32_t>& list : tiling.nodes_of) most = std::max(most, list.size());
    const size_t tile_bytes = (most * sizeof(Node) + mg_page_size() - 1) / mg_page_size() * mg_page_size();
    char* const tiles = allocate_shared<char>(tiling.nodes_of.size() * tile_bytes, MG_HOME_BLOCKED);
    memory = tiles;
    node_at.resize(nodes);
    for (size_t tile = 0; tile < tiling.nodes_of.size(); ++tile)
      for (size_t i = 0; i < tiling.nodes_of[tile].size(); ++i)
        node_at[tiling.nodes_of[tile][i]] = reinterpret_cast<Node*>(tiles + tile * tile_bytes) + i;
    make_rounds(tiling);
  } else {
    Node* const all = allocate_shared<Node>(nodes, MG_HOME_BLOCKED);
    memory = all;
    for (size_t n = 0; n < nodes; ++n) node_at.push_back(all + n);
    schedule = make_schedule(grid);
    node_lock.resize(nodes);
    for (size_t n = 0; n < nodes; ++n)
      if (schedule.contended[n] != 0) node_lock[n] = mg_lock_create();
  }
  barrier = mg_barrier_create(0);
  const uint64_t preprocessing = mg_time_ns() - before;

  print_header("unstructured-kernel", variant + ", " + describe(grid, iterations));
  std::printf("preprocessing: %.6f s\n", seconds(preprocessing));
  run_on_all(slave);
  double checksum = 0;
  for (const Node* const node : node_at)
    for (const double part : node->residual) checksum += part * part;
  print_parallel(elapsed, checksum);

  int status = 0;
  if (options.speedup || options.check) {
    std::vector<Node> alone(nodes);
    for (size_t n = 0; n < nodes; ++n) alone[n] = {initial_flow(grid, n, seed), {}};
    const uint64_t start = mg_time_ns();
    for (unsigned t = 0; t < iterations; ++t) {
      double fastest;
      for (const Edge& edge : grid.edges) {
        const Flow flux = edge_flux(edge, alone[edge.a].flow, alone[edge.b].flow, fastest);
        add_to(alone[edge.a].residual, -1, flux);
        add_to(alone[edge.b].residual, 1, flux);
      }
    }
    const uint64_t sequential = mg_time_ns() - start;
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(alone);
  }
  mg_barrier_destroy(barrier);
  for (const mg_lock_t lock : node_lock)
    if (lock != 0) mg_lock_destroy(lock);
  mg_free(memory);
  return status;
}
