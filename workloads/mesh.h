// An unstructured mesh, what is computed at its edges, and the run-time preprocessing that gives processors their
// parts: what unstructured and unstructured-kernel have in common.
//
// The computation resembles that of the Euler equations for a gas, with its five variables in every node and a flux at
// every edge; the numbers mean nothing ([MGS], section 5.2).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common.h"

namespace workloads::mesh {

struct Edge {
  uint32_t a, b;  // nodes
  double normal[3];
};

struct Mesh {
  std::vector<std::array<double, 3>> place;  // of each node
  std::vector<Edge> edges;
};

// Nodes and edges of the sizes test, paper and large; the latter two are those of meshes in common use.
struct MeshSize {
  size_t nodes;
  size_t edges;
};
inline MeshSize mesh_size(Size size) {
  if (size == Size::kTest) return {240, 1400};
  return size == Size::kPaper ? MeshSize{2800, 17377} : MeshSize{9428, 59863};
}

// A mesh like those of tetrahedra that fill a cube: nodes near the points of a lattice, none at its point, joined by
// the shortest edges that there are. As a program that inserts points leaves them, neighbours have unrelated numbers; `ordered`,
// numbers follow the lattice, row by row, so that many neighbours have numbers close to each other. All else is the same.
inline Mesh make_mesh(MeshSize size, uint64_t seed, bool ordered = false) {
  Mesh mesh;
  const size_t side = static_cast<size_t>(std::ceil(std::cbrt(static_cast<double>(size.nodes))));
  std::vector<uint32_t> number(size.nodes);
  std::iota(number.begin(), number.end(), 0u);
  for (size_t i = size.nodes - 1; i > 0 && !ordered; --i)
    std::swap(number[i], number[static_cast<size_t>(random_unit(seed, i) * static_cast<double>(i + 1))]);
  mesh.place.resize(size.nodes);
  for (size_t i = 0; i < size.nodes; ++i) {
    const size_t lattice[3] = {i % side, i / side % side, i / side / side};
    for (size_t k = 0; k < 3; ++k) {
      const double shift = 0.6 * (random_unit(seed, size.nodes + 3 * i + k) - 0.5);
      mesh.place[number[i]][k] = static_cast<double>(lattice[k]) + shift;
    }
  }

  struct Candidate {
    double squared;
    uint32_t a, b;
  };
  std::vector<Candidate> candidates;
  for (uint32_t a = 0; a < size.nodes; ++a) {
    for (uint32_t b = a + 1; b < size.nodes; ++b) {
      double squared = 0;
      for (size_t k = 0; k < 3; ++k) squared += std::pow(mesh.place[b][k] - mesh.place[a][k], 2);
      if (squared < 9) candidates.push_back({squared, a, b});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
    return x.squared != y.squared ? x.squared < y.squared : x.a != y.a ? x.a < y.a : x.b < y.b;
  });
  candidates.resize(std::min(candidates.size(), size.edges));
  for (const Candidate& candidate : candidates) {
    Edge edge{candidate.a, candidate.b, {}};
    for (size_t k = 0; k < 3; ++k)
      edge.normal[k] = (mesh.place[edge.b][k] - mesh.place[edge.a][k]) / std::sqrt(candidate.squared);
    mesh.edges.push_back(edge);
  }
  std::sort(mesh.edges.begin(), mesh.edges.end(),
            [](const Edge& x, const Edge& y) { return x.a != y.a ? x.a < y.a : x.b < y.b; });
  return mesh;
}

// --- The gas ---

// Density, momentum, energy.
inline constexpr int kVariables = 5;
using Flow = std::array<double, kVariables>;
inline constexpr double kHeatRatio = 1.4;
inline constexpr double kMach = 0.3;
inline constexpr Flow kFree = {1, kMach, 0, 0, 1 / (kHeatRatio * (kHeatRatio - 1)) + 0.5 * kMach* kMach};

// The free flow with a small disturbance.
inline Flow initial_flow(const Mesh& mesh, size_t node, uint64_t seed) {
  Flow flow = kFree;
  const auto& place = mesh.place[node];
  const double wave = 0.02 * std::sin(place[0]) * std::cos(place[1] + 0.5 * place[2]);
  for (size_t v = 0; v < kVariables; ++v)
    flow[v] += wave + 0.01 * random_unit(seed, 8 * mesh.place.size() + kVariables * node + v);
  return flow;
}

// What flows through a face of unit size, and the fastest wave there.
inline Flow flux_through(const double* normal, const Flow& flow, double& fastest) {
  const double speed = (flow[1] * normal[0] + flow[2] * normal[1] + flow[3] * normal[2]) / flow[0];
  const double squared = (flow[1] * flow[1] + flow[2] * flow[2] + flow[3] * flow[3]) / flow[0];
  const double pressure = (kHeatRatio - 1) * (flow[4] - 0.5 * squared);
  fastest = std::abs(speed) + std::sqrt(kHeatRatio * pressure / flow[0]);
  return {speed * flow[0], speed * flow[1] + pressure * normal[0], speed * flow[2] + pressure * normal[1],
          speed * flow[3] + pressure * normal[2], speed * (flow[4] + pressure)};
}

// From edge.a to edge.b: the mean of both nodes' fluxes beyond that of the free flow, so that a free flow stays, and
// damping of differences between the nodes.
inline Flow edge_flux(const Edge& edge, const Flow& a, const Flow& b, double& fastest) {
  double fastest_a;
  double fastest_b;
  double ignored;
  const Flow flux_a = flux_through(edge.normal, a, fastest_a);
  const Flow flux_b = flux_through(edge.normal, b, fastest_b);
  const Flow flux_free = flux_through(edge.normal, kFree, ignored);
  fastest = std::max(fastest_a, fastest_b);
  Flow flux;
  for (size_t v = 0; v < kVariables; ++v)
    flux[v] = 0.5 * (flux_a[v] + flux_b[v]) - flux_free[v] - 0.5 * fastest * (b[v] - a[v]);
  return flux;
}

inline void add_to(Flow& sum, double sign, const Flow& flow) {
  for (size_t v = 0; v < kVariables; ++v) sum[v] += sign * flow[v];
}

// --- Run-time preprocessing ---

// Cuts the nodes listed in first .. last-1 into `parts` compact parts of equal size, by recursive bisection across the
// longest extent; part_of[node] becomes first_part and up. Reorders the list by part.
inline void bisect(const Mesh& mesh, uint32_t* first, uint32_t* last, unsigned parts, unsigned first_part,
                   std::vector<unsigned>& part_of) {
  if (parts == 1 || first == last) {
    for (const uint32_t* node = first; node != last; ++node) part_of[*node] = first_part;
    return;
  }
  size_t axis = 0;
  double longest = -1;
  for (size_t k = 0; k < 3; ++k) {
    const auto [least, most] =
        std::minmax_element(first, last, [&](uint32_t x, uint32_t y) { return mesh.place[x][k] < mesh.place[y][k]; });
    const double extent = mesh.place[*most][k] - mesh.place[*least][k];
    if (extent > longest) {
      longest = extent;
      axis = k;
    }
  }
  const unsigned low = parts / 2;
  uint32_t* const cut = first + (last - first) * low / parts;
  std::nth_element(first, cut, last, [&](uint32_t x, uint32_t y) {
    const double at_x = mesh.place[x][axis];
    const double at_y = mesh.place[y][axis];
    return at_x != at_y ? at_x < at_y : x < y;
  });
  bisect(mesh, first, cut, low, first_part, part_of);
  bisect(mesh, cut, last, parts - low, first_part + low, part_of);
}

// Who computes what, when every edge belongs to one processor for good.
struct EdgeSchedule {
  std::vector<std::vector<uint32_t>> nodes_of;  // by processor
  std::vector<std::vector<Edge>> edges_of;      // by processor
  std::vector<uint8_t> contended;               // by node: edges of several processors meet there, so it takes a lock
};

// Nodes go to processors in compact parts, an edge to the owner of its nodes, and if these are two, to the one with
// fewer edges: locality first, then balance.
inline EdgeSchedule make_schedule(const Mesh& mesh) {
  const size_t nodes = mesh.place.size();
  EdgeSchedule schedule;
  std::vector<uint32_t> order(nodes);
  std::iota(order.begin(), order.end(), 0u);
  std::vector<unsigned> owner(nodes);
  bisect(mesh, order.data(), order.data() + nodes, mg_processors(), 0, owner);
  schedule.nodes_of.resize(mg_processors());
  for (uint32_t node = 0; node < nodes; ++node) schedule.nodes_of[owner[node]].push_back(node);

  schedule.edges_of.resize(mg_processors());
  for (const Edge& edge : mesh.edges)
    if (owner[edge.a] == owner[edge.b]) schedule.edges_of[owner[edge.a]].push_back(edge);
  for (const Edge& edge : mesh.edges) {
    if (owner[edge.a] == owner[edge.b]) continue;
    std::vector<Edge>& of_a = schedule.edges_of[owner[edge.a]];
    std::vector<Edge>& of_b = schedule.edges_of[owner[edge.b]];
    (of_a.size() <= of_b.size() ? of_a : of_b).push_back(edge);
  }

  schedule.contended.resize(nodes);
  std::vector<unsigned> user(nodes, mg_processors());
  for (unsigned processor = 0; processor < mg_processors(); ++processor) {
    for (const Edge& edge : schedule.edges_of[processor]) {
      for (const uint32_t node : {edge.a, edge.b}) {
        if (user[node] != mg_processors() && user[node] != processor) schedule.contended[node] = 1;
        user[node] = processor;
      }
    }
  }
  return schedule;
}

inline std::string describe(const Mesh& mesh, unsigned iterations) {
  return std::to_string(mesh.place.size()) + " nodes, " + std::to_string(mesh.edges.size()) + " edges, " +
         std::to_string(iterations) + " iterations";
}

}  // namespace workloads::mesh
