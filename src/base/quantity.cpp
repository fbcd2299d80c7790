#include "base/quantity.h"

#include <charconv>
#include <cmath>

namespace multigrain {

std::optional<uint64_t> parse_whole(std::string_view text, uint64_t maximum) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number > maximum) return std::nullopt;
  return number;
}

// Uses from_chars, because strtod would read "1,5" or "1.5" according to the locale of the program that this library is
// in.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || std::signbit(number)) return std::nullopt;
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const Unit& unit : units) {
    if (rest == unit.name) return number * unit.factor;
  }
  return std::nullopt;
}

}  // namespace multigrain
