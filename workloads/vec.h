// Vectors in space, for the workloads that have bodies, molecules or rays.
#pragma once

namespace workloads {

struct Vec {
  double x, y, z;
};
inline Vec operator+(Vec a, Vec b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
inline Vec operator-(Vec a, Vec b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
inline Vec operator*(double s, Vec a) {
  return {s * a.x, s * a.y, s * a.z};
}
inline double dot(Vec a, Vec b) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}

}  // namespace workloads
