// The protocols of which models are explored; of Shasta, the transitions by themselves.
#include "explore.h"
#include "hlrc_explorable.h"
#include "shasta_scenarios.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {hlrc::model::explorable(), shasta::model::explorable()};
}
