// Water's molecules and the forces between them: what water, water-kernel and water-spatial have in common.
//
// A molecule is three atoms (O, H, H) held by springs along its three sides. Molecules interact through the charges of
// their atoms and a Lennard-Jones potential between oxygens, in a cubic box with periodic boundaries, up to a cutoff
// of at most half its side, where the interaction is switched off smoothly.
#pragma once

#include <cmath>
#include <vector>

#include "common.h"
#include "vec.h"

namespace workloads::water {

// Units: nanometre, picosecond, atomic mass; hence energy in kJ/mol. Charges and Lennard-Jones parameters are those of
// the SPC model (Berendsen and others, 1981), the springs those of its flexible variants.
inline constexpr double kMass[3] = {15.9994, 1.008, 1.008};
inline constexpr double kCharge[3] = {-0.82, 0.41, 0.41};
inline constexpr double kCoulomb = 138.935458;
inline constexpr double kLjEpsilon = 0.650;
inline constexpr double kLjSigma = 0.3166;
inline constexpr double kBondLength = 0.1;
inline constexpr double kBondSpring = 345000;
inline constexpr double kHydrogenDistance = 0.16330;
inline constexpr double kHydrogenSpring = 115000;
inline constexpr double kBoltzmann = 0.0083144626;
inline constexpr double kTemperature = 298;
inline constexpr double kVolumeOfMolecule = 0.02997;  // at 1 g/cm3
inline constexpr double kTimeStep = 0.0001;

// Position and its first six derivatives, each scaled by h^k / k!.
inline constexpr int kOrder = 7;

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
  mg_barrier_t barrier;
  uint64_t seed;
  bool pairwise = false;  // each pair's forces are added as soon as they are known
};

// A number with the normal distribution, by Box and Muller.
inline double random_normal(uint64_t seed, uint64_t index) {
  const double u = 1 - random_unit(seed, 2 * index);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * random_unit(seed, 2 * index + 1));
}

// A molecule at its place of a cubic lattice, turned at random, with thermal velocities.
inline void initialise(const System& system, size_t m, Molecule& molecule) {
  constexpr uint64_t kRandomsOfMolecule = 16;
  // The cubic root of a cube may come out a little above the integer that it is.
  const auto edge = static_cast<size_t>(std::ceil(std::cbrt(static_cast<double>(system.molecules)) - 1e-9));
  const double spacing = system.side / static_cast<double>(edge);
  molecule = {};
  const Vec oxygen = {spacing * (static_cast<double>(m % edge) + 0.5),
                      spacing * (static_cast<double>(m / edge % edge) + 0.5),
                      spacing * (static_cast<double>(m / edge / edge) + 0.5)};
  // Two random vectors, made orthogonal, span the plane of the molecule.
  const uint64_t base = m * kRandomsOfMolecule;
  Vec axis = {random_normal(system.seed, base), random_normal(system.seed, base + 1),
              random_normal(system.seed, base + 2)};
  axis = (1 / std::sqrt(dot(axis, axis))) * axis;
  Vec across = {random_normal(system.seed, base + 3), random_normal(system.seed, base + 4),
                random_normal(system.seed, base + 5)};
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
    molecule.atom[1][a] = speed * Vec{random_normal(system.seed, first), random_normal(system.seed, first + 1),
                                      random_normal(system.seed, first + 2)};
  }
}

// A spring between two atoms of a molecule. Returns its energy.
inline double stretch(const Molecule& molecule, Forces& forces, int a, int b, double length, double stiffness) {
  const Vec apart = molecule.atom[0][a] - molecule.atom[0][b];
  const double distance = std::sqrt(dot(apart, apart));
  const double too_long = distance - length;
  const Vec force = (-stiffness * too_long / distance) * apart;
  forces.on[a] = forces.on[a] + force;
  forces.on[b] = forces.on[b] - force;
  return 0.5 * stiffness * too_long * too_long;
}

