#include "library_functions.h"

#include <llvm/ADT/StringSet.h>

#include <algorithm>
#include <iterator>

namespace multigrain::checks {

using namespace llvm;

bool is_exported(StringRef name) {
  static constexpr const char* kNames[] = {
#include "library_symbols.inc"
  };
  return std::binary_search(std::begin(kNames), std::end(kNames), name, [](StringRef a, StringRef b) { return a < b; });
}

bool is_mathematical(StringRef name) {
  static const StringSet<> names = {
      "sin",       "cos",       "tan",    "asin", "acos",      "atan",    "atan2", "sinh",   "cosh",    "tanh",
      "asinh",     "acosh",     "atanh",  "exp",  "exp2",      "exp10",   "expm1", "log",    "log2",    "log10",
      "log1p",     "logb",      "ilogb",  "pow",  "sqrt",      "cbrt",    "hypot", "fabs",   "floor",   "ceil",
      "round",     "trunc",     "fmod",   "fmin", "fmax",      "fdim",    "fma",   "erf",    "erfc",    "tgamma",
      "lround",    "lrint",     "llrint", "rint", "nearbyint", "llround", "ldexp", "scalbn", "scalbln", "copysign",
      "nextafter", "remainder", "j0",     "j1",   "jn",        "y0",      "y1",    "yn"};
  if (names.contains(name)) return true;
  return (name.ends_with("f") || name.ends_with("l")) && names.contains(name.drop_back());
}

bool is_random(StringRef name) {
  static const StringSet<> names = {"rand", "random", "drand48", "lrand48", "mrand48"};
  return names.contains(name);
}

}  // namespace multigrain::checks
