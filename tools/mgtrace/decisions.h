// What a run's own placement costs, beside what is best and what policies cost: mgtrace analyze --decisions.
#pragma once

#include <string>

#include "analysis_options.h"
#include "base/error.h"

namespace multigrain::trace::tool {

struct DecisionsArguments {
  AnalysisOptions analysis;
  std::string decisions;    // the log; the trace's own if it is "-"
  std::string json_output;  // empty: a table
  bool overwrite = false;
};

// Returns the exit status. Errors: a log that does not fit the trace; machines without global memory; files.
Result<int> analyze_decisions(const DecisionsArguments& arguments);

}  // namespace multigrain::trace::tool