inline double forces_inside(const Molecule& molecule, Forces& forces) {
  return stretch(molecule, forces, 0, 1, kBondLength, kBondSpring) +
         stretch(molecule, forces, 0, 2, kBondLength, kBondSpring) +
         stretch(molecule, forces, 1, 2, kHydrogenDistance, kHydrogenSpring);
}

// The forces between two molecules. Returns their energy, 0 beyond the cutoff.
inline double forces_between(const System& system, const Molecule& m, const Molecule& n, Forces& on_m, Forces& on_n) {
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

inline void synchronise(const System& system) {
  if (system.lock != nullptr) mg_barrier(system.barrier);
}

// Before the sums of a new step; one of the callers is the `first`.
inline void clear_sums(const System& system, bool first) {
  synchronise(system);
  if (first) *system.sums = {};
  synchronise(system);
}

// How many of `count` molecules in a circle the m-th looks at, so that each pair is looked at once: the half that
// follows. When the number is even, opposites meet from one side only.
inline size_t partners_of(size_t m, size_t count) {
  return count % 2 == 0 ? count / 2 - (m >= count / 2 ? 1 : 0) : count / 2;
}

// Adds a part of the forces on a molecule, under its lock, unless it is nothing.
inline void add_forces(const System& system, size_t m, const Forces& part) {
  bool touched = false;
  for (const Vec& force : part.on) touched |= force.x != 0 || force.y != 0 || force.z != 0;
  if (!touched) return;
  if (system.lock != nullptr) mg_lock(system.lock[m]);
  for (int a = 0; a < 3; ++a) system.molecule[m].force.on[a] = system.molecule[m].force.on[a] + part.on[a];
  if (system.lock != nullptr) mg_unlock(system.lock[m]);
}

// The forces between a molecule and its partners, and on its springs, each added at once; and their energies.
inline void add_forces_pair_by_pair(const System& system, size_t m, double& inside, double& between) {
  Forces own{};
  inside += forces_inside(system.molecule[m], own);
  add_forces(system, m, own);
  const size_t partners = partners_of(m, system.molecules);
  for (size_t k = 1; k <= partners; ++k) {
    const size_t other = (m + k) % system.molecules;
    Forces on_m{};
    Forces on_other{};
    between += forces_between(system, system.molecule[m], system.molecule[other], on_m, on_other);
    add_forces(system, m, on_m);
    add_forces(system, other, on_other);
  }
}

// Computes all forces. `mine` is the caller's part; `gathered` has one entry a molecule and is private to the caller.
// All processors call it together. Their forces are complete when it returns.
inline void compute_forces(const System& system, Range mine, std::vector<Forces>& gathered) {
  double inside = 0;
  double between = 0;
  for (Forces& forces : gathered) forces = {};
  for (size_t m = mine.first; m < mine.last; ++m) system.molecule[m].force = {};
  synchronise(system);

  const size_t count = system.molecules;
  for (size_t m = mine.first; m < mine.last; ++m) {
    if (system.pairwise) {
      add_forces_pair_by_pair(system, m, inside, between);
      continue;
    }
    inside += forces_inside(system.molecule[m], gathered[m]);
    const size_t partners = partners_of(m, count);
    for (size_t k = 1; k <= partners; ++k) {
      const size_t other = (m + k) % count;
      between += forces_between(system, system.molecule[m], system.molecule[other], gathered[m], gathered[other]);
    }
  }

  // Beginning with its own, so that processors do not queue for the same molecules in the same order.
  for (size_t k = 0; k < count; ++k) {
    const size_t m = (mine.first + k) % count;
    add_forces(system, m, gathered[m]);
  }
  if (system.lock != nullptr) mg_lock(system.sums_lock);
  system.sums->inside += inside;
  system.sums->between += between;
  if (system.lock != nullptr) mg_unlock(system.sums_lock);
  synchronise(system);
}

}  // namespace workloads::water
