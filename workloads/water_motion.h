// How water's molecules move: what water and water-spatial have in common.
//
// Newton's equations are integrated by Gear's sixth-order predictor-corrector method.
#pragma once

#include <cmath>

#include "common.h"
#include "water_forces.h"

namespace workloads::water {

// Gear's corrector for second-order equations (Allen and Tildesley, appendix E).
inline constexpr double kCorrector[kOrder] = {863.0 / 6048, 665.0 / 1008, 1,        25.0 / 36,
                                              35.0 / 144,   1.0 / 24,     1.0 / 360};

inline void predict(Molecule& molecule) {
  // Pascal's triangle by repeated addition: Gear's Taylor prediction in scaled derivatives.
  for (int k = 0; k < kOrder - 1; ++k)
    for (int d = kOrder - 2; d >= k; --d)
      for (int a = 0; a < 3; ++a) molecule.atom[d][a] = molecule.atom[d][a] + molecule.atom[d + 1][a];
}

// The scaled second derivative that the forces ask for.
inline Vec wanted_acceleration(const Molecule& molecule, int a) {
  return (0.5 * kTimeStep * kTimeStep / kMass[a]) * molecule.force.on[a];
}

inline void correct(Molecule& molecule) {
  for (int a = 0; a < 3; ++a) {
    const Vec error = wanted_acceleration(molecule, a) - molecule.atom[2][a];
    for (int d = 0; d < kOrder; ++d) molecule.atom[d][a] = molecule.atom[d][a] + kCorrector[d] * error;
  }
}

// Molecules whose oxygen has left the box come back on the other side, whole.
inline void apply_boundary(const System& system, Molecule& molecule) {
  const Vec oxygen = molecule.atom[0][0];
  const double side = system.side;
  const Vec shift = {side * std::floor(oxygen.x / side), side * std::floor(oxygen.y / side),
                     side * std::floor(oxygen.z / side)};
  for (Vec& position : molecule.atom[0]) position = position - shift;
}

// Kinetic energy and momentum of a molecule.
inline void add_motion(const Molecule& molecule, Sums& sums) {
  for (int a = 0; a < 3; ++a) {
    const Vec velocity = (1 / kTimeStep) * molecule.atom[1][a];
    sums.kinetic += 0.5 * kMass[a] * dot(velocity, velocity);
    sums.momentum = sums.momentum + kMass[a] * velocity;
  }
}

// Adds what one processor summed up to what all do.
inline void add_to_sums(const System& system, const Sums& part) {
  if (system.lock != nullptr) mg_lock(system.sums_lock);
  system.sums->kinetic += part.kinetic;
  system.sums->inside += part.inside;
  system.sums->between += part.between;
  system.sums->momentum = system.sums->momentum + part.momentum;
  if (system.lock != nullptr) mg_unlock(system.sums_lock);
}

inline double total(const Sums& sums) {
  return sums.kinetic + sums.inside + sums.between;
}

}  // namespace workloads::water
