// Frames: typed messages of a known length over a byte stream, for the launcher's channels (a socket pair to each node,
// ssh's standard input and output to each host).
//
// A frame is 8 bytes of header (two bytes of magic, a version, the type, the payload's length, little-endian), then the
// payload. What comes in is checked as it comes: a length beyond the limit is refused when its header has been read,
// before anything is allocated for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace multigrain {

// Room for a card (Wireup::kMaxCard) and for the longest argument or variable that Linux hands to a program (128 KiB),
// with the fields around them.
inline constexpr size_t kMaxFramePayload = 256 * 1024;
inline constexpr size_t kFrameHeader = 8;

struct Frame {
  uint8_t type = 0;
  std::vector<std::byte> payload;
};

// Appends the frame to `out`. The payload is at most kMaxFramePayload long.
void append_frame(std::vector<std::byte>& out, uint8_t type, std::span<const std::byte> payload);

// Cuts a stream into frames again. Keeps at most what has not been asked for by next().
class FrameParser {
 public:
  void feed(std::span<const std::byte> bytes);
  // The next complete frame, or nothing yet. Error: this is not a stream of frames; nothing more can be had from it.
  Result<std::optional<Frame>> next();
  // Whether the stream ended (or stopped) inside a frame.
  [[nodiscard]] bool in_frame() const { return start_ != buffer_.size(); }

 private:
  std::vector<std::byte> buffer_;
  size_t start_ = 0;  // of what has not been returned
};

// Fields of a payload: numbers are little-endian, texts and blobs have their length in front.
class FieldWriter {
 public:
  FieldWriter& number(uint64_t value);
  FieldWriter& text(std::string_view value);
  FieldWriter& blob(std::span<const std::byte> value);
  [[nodiscard]] std::span<const std::byte> payload() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads them back. What is missing or too long reads as 0 or empty, and complete() is false from then on: read all
// fields, check that, and only then use them.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> payload) : rest_(payload) {}
  uint64_t number();
  // A number up to `maximum`; a larger one is damage.
  uint64_t number(uint64_t maximum);
  std::string text();
  std::span<const std::byte> blob();
  // Every field was there, and nothing follows the last.
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }

 private:
  bool good_ = true;
  std::span<const std::byte> rest_;
};

// Frames over descriptors, without waiting: what cannot be written at once is kept, in order.
class FrameStream {
 public:
  // Takes over the descriptors, which may be the same one, and makes them non-blocking.
  FrameStream(int in, int out);
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;
  FrameStream(FrameStream&& other) noexcept;
  FrameStream& operator=(FrameStream&&) = delete;
  ~FrameStream();

  [[nodiscard]] int in() const { return in_; }
  [[nodiscard]] int out() const { return out_; }

  // Queues a frame and writes what can be written. That the other side is gone shows in receive().
  void send(uint8_t type, std::span<const std::byte> payload = {});
  // Bytes that are queued; if there are any, poll out() for POLLOUT and call flush().
  [[nodiscard]] size_t queued() const { return queue_.size() - written_; }
  void flush();

  // Reads what can be read without waiting. False: the other side has closed the stream; what came before it can still
  // be had from next().
  bool receive();
  Result<std::optional<Frame>> next() { return parser_.next(); }
  // Bytes that were read from the stream by others, before it became one of frames.
  void feed(std::span<const std::byte> bytes) { parser_.feed(bytes); }

  // Closes it both ways; the other side sees its end.
  void close();

 private:
  int in_;
  int out_;
  FrameParser parser_;
  std::vector<std::byte> queue_;
  size_t written_ = 0;  // of the queue
  bool broken_ = false;
};

}  // namespace multigrain
