// The program that `explore hlrc` becomes.
#include "explore.h"
#include "hlrc_explorable.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {hlrc::explored::explorable()};
}
