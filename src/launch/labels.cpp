#include "launch/labels.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace multigrain {

std::optional<std::string> write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(target, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{target, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (written < 0)
      return fmt::format("cannot write the output of nodes to standard {}: {}",
                         target == STDERR_FILENO ? "error" : "output", std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
  return std::nullopt;
}

// --- LineLabeller

LineLabeller::LineLabeller(NodeId node) : label_(fmt::format("[{}] ", node.value)) {}

std::string LineLabeller::add(std::string_view piece) {
  line_ += piece;
  std::string out;
  size_t start = 0;
  for (size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n', start)) {
    out += label_;
    out.append(line_, start, end + 1 - start);
    start = end + 1;
  }
  line_.erase(0, start);
  if (line_.size() > kMaxLine) out += finish();
  return out;
}

std::string LineLabeller::finish() {
  if (line_.empty()) return {};
  std::string out = label_ + line_ + "\n";
  line_.clear();
  return out;
}

// --- LabelledOutput

void LabelledOutput::add(int pipe, NodeId node, int target) {
  fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
  streams_.push_back({FileDescriptor(pipe), target, LineLabeller(node)});
}

void LabelledOutput::append_to(std::vector<pollfd>& polled) const {
  for (const Stream& stream : streams_) {
    if (stream.pipe.is_open()) polled.push_back({stream.pipe.get(), POLLIN, 0});
  }
}

void LabelledOutput::drain() {
  for (Stream& stream : streams_) drain(stream);
}

void LabelledOutput::finish() {
  drain();
  for (Stream& stream : streams_) pass_on(stream.target, stream.lines.finish());
}

void LabelledOutput::pass_on(int target, std::string_view text) {
  if (!lost_) lost_ = write_all(target, text);
}

void LabelledOutput::drain(Stream& stream) {
  char buffer[16 * 1024];
  while (stream.pipe.is_open()) {
    const ssize_t got = read(stream.pipe.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      stream.pipe.close();
      return;
    }
    // All lines of a read go out in one write, so that lines of different nodes do not tear each other apart.
    pass_on(stream.target, stream.lines.add({buffer, static_cast<size_t>(got)}));
  }
}

}  // namespace multigrain
