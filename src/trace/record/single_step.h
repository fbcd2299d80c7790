// Records an unmodified program, as the ACE tracer did ([Bolosky], section 2.3.1): every thread is single-stepped, and
// each instruction is decoded before it runs.
//
// The threads take turns, with one instruction each. So the order of references is the one in which they were made, and
// threads advance at the same speed, whatever their instructions. A thread in a system call is left alone until it
// returns. The recorder records references to all memory but stacks and thread-local variables; these are private
// references, and so are those of calls and returns. A page of a stack is memory like any other from the first reference of
// another thread to it on. The recorder does not see what the system reads and writes for the program,
// gathers and scatters, and child processes. The program is bound to one core, which it may notice. Recording begins at
// the program's entry point, after the dynamic loader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "trace/format/trace_writer.h"
#include "trace/record/recorder.h"

namespace multigrain::trace {

struct StepOptions {
  uint64_t max_references = 0;  // afterwards the program runs on at full speed; 0: no limit
};

struct SteppedRun {
  RunResult run;
  RecordingFacts facts;
  uint64_t instructions = 0;
  uint64_t gathers = 0;  // instructions whose references are not known
  unsigned processors = 0;
};

// Runs and records a program. It calls `progress` now and then with the number of references so far. The caller
// finishes the writer.
Result<SteppedRun> single_step(const std::vector<std::string>& command, const StepOptions& options, TraceWriter& writer,
                               const std::function<void(uint64_t)>& progress = {});

}  // namespace multigrain::trace
