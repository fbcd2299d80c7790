// This reads numbers, also with a unit such as "50us" or "96MB/s", as options and variables have them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace multigrain {

// A unit has a name, which is written right after the number, and a factor: what one of it is in the unit that the
// caller wants.
struct Unit {
  std::string_view name;
  double factor;
};

// These are units of time, in nanoseconds.
inline constexpr Unit kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}};

// Returns the whole number that `text` is in decimal digits alone, or nullopt if it is something else or above
// `maximum`. Thread safe.
std::optional<uint64_t> parse_whole(std::string_view text, uint64_t maximum = std::numeric_limits<uint64_t>::max());

// Returns the number times its unit's factor, or nullopt if `text` is not a finite number from 0 up, in plain decimals,
// followed by the name of one of `units`. Does not depend on the locale. Thread safe.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units);

}  // namespace multigrain
