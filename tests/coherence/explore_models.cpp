// What `explore` itself has: the transitions of Shasta by themselves.
#include "explore.h"
#include "shasta_scenarios.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {shasta::model::explorable()};
}
