// Labels the output of several nodes line by line: each line gets its node in front, as in "[2] converged".
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
  // Returns the rest: a line that never ended, which is labelled and ended, or nothing.
  std::string finish();

 private:
  std::string label_;
  std::string line_;  // the beginning of the current line
};

// Labels the output that several nodes write to pipes.
class LabelledOutput {
 public:
  LabelledOutput() = default;
  LabelledOutput(const LabelledOutput&) = delete;
  LabelledOutput& operator=(const LabelledOutput&) = delete;

  // Takes over the reading end of a pipe that `node` writes to; its lines go to the descriptor `target`.
  void add(int pipe, NodeId node, int target);

  // Appends the descriptors to poll: one entry for each pipe that is still open.
  void append_to(std::vector<pollfd>& polled) const;
  // Passes on all output that can be read without waiting.
  void drain();
  // Does the same, and passes on the rests of lines that never ended. The caller does this at the end, when no node
  // writes any more.
  void finish();
  // Returns why some output could not be passed on, if so. From then on all output is thrown away, so that no node
  // waits for mgrun.
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

// Writes all of `text`, and waits where that is needed. If the reader has gone away, SIGPIPE ends mgrun as it would end
// the program. If the text cannot be written for another reason, this returns the sentence about it.
std::optional<std::string> write_all(int target, std::string_view text);

}  // namespace multigrain
