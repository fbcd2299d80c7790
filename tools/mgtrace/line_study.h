// A study of how a program's cores share cache lines: what `mgtrace sharing` and `mgtrace compare` print.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "trace/analysis/caches.h"

namespace multigrain::trace::tool {

struct LineStudyOptions {
  std::string machine = "cache-lines";
  std::string line_size = "64";
  std::string map;
  std::string caches;  // empty: those of today, where the machine's memories are the caches of cores
  unsigned word_bytes = 4;
  bool partial = false;
};

void add_line_study_options(CLI::App& command, LineStudyOptions& options);

struct LineStudy {
  nlohmann::json study;  // src/trace/analysis/study.h documents it
  double mcpr =
      1;  // the mean cost of a reference, in units of the machine's, where a line moves to whoever refers to it
  CacheSetup caches = {};  // whose replaced lines do not count as moved; empty: none
  double move_ns = 0;      // what one move of a line costs; 0: the machine does not say how long its unit is
  double all_ns = 0;       // what all references cost, private ones and moves among them
  double scale = 1;        // references of the run for each of the trace

  [[nodiscard]] const nlohmann::json& attribution() const { return study["false_sharing"]["attribution"]; }
  // A count of the trace as one of the run: of a sampled trace, an estimate.
  [[nodiscard]] uint64_t of_run(const nlohmann::json& count) const;
  // Block moves of the kind "cold", "useful" or "false". First copies are made once, so those of bursts are no sample of them.
  [[nodiscard]] uint64_t moves(const char* kind) const {
    const nlohmann::json& count = attribution()["moves"][kind];
    return kind == std::string_view("cold") ? count.get<uint64_t>() : of_run(count);
  }
  [[nodiscard]] uint64_t all_moves() const { return moves("cold") + moves("useful") + moves("false"); }
};

Result<LineStudy> study_lines(const std::string& trace, const LineStudyOptions& options);

}  // namespace multigrain::trace::tool
