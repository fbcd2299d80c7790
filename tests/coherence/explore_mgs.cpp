// The program that `explore mgs` becomes.
#include "explore.h"
#include "mgs_explorable.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {mgs::explored::explorable()};
}
