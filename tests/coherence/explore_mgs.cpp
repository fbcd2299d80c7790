// `explore mgs` becomes this program.
#include "explore.h"
#include "mgs_explorable.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {mgs::explored::explorable()};
}
