// Frames: typed messages of a known length over a byte stream, for the launcher's channels (a socket pair to each node,
// ssh's standard input and output to each host).
//
// A frame is 8 bytes of header (two bytes of magic, a version, the type, the payload's length, little-endian), then the
// payload. Frames are checked as they come in: a length beyond the limit is refused when the header has been read,
// before memory is allocated for the payload.
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

// A payload has room for a card (Wireup::kMaxCard) and for the longest argument or variable that Linux hands to a
// program (128 KiB), with the fields around them.
inline constexpr size_t kMaxFramePayload = 256 * 1024;
inline constexpr size_t kFrameHeader = 8;

struct Frame {
  uint8_t type = 0;
  std::vector<std::byte> payload;
};

// Appends the frame to `out`. The payload is at most kMaxFramePayload long.
void append_frame(std::vector<std::byte>& out, uint8_t type, std::span<const std::byte> payload);

// Cuts a stream into frames again. It keeps at most the bytes that next() has not returned yet.
class FrameParser {
 public:
  void feed(std::span<const std::byte> bytes);
  // Returns the next complete frame, or nothing if it has not come yet. Error: this is not a stream of frames; no more
  // frames can be read from it.
  Result<std::optional<Frame>> next();

 private:
  std::vector<std::byte> buffer_;
  size_t start_ = 0;  // begin of the bytes that were not returned
};

// Writes the fields of a payload: numbers are little-endian, texts and blobs have their length in front.
class FieldWriter {
 public:
  FieldWriter& number(uint64_t value);
  FieldWriter& text(std::string_view value);
  FieldWriter& blob(std::span<const std::byte> value);
  [[nodiscard]] std::span<const std::byte> payload() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads the fields of a payload. A field that is missing or too long reads as 0 or empty, and complete() is false from
// then on: a caller reads all fields, checks complete(), and only then uses them.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> payload) : rest_(payload) {}
  uint64_t number();
  // Reads a number up to `maximum`; a larger number counts as damage.
  uint64_t number(uint64_t maximum);
  std::string text();
  std::span<const std::byte> blob();
  // Returns whether every field was there, and nothing follows the last.
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }

 private:
  bool good_ = true;
  std::span<const std::byte> rest_;
};

// Frames over descriptors, without waiting: bytes that cannot be written at once are kept, in order.
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

  // Queues a frame and writes as much as can be written. If the other side is gone, receive() shows that.
  void send(uint8_t type, std::span<const std::byte> payload = {});
  // Returns how many bytes are queued. If there are any, the caller polls out() for POLLOUT and calls flush().
  [[nodiscard]] size_t queued() const { return queue_.size() - written_; }
  void flush();

  // Reads what can be read without waiting. Returns false if the other side has closed the stream; next() still returns
  // the frames that came before.
  bool receive();
  Result<std::optional<Frame>> next() { return parser_.next(); }
  // Takes bytes that other code has read from the stream, before it became a stream of frames.
  void feed(std::span<const std::byte> bytes) { parser_.feed(bytes); }

  // Closes the stream both ways; the other side sees its end.
  void close();

 private:
  int in_;
  int out_;
  FrameParser parser_;
  std::vector<std::byte> queue_;
  size_t written_ = 0;  // bytes of the queue that were written
  bool broken_ = false;
};

}  // namespace multigrain
