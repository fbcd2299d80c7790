// mgrun's side of --record: the file into which the nodes of a run record (record/streams.h), and the trace and the decisions that
// become of it when the run is over.
#pragma once

#include <memory>
#include <string>

#include "base/bursts.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This is what is known of the run.
struct RecordedRun {
  unsigned nodes = 0;
  std::string program;  // the command, for people
  std::string policy;   // as --policy names it
};

// What became of it.
struct RunRecord {
  uint64_t references = 0;
  uint64_t private_references = 0;
  uint64_t decisions = 0;
  Sampling sampling;
};

class RunRecording {
 public:
  // Makes the file, without a name, in the folder of `trace`, so that nothing is left if the run is killed. Of references, the
  // nodes shall record those of the bursts. Errors: the folder is missing, or may not be written.
  static Result<RunRecording> create(std::string trace, const Bursts& bursts = {});

  // The name by which the nodes of the run open the file, as long as this exists.
  [[nodiscard]] std::string file() const;

  // Returns whether any node has recorded anything.
  [[nodiscard]] bool has_begun() const;

  // Writes the trace, and the decisions beside it (decisions_path()). The run has ended, in whatever way: what precedes its
  // end is there. Processors of the trace are the run's nodes. Replaces what has those names. Errors: no node has recorded
  // anything; no reference was in a burst; the files cannot be written; the recording was overwritten.
  Result<RunRecord> write(const RecordedRun& run);

 private:
  RunRecording(std::string trace, FileDescriptor file) : trace_(std::move(trace)), file_(std::move(file)) {}

  std::string trace_;
  FileDescriptor file_;
};

}  // namespace multigrain::trace
