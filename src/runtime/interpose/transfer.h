// Lets transfers take shared memory, in the two shapes that reads and writes have: one contiguous buffer, and a
// vector of them.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "runtime/interpose/bounce.h"

namespace multigrain {

// One call of the program is one call to the kernel, whatever its size, because message boundaries, O_APPEND and the
// data that a pipe has at the moment depend on it; except that a regular file's larger transfers go in pieces, so that
// reading a big file does not take its size again in memory.
inline constexpr size_t kLargestWhole = size_t{64} << 20;
// The most that Linux transfers in one call.
inline constexpr size_t kLargestTransfer = 0x7fff'f000;

inline bool is_regular_file(int fd) {
  const int saved = errno;
  struct stat status;
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  errno = saved;
  return regular;
}

// Calls one(done, size) for the pieces of a transfer until one comes out short. The result is that of one big call.
template <typename One>
ssize_t in_pieces(int fd, size_t size, One&& one) {
  size = std::min(size, kLargestTransfer);
  if (size <= kLargestWhole || !is_regular_file(fd)) return one(size_t{0}, size);
  size_t done = 0;
  while (done < size) {
    const size_t piece = std::min(size - done, kLargestWhole);
    const ssize_t moved = one(done, piece);
    if (moved < 0) return done != 0 ? static_cast<ssize_t>(done) : moved;
    done += static_cast<size_t>(moved);
    if (static_cast<size_t>(moved) < piece) break;
  }
  return static_cast<ssize_t>(done);
}

// call(bytes, size, done) is the real function on `size` bytes at `bytes`, `done` bytes into the transfer.
template <typename Call>
ssize_t transfer_out(int fd, const void* buffer, size_t size, Call&& call) {
  if (!in_shared_region(buffer)) [[likely]]
    return call(buffer, size, size_t{0});
  return in_pieces(fd, size, [&](size_t done, size_t piece) -> ssize_t {
    Bounce bounce;
    std::byte* copy = bounce.acquire(piece);
    if (copy == nullptr) return -1;
    copy_from_shared(copy, static_cast<const std::byte*>(buffer) + done, piece);
    return call(copy, piece, done);
  });
}

template <typename Call>
ssize_t transfer_in(int fd, void* buffer, size_t size, Call&& call) {
  if (!in_shared_region(buffer)) [[likely]]
    return call(buffer, size, size_t{0});
  return in_pieces(fd, size, [&](size_t done, size_t piece) -> ssize_t {
    Bounce bounce;
    std::byte* copy = bounce.acquire(piece);
    if (copy == nullptr) return -1;
    const ssize_t moved = call(copy, piece, done);
    // With MSG_TRUNC the result is a datagram's length, which may exceed the buffer.
    if (moved > 0)
      copy_to_shared(static_cast<std::byte*>(buffer) + done, copy, std::min(static_cast<size_t>(moved), piece));
    return moved;
  });
}

// The vector of a readv or writev with its shared parts replaced by private ones.
class PrivateVectors {
 public:
  enum class Direction { kOut, kIn };

  PrivateVectors(const iovec* user, size_t count, Direction direction) : used_(user), count_(count) {
    if (count > kMostVectors) return;  // the call will refuse them
    if (in_shared_region(user)) {
      const size_t bytes = count * sizeof *user;
      user = static_cast<const iovec*>(copy_from_shared(user_.acquire_or_die(bytes), user, bytes));
      used_ = user;
    }
    bool shared = false;
    for (size_t i = 0; i < count && !shared; ++i) shared = in_shared_region(user[i].iov_base);
    if (shared) replace(user, direction);
  }
  PrivateVectors(const PrivateVectors&) = delete;
  PrivateVectors& operator=(const PrivateVectors&) = delete;

  // Returns false, with errno set, if there was no memory.
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] const iovec* get() const { return used_; }
  // Stores what a call that moved `moved` bytes has put into the private parts. Returns `moved`.
  ssize_t store(ssize_t moved);

 private:
  static constexpr size_t kMostVectors = 1024;  // UIO_MAXIOV

  void replace(const iovec* user, Direction direction);

  const iovec* used_;
  const iovec* originals_ = nullptr;
  size_t count_;
  bool ready_ = true;
  Bounce user_;  // the vectors themselves, if they are shared
  Bounce bounce_;
};

}  // namespace multigrain
