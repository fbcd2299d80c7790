// These are the machines of a sweep over one parameter.
#include <cmath>

#include "trace/analysis/study.h"
#include "trace/model/optimal.h"

namespace multigrain::trace {
namespace {

constexpr uint64_t kSoftwareOverheadBlock = 512;  // [Bolosky], section 6.2.4

}  // namespace

std::vector<Machine> vary(const Machine& machine, std::string_view parameter) {
  std::vector<Machine> variants;
  auto add = [&](Machine variant) {
    if (variant.processors == 0) {
      variant.processors = 2;  // only for the check
      if (!validate_optimal(variant, {})) return;
      variant.processors = 0;
    } else if (!validate_optimal(variant, {})) {
      return;
    }
    variants.push_back(std::move(variant));
  };
  if (parameter == "o_s") {
    // [Bolosky], section 6.1.2, has "increasing o_s by an order of magnitude"; the sweep goes towards nothing, too.
    for (const double software_overhead : {5.0, 10.0, 20.0, 40.0, 75.0, 150.0, 300.0, 750.0}) {
      const Components components{.software_overhead = software_overhead};
      if (machine.name == "numa") add(numa_machine(kSoftwareOverheadBlock, components));
      if (machine.name == "dsm") add(dsm_machine(kSoftwareOverheadBlock, components));
      if (machine.name == "dsm+") add(dsm_plus_machine(kSoftwareOverheadBlock, components));
    }
    return variants;
  }
  for (int power = -4; power <= 4; ++power) {
    const double factor = std::ldexp(1, power);
    Machine variant = machine;
    auto scale = [&](MoveCost& cost) {
      cost.fixed *= factor;
      cost.per_byte *= factor;
    };
    if (parameter == "R") {
      scale(variant.remote_move);
    } else if (parameter == "G" && machine.has_global()) {
      scale(variant.global_move);
      scale(variant.remote_move);
    } else if (parameter == "r" && machine.has_remote_reference()) {
      variant.r = 1 + (machine.r - 1) * factor;
    } else if (parameter == "g" && machine.has_global()) {
      variant.g = 1 + (machine.g - 1) * factor;
    } else {
      continue;
    }
    add(std::move(variant));
  }
  return variants;
}

}  // namespace multigrain::trace
