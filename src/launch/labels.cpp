#include "launch/labels.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace multigrain {
namespace {

// A reader that has gone away sends SIGPIPE, which ends mgrun as it would end the program; other errors lose output
// that nobody can receive.
void write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(target, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{target, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (written < 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

LabelledOutput::~LabelledOutput() {
  for (const Stream& stream : streams_) {
    if (stream.pipe >= 0) close(stream.pipe);
  }
}

void LabelledOutput::add(int pipe, NodeId node, int target) {
  fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
  streams_.push_back({pipe, target, fmt::format("[{}] ", node.value), {}});
}

void LabelledOutput::append_to(std::vector<pollfd>& polled) const {
  for (const Stream& stream : streams_) {
    if (stream.pipe >= 0) polled.push_back({stream.pipe, POLLIN, 0});
  }
}

void LabelledOutput::drain() {
  for (Stream& stream : streams_) drain(stream);
}

void LabelledOutput::finish() {
  drain();
  for (Stream& stream : streams_) {
    if (!stream.line.empty()) write_all(stream.target, stream.label + stream.line + "\n");
    stream.line.clear();
  }
}

void LabelledOutput::drain(Stream& stream) {
  char buffer[16 * 1024];
  while (stream.pipe >= 0) {
    const ssize_t got = read(stream.pipe, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      close(stream.pipe);
      stream.pipe = -1;
      return;
    }
    stream.line.append(buffer, static_cast<size_t>(got));
    pass_on_lines(stream);
  }
}

// One write a batch, so that lines of different nodes do not tear each other apart.
void LabelledOutput::pass_on_lines(Stream& stream) {
  std::string out;
  size_t start = 0;
  for (size_t end = stream.line.find('\n'); end != std::string::npos; end = stream.line.find('\n', start)) {
    out += stream.label;
    out.append(stream.line, start, end + 1 - start);
    start = end + 1;
  }
  stream.line.erase(0, start);
  if (stream.line.size() > kMaxLine) {
    out += stream.label + stream.line + "\n";
    stream.line.clear();
  }
  write_all(stream.target, out);
}

}  // namespace multigrain
