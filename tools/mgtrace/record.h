// Records a program into a trace file: what `mgtrace record` does, and `mgtrace sharing` first.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain::trace::tool {

struct RecordArguments {
  std::string output = "trace.mgt";
  bool overwrite = false;
  bool single_step = false;
  bool json = false;   // print the summary as JSON
  bool quiet = false;  // print no summary
  std::string baseline;
  std::string scratch;  // empty: the output's folder
  uint64_t limit = 0;
  std::string sample;  // "BURST/INTERVAL"; empty: all references
  int level = 3;
};

void add_sample_option(CLI::App& command, RecordArguments& options);

// Runs the command and writes its trace. The value is the exit status: the program's, or 1 if the recording stopped before
// the program did.
Result<int> record_trace(RecordArguments options, const std::vector<std::string>& command);

}  // namespace multigrain::trace::tool
