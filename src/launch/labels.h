// Output of several nodes, line by line, each line with its node in front: "[2] converged".
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/ids.h"

namespace multigrain {

// Labels the lines of one node's stream.
class LineLabeller {
 public:
  // A line longer than this is passed on in pieces.
  static constexpr size_t kMaxLine = 64 * 1024;

  explicit LineLabeller(NodeId node);
  // Takes the next piece of the stream; returns the lines that are complete, labelled.
  std::string add(std::string_view piece);
  // What is left: a line that never ended, labelled and ended, or nothing.
  std::string finish();

 private:
  std::string label_;
  std::string line_;  // the beginning of the current line
};

// Labels what several nodes write to pipes.
class LabelledOutput {
 public:
  LabelledOutput() = default;
  LabelledOutput(const LabelledOutput&) = delete;
  LabelledOutput& operator=(const LabelledOutput&) = delete;

  // Takes over the reading end of a pipe that `node` writes to; its lines go to the descriptor `target`.
  void add(int pipe, NodeId node, int target);

  // Appends what to poll for: one entry a pipe that is still open.
  void append_to(std::vector<pollfd>& polled) const;
  // Passes on whatever can be read without waiting.
  void drain();
  // The same, and what is left of lines that never ended. For the end, when no node writes any more.
  void finish();
  // Why some of it could not be passed on; from then on all is thrown away, so that no node waits for mgrun.
  [[nodiscard]] const std::optional<std::string>& lost() const { return lost_; }

 private:
  struct Stream {
    FileDescriptor pipe;
    int target;
    LineLabeller lines;
  };

  void drain(Stream& stream);
  void pass_on(int target, std::string_view text);

  std::vector<Stream> streams_;
  std::optional<std::string> lost_;
};

// Writes all of it, waiting where that is needed. A reader that has gone away sends SIGPIPE, which ends mgrun as it
// would end the program. Otherwise returns the sentence about what could not be written.
std::optional<std::string> write_all(int target, std::string_view text);

}  // namespace multigrain
