// The program that `explore dszoom` becomes.
#include "dszoom_scenarios.h"
#include "explore.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {dszoom::explored::explorable()};
}
