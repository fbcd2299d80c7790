// Runs a program that `mgtrace cc` built, records its references, and writes its trace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bursts.h"
#include "base/error.h"
#include "trace/record/merge.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This says how a program ended, and how long it took.
struct RunResult {
  int exit_status = 0;  // as a shell reports it: 128 + the signal's number if a signal ended the program
  int signal = 0;       // 0: none
  double seconds = 0;   // real time
};

struct RecordOptions {
  std::vector<std::string> command;
  // The streams are kept there while the program runs, 16 bytes a reference. They have no name.
  std::string scratch_directory = ".";
  uint64_t max_references = 0;  // an approximate limit; 0: none
  Bursts bursts = {};           // of the references of each processor
  // If this is not empty, this program runs first, with the command's arguments, and dilation is measured against it.
  std::string baseline;
};

struct Recording {
  RunResult run;
  RunResult baseline;
  double dilation = 0;  // 0: not known
  std::unique_ptr<MergedTrace> trace;
};

// Runs the command to its end; before that the baseline, if there is one, without input and output. It is no error if the
// program was killed, or if its recording had to stop; then the trace is shorter.
Result<Recording> record_program(const RecordOptions& options);

// Runs a command, without its output if `quiet`. `environment` has additional variables, "NAME=value".
Result<RunResult> run_command(const std::vector<std::string>& command, bool quiet,
                              const std::vector<std::string>& environment = {});

// Makes a file without a name in `directory`.
Result<int> open_unnamed(const std::string& directory);

}  // namespace multigrain::trace
