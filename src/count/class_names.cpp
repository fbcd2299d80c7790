#include <array>

#include "count/instruction_costs.h"

namespace multigrain::counting {

std::span<const std::string_view> class_names() {
  static constexpr std::array<std::string_view, MG_COUNT_CLASSES> kNames = {
      "integer", "multiply",  "divide",         "load",         "store",      "branch", "call",
      "atomic",  "float_add", "float_multiply", "float_divide", "float_sqrt", "convert"};
  return kNames;
}

}  // namespace multigrain::counting
