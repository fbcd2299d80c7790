// Reads a number with its unit, such as "50us" or "96MB/s": what options and variables are written in.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace multigrain {

// A unit's name, as it is written right after the number, and what one of it is in the unit that the caller wants.
struct Unit {
  std::string_view name;
  double factor;
};

// The number times its unit's factor, or nothing if `text` is not a finite number from 0 up, in plain decimals,
// followed by the name of one of `units`. Does not depend on the locale. Thread safe.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units);

}  // namespace multigrain
