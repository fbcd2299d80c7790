// Reads a trace file. docs/internals/trace-format.md says what is in one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This says where a block of references and events is.
struct BlockInfo {
  uint64_t number = 0;  // the number among all blocks of the file, which error messages name
  uint64_t offset = 0;  // bytes from the beginning of the file
  uint64_t first = 0;   // the index in the trace of the block's first reference
  uint32_t references = 0;
  uint32_t events = 0;
  uint32_t compressed_bytes = 0;  // with the bytes of the block's header
};

struct ReadOptions {
  // This many threads decode ahead of the reader; 0: next() decodes. With several, blocks are decoded in parallel and
  // delivered in order.
  unsigned threads = 0;
  // These are the blocks to read, as indices into TraceFile::blocks(): [first_block, end_block). Readers of disjoint
  // ranges may run in parallel, each with its own TraceFile.
  size_t first_block = 0;
  size_t end_block = ~size_t{0};
  // If this is set, a file that was cut off or is damaged ends before the first bad block instead of with an error, and
  // damage() says why.
  bool allow_partial = false;
};

class TraceFile final : public TraceSource {
 public:
  // Reads the index, or, if the end of the file is missing or damaged, the headers of the blocks that the file has.
  // Fails if `path` is no trace at all, or a trace of a newer version. next() reports other damage after it has
  // delivered the references before it.
  static Result<std::unique_ptr<TraceFile>> open(std::string path, ReadOptions options = {});
  ~TraceFile() override;
  // Returns whether the file can be read and begins as a trace does, of whatever version.
  static bool begins_as_trace(const std::string& path);

  // The header is complete from the beginning, if the file is.
  [[nodiscard]] const TraceHeader& header() const override;
  Result<Batch> next() override;

  // These are of the whole file, whatever range is read.
  [[nodiscard]] const std::vector<BlockInfo>& blocks() const;
  [[nodiscard]] uint64_t references() const;
  [[nodiscard]] uint64_t events() const;
  [[nodiscard]] uint64_t file_bytes() const;
  [[nodiscard]] unsigned version() const;
  // Returns what is wrong with the file as far as is known by now; empty: nothing.
  [[nodiscard]] const std::string& damage() const;

 private:
  struct Implementation;
  explicit TraceFile(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace multigrain::trace
