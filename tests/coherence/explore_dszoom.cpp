// `explore dszoom` becomes this program.
#include "dszoom_scenarios.h"
#include "explore.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {dszoom::explored::explorable()};
}
