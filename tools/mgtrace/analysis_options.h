// What to analyze a trace for: the options that `mgtrace analyze` and `mgtrace report` share, and the study that they
// ask for.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain::trace::tool {

struct AnalysisOptions {
  std::string input;
  std::vector<std::string> machines, block_sizes, policies, parameters, tlbs;
  std::string attribution_block_size = "64";
  std::string map, caches = "none";
  std::string cache_line = "64";
  bool all_machines = false, false_sharing = false, partial = false, variable_blocks = false, contention = false;
  double merge_ratio = 1;
  unsigned word_bytes = 4, perturb = 0, hot_blocks = 10, threads = 1;
  uint64_t seed = 1;
};

// The option --map, of every command that analyzes a trace.
void add_map_option(CLI::App& command, std::string& map);

// The option --caches, of the same commands; `otherwise` says for people what is there without it.
void add_caches_option(CLI::App& command, std::string& caches, const char* otherwise);

// All but the trace itself.
void add_analysis_options(CLI::App& command, AnalysisOptions& options);

// The study of the trace `options.input` with a progress bar. Beside what analysis/study.h documents, it has the
// trace's "file" in "trace", with "damage" if --partial allowed it some (which standard error gets, too), and the
// "command" that it can be repeated with.
Result<nlohmann::json> analyze_trace(const AnalysisOptions& options);

}  // namespace multigrain::trace::tool
