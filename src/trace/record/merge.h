// This merges the streams of a traced program into one trace (runtime/runtime.h says in which order).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This is what else is known of a recorded run.
struct RecordingFacts {
  uint64_t raw_bytes = 0;           // the size of the streams
  uint64_t spins = 0;               // reads of busy waiting, which the trace leaves out
  uint64_t dropped = 0;             // references of signal handlers that interrupted the recorder
  uint64_t stack_references = 0;    // references of the trace to threads' stacks; complete at the end
  uint64_t private_references = 0;  // references that only their own thread can make; complete at the end
  uint64_t skipped_references = 0;  // those between bursts, which the trace leaves out
  // This says why the recording stopped before the program did; empty: it did not. The trace up to there is complete.
  std::string stopped;
};

class MergedTrace final : public TraceSource {
 public:
  // Reads the two files that a program wrote (raw.h). The caller closes the descriptors. With `consume`, the disk space
  // of the streams is given back as they are read, so that a full disk has room for the merged trace.
  static Result<std::unique_ptr<MergedTrace>> open(int chunks, int descriptions, std::string program, bool consume);
  ~MergedTrace() override;

  [[nodiscard]] const TraceHeader& header() const override;
  Result<Batch> next() override;
  [[nodiscard]] const RecordingFacts& facts() const;
  // Returns how many references there can be at most, for showing progress.
  [[nodiscard]] uint64_t capacity() const;
  void set_dilation(double dilation);

 private:
  struct Implementation;
  explicit MergedTrace(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace multigrain::trace
