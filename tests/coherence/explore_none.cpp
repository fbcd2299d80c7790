// `explore` itself has no machines: each protocol's are in a program of its own.
#include "explore.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {};
}
