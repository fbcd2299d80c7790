// Unstructured: a computation over an unstructured mesh that resembles solving the Euler equations ([MGS],
// sections 5.2 and 5.3.3; the numbers mean nothing).
//
// Run-time preprocessing gives processors compact parts of the nodes and of the edges. An iteration is one edge loop
// that sums up how a node differs from its neighbours, and three steps of a Runge-Kutta scheme, each an edge loop for
// the fluxes and a loop over the own nodes. Nodes at which edges of several processors meet take a lock in edge loops.
// Nodes lie in memory as the mesh has them, so each page has nodes of many processors: fine-grain sharing. The variant "ordered"
// has a mesh whose neighbours have close numbers, as when it comes from a generator that goes through space row by row.
#include "common.h"
#include "mesh.h"

namespace {

using namespace workloads;
using namespace workloads::mesh;

constexpr double kTimeStep = 0.01;
constexpr double kStep[3] = {1.0 / 3, 0.5, 1};  // of the Runge-Kutta scheme, in time steps
constexpr double kSmoothing = 1.0 / 64;         // how much differences of differences are damped

struct Node {
  Flow flow;
  Flow before;      // at the beginning of the iteration
  Flow difference;  // of the neighbours' flows to this one, summed up
  Flow residual;
};

// A mesh and the part of it that the caller computes; the same code runs on shared and on private memory.
struct Part {
  Node* node;
  const std::vector<uint32_t>* nodes;
  const std::vector<Edge>* edges;
  bool alone;  // the sequential version: nobody to lock out or to wait for
};

// Written by main() before the processors start.
Mesh grid;
unsigned iterations;
uint64_t seed;
Node* shared_node;
EdgeSchedule schedule;
std::vector<mg_lock_t> node_lock;  // of contended nodes
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

void synchronise(const Part& part) {
  if (!part.alone) mg_barrier(barrier);
}

// Subtracts the value from one sum of the edge's first node and adds it to that of the second, or the other way round.
void add_to_ends(const Part& part, const Edge& edge, Flow Node::* sum, double sign, const Flow& value) {
  for (const uint32_t node : {edge.a, edge.b}) {
    const bool contended = !part.alone && schedule.contended[node] != 0;
    if (contended) mg_lock(node_lock[node]);
    add_to(part.node[node].*sum, node == edge.a ? -sign : sign, value);
    if (contended) mg_unlock(node_lock[node]);
  }
}

void sum_differences(const Part& part) {
  for (const Edge& edge : *part.edges) {
    Flow difference = part.node[edge.b].flow;
    add_to(difference, -1, part.node[edge.a].flow);
    add_to_ends(part, edge, &Node::difference, -1, difference);
  }
}

void sum_fluxes(const Part& part) {
  for (const Edge& edge : *part.edges) {
    const Node& a = part.node[edge.a];
    const Node& b = part.node[edge.b];
    double fastest;
    Flow flux = edge_flux(edge, a.flow, b.flow, fastest);
    add_to(flux, kSmoothing * fastest, b.difference);
    add_to(flux, -kSmoothing * fastest, a.difference);
    add_to_ends(part, edge, &Node::residual, 1, flux);
  }
}

void simulate(const Part& part) {
  for (unsigned t = 0; t < iterations; ++t) {
    for (const uint32_t n : *part.nodes) {
      Node& node = part.node[n];
      node.before = node.flow;
      node.difference = {};
      node.residual = {};
    }
    synchronise(part);
    sum_differences(part);
    synchronise(part);
    for (const double step : kStep) {
      sum_fluxes(part);
      synchronise(part);
      for (const uint32_t n : *part.nodes) {
        Node& node = part.node[n];
        node.flow = node.before;
        add_to(node.flow, step * kTimeStep, node.residual);
        node.residual = {};
      }
      synchronise(part);
    }
  }
}

void slave(void*) {
  const Part mine = {shared_node, &schedule.nodes_of[mg_processor()], &schedule.edges_of[mg_processor()], false};
  for (const uint32_t node : *mine.nodes) mine.node[node].flow = initial_flow(grid, node, seed);
  const uint64_t start = start_measuring(barrier);
  simulate(mine);
  if (mg_processor() == 0) elapsed = stop_measuring(start);
}

// Against the sequential run, from which rounding may part it: sums are added up in another order. What leaves a node
// enters another, so the total of every variable stays.
int check(const std::vector<Node>& expected) {
  double apart = 0;
  Flow change{};
  for (size_t n = 0; n < expected.size(); ++n) {
    const Flow start = initial_flow(grid, n, seed);
    for (size_t v = 0; v < kVariables; ++v) {
      keep_worst(apart, std::abs(shared_node[n].flow[v] - expected[n].flow[v]));
      change[v] += shared_node[n].flow[v] - start[v];
    }
  }
  double drift = 0;
  for (const double part : change) keep_worst(drift, std::abs(part) / static_cast<double>(expected.size()));
  char text[200];
  std::snprintf(text, sizeof text, "flows are %.1e from the sequential run's, their means %.1e from the beginning's",
                apart, drift);
  return print_check(apart < 1e-11 && drift < 1e-12, text);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("A flow over an unstructured mesh on Multigrain", "unstructured");
  std::string variant;
  add_variants(app, variant, {"ordered"});
  const Options options = parse_command_line(app, argc, argv);
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;
  grid = make_mesh(mesh_size(options.size), seed, variant == "ordered");
  const size_t nodes = grid.place.size();
  shared_node = allocate_shared<Node>(nodes, MG_HOME_BLOCKED);

  const uint64_t before = mg_time_ns();
  schedule = make_schedule(grid);
  node_lock.resize(nodes);
  for (size_t n = 0; n < nodes; ++n)
    if (schedule.contended[n] != 0) node_lock[n] = mg_lock_create();
  barrier = mg_barrier_create(0);
  const uint64_t preprocessing = mg_time_ns() - before;

  print_header("unstructured", variant + ", " + describe(grid, iterations));
  std::printf("preprocessing: %.6f s\n", seconds(preprocessing));
  run_on_all(slave);
  double checksum = 0;
  for (size_t n = 0; n < nodes; ++n)
    for (const double part : shared_node[n].flow) checksum += part * part;
  print_parallel(elapsed, checksum);

  int status = 0;
  if (options.speedup || options.check) {
    std::vector<Node> node(nodes);
    std::vector<uint32_t> all(nodes);
    std::iota(all.begin(), all.end(), 0u);
    for (size_t n = 0; n < nodes; ++n) node[n].flow = initial_flow(grid, n, seed);
    const uint64_t start = mg_time_ns();
    simulate({node.data(), &all, &grid.edges, true});
    const uint64_t sequential = mg_time_ns() - start;
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(node);
  }
  mg_barrier_destroy(barrier);
  for (const mg_lock_t lock : node_lock)
    if (lock != 0) mg_lock_destroy(lock);
  mg_free(shared_node);
  return status;
}
