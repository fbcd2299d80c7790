#include "mgs_explorer.h"

namespace multigrain::mgs::model {

Report explore(const Scenario& scenario, size_t max_states) {
  return exploring::explore<Machine>(scenario, max_states);
}

std::string summary(const Scenario& scenario, const Report& report) {
  return exploring::summary(scenario.name, report);
}

}  // namespace multigrain::mgs::model
