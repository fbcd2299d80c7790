// Output of several nodes, line by line, each line with its node in front: "[2] converged".
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "base/ids.h"

namespace multigrain {

class LabelledOutput {
 public:
  // A line longer than this is passed on in pieces.
  static constexpr size_t kMaxLine = 64 * 1024;

  LabelledOutput() = default;
  LabelledOutput(const LabelledOutput&) = delete;
  LabelledOutput& operator=(const LabelledOutput&) = delete;
  ~LabelledOutput();

  // Takes over the reading end of a pipe that `node` writes to; its lines go to the descriptor `target`.
  void add(int pipe, NodeId node, int target);

  // Appends what to poll for: one entry a pipe that is still open.
  void append_to(std::vector<pollfd>& polled) const;
  // Passes on whatever can be read without waiting.
  void drain();
  // The same, and what is left of lines that never ended. For the end, when no node writes any more.
  void finish();

 private:
  struct Stream {
    int pipe;  // -1: closed
    int target;
    std::string label;
    std::string line;  // the beginning of the current line
  };

  static void drain(Stream& stream);
  static void pass_on_lines(Stream& stream);

  std::vector<Stream> streams_;
};

}  // namespace multigrain
