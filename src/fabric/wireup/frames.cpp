#include "fabric/wireup/frames.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace multigrain {
namespace {

constexpr std::byte kMagic[2] = {std::byte{'m'}, std::byte{0xf9}};
constexpr std::byte kVersion{1};
constexpr size_t kReadSize = 64 * 1024;

void make_nonblocking(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Avoids SIGPIPE where that is possible; a process that uses pipes here has the signal blocked.
ssize_t write_quietly(int fd, const std::byte* bytes, size_t size) {
  const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? ::write(fd, bytes, size) : sent;
}

uint64_t read_little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

}  // namespace

void append_frame(std::vector<std::byte>& out, uint8_t type, std::span<const std::byte> payload) {
  MG_CHECK(payload.size() <= kMaxFramePayload, payload.size());
  out.insert(out.end(), {kMagic[0], kMagic[1], kVersion, std::byte{type}});
  for (unsigned shift = 0; shift < 32; shift += 8) out.push_back(static_cast<std::byte>(payload.size() >> shift));
  out.insert(out.end(), payload.begin(), payload.end());
}

// --- FrameParser

void FrameParser::feed(std::span<const std::byte> bytes) {
  if (start_ != 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(start_));
    start_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Frame>> FrameParser::next() {
  const std::span<const std::byte> rest = std::span(buffer_).subspan(start_);
  if (rest.size() < kFrameHeader) return std::nullopt;
  if (rest[0] != kMagic[0] || rest[1] != kMagic[1] || rest[2] != kVersion)
    return fail("what came in is not a frame of this version of Multigrain");
  const uint64_t length = read_little_endian(rest.subspan(4, 4));
  if (length > kMaxFramePayload)
    return fail("a frame of {} bytes came in; they are at most {} long", length, kMaxFramePayload);
  if (rest.size() < kFrameHeader + length) return std::nullopt;
  const auto payload = rest.subspan(kFrameHeader, length);
  Frame frame{.type = std::to_integer<uint8_t>(rest[3]), .payload = {payload.begin(), payload.end()}};
  start_ += kFrameHeader + length;
  return frame;
}

// --- Fields

FieldWriter& FieldWriter::number(uint64_t value) {
  for (unsigned shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<std::byte>(value >> shift));
  return *this;
}

FieldWriter& FieldWriter::text(std::string_view value) {
  return blob(std::as_bytes(std::span(value)));
}

FieldWriter& FieldWriter::blob(std::span<const std::byte> value) {
  number(value.size());
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  return *this;
}

uint64_t FieldReader::number() {
  constexpr size_t kSize = sizeof(uint64_t);
  if (rest_.size() < kSize) {
    good_ = false;
    rest_ = {};
    return 0;
  }
  const uint64_t value = read_little_endian(rest_.first(kSize));
  rest_ = rest_.subspan(kSize);
  return value;
}

uint64_t FieldReader::number(uint64_t maximum) {
  const uint64_t value = number();
  if (value <= maximum) return value;
  good_ = false;
  return 0;
}

std::span<const std::byte> FieldReader::blob() {
  const uint64_t length = number();
  if (length > rest_.size()) {
    good_ = false;
    rest_ = {};
    return {};
  }
  const auto bytes = rest_.first(length);
  rest_ = rest_.subspan(length);
  return bytes;
}

std::string FieldReader::text() {
  const auto bytes = blob();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// --- FrameStream

FrameStream::FrameStream(int in, int out) : in_(in), out_(out) {
  make_nonblocking(in_);
  make_nonblocking(out_);
}

FrameStream::FrameStream(FrameStream&& other) noexcept
    : in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      parser_(std::move(other.parser_)),
      queue_(std::move(other.queue_)),
      written_(other.written_),
      broken_(other.broken_) {}

FrameStream::~FrameStream() {
  close();
}

void FrameStream::close() {
  if (in_ >= 0) ::close(in_);
  if (out_ >= 0 && out_ != in_) ::close(out_);
  in_ = out_ = -1;
  broken_ = true;
  queue_.clear();
  written_ = 0;
}

void FrameStream::send(uint8_t type, std::span<const std::byte> payload) {
  if (broken_) return;
  append_frame(queue_, type, payload);
  flush();
}

void FrameStream::flush() {
  while (!broken_ && queued() != 0) {
    const ssize_t sent = write_quietly(out_, queue_.data() + written_, queued());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) {
      broken_ = true;
      break;
    }
    written_ += static_cast<size_t>(sent);
  }
  // The queue drops the bytes that were written now and then, not with each write.
  if (broken_ || written_ == queue_.size()) {
    queue_.clear();
    written_ = 0;
  } else if (written_ > kReadSize) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(written_));
    written_ = 0;
  }
}

bool FrameStream::receive() {
  if (in_ < 0) return false;
  std::array<std::byte, kReadSize> buffer;
  while (true) {
    const ssize_t got = ::read(in_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    parser_.feed(std::span(buffer).first(static_cast<size_t>(got)));
    // The next call reads the rest, so that one busy stream does not keep its reader from the others.
    return true;
  }
}

}  // namespace multigrain
