// Lets read and write and their relatives take shared memory. transfer.h has the method.
#include <sys/types.h>
#include <sys/uio.h>

#include "runtime/interpose/real.h"
#include "runtime/interpose/transfer.h"

namespace multigrain {

void PrivateVectors::replace(const iovec* user, Direction direction) {
  size_t total = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (!in_shared_region(user[i].iov_base)) continue;
    if (__builtin_add_overflow(total, user[i].iov_len, &total)) return;  // the call will refuse them
  }
  // The buffer holds the program's vectors, the vectors for the call, and then the bytes.
  const size_t head = 2 * count_ * sizeof(iovec);
  std::byte* bytes = total > SIZE_MAX / 2 ? (errno = ENOMEM, nullptr) : bounce_.acquire(head + total);
  if (bytes == nullptr) {
    ready_ = false;
    return;
  }
  auto* originals = reinterpret_cast<iovec*>(bytes);
  iovec* vectors = originals + count_;
  std::byte* at = bytes + head;
  std::byte* const end = at + total;
  for (size_t i = 0; i < count_; ++i) {
    originals[i] = vectors[i] = user[i];
    if (!in_shared_region(originals[i].iov_base)) continue;
    const size_t length = std::min(originals[i].iov_len, static_cast<size_t>(end - at));
    vectors[i] = {at, length};
    if (direction == Direction::kOut) copy_from_shared(at, originals[i].iov_base, length);
    at += length;
  }
  originals_ = originals;
  used_ = vectors;
}

ssize_t PrivateVectors::store(ssize_t moved) {
  if (originals_ == nullptr || moved <= 0) return moved;
  auto left = static_cast<size_t>(moved);
  for (size_t i = 0; i < count_ && left != 0; ++i) {
    const size_t part = std::min(left, used_[i].iov_len);
    if (used_[i].iov_base != originals_[i].iov_base) copy_to_shared(originals_[i].iov_base, used_[i].iov_base, part);
    left -= part;
  }
  return moved;
}

namespace {

using Direction = PrivateVectors::Direction;

template <typename Call>
ssize_t with_vectors(const iovec* user, int count, Direction direction, Call&& call) {
  PrivateVectors vectors(user, count < 0 ? 0 : static_cast<size_t>(count), direction);
  if (!vectors.ready()) return -1;
  const ssize_t moved = call(vectors.get());
  return direction == Direction::kIn ? vectors.store(moved) : moved;
}

}  // namespace

MG_WRAPPER(ssize_t, read, int fd, void* buffer, size_t size) {
  return transfer_in(fd, buffer, size, [&](void* b, size_t n, size_t) { return MG_REAL(read)(fd, b, n); });
}

MG_WRAPPER(ssize_t, write, int fd, const void* buffer, size_t size) {
  return transfer_out(fd, buffer, size, [&](const void* b, size_t n, size_t) { return MG_REAL(write)(fd, b, n); });
}

// The C library compiles calls with a known buffer size to these, which end the program if it is exceeded.
MG_WRAPPER(ssize_t, __read_chk, int fd, void* buffer, size_t size, size_t buffer_size) {
  if (size > buffer_size) return MG_REAL(__read_chk)(fd, buffer, size, buffer_size);
  return mg_wrap_read(fd, buffer, size);
}

#define MG_POSITIONED(suffix)                                                                                   \
  MG_WRAPPER(ssize_t, pread##suffix, int fd, void* buffer, size_t size, off_t at) {                             \
    return transfer_in(fd, buffer, size, [&](void* b, size_t n, size_t done) {                                  \
      return MG_REAL(pread##suffix)(fd, b, n, at + static_cast<off_t>(done));                                   \
    });                                                                                                         \
  }                                                                                                             \
  MG_WRAPPER(ssize_t, pwrite##suffix, int fd, const void* buffer, size_t size, off_t at) {                      \
    return transfer_out(fd, buffer, size, [&](const void* b, size_t n, size_t done) {                           \
      return MG_REAL(pwrite##suffix)(fd, b, n, at + static_cast<off_t>(done));                                  \
    });                                                                                                         \
  }                                                                                                             \
  MG_WRAPPER(ssize_t, __pread##suffix##_chk, int fd, void* buffer, size_t size, off_t at, size_t buffer_size) { \
    if (size > buffer_size) return MG_REAL(__pread##suffix##_chk)(fd, buffer, size, at, buffer_size);           \
    return mg_wrap_pread##suffix(fd, buffer, size, at);                                                         \
  }                                                                                                             \
  MG_WRAPPER(ssize_t, preadv##suffix, int fd, const iovec* vectors, int count, off_t at) {                      \
    return with_vectors(vectors, count, Direction::kIn,                                                         \
                        [&](const iovec* v) { return MG_REAL(preadv##suffix)(fd, v, count, at); });             \
  }                                                                                                             \
  MG_WRAPPER(ssize_t, pwritev##suffix, int fd, const iovec* vectors, int count, off_t at) {                     \
    return with_vectors(vectors, count, Direction::kOut,                                                        \
                        [&](const iovec* v) { return MG_REAL(pwritev##suffix)(fd, v, count, at); });            \
  }
// off_t is off64_t on x86-64.
MG_POSITIONED()
MG_POSITIONED(64)

#define MG_POSITIONED_WITH_FLAGS(in, out)                                                       \
  MG_WRAPPER(ssize_t, in, int fd, const iovec* vectors, int count, off_t at, int flags) {       \
    return with_vectors(vectors, count, Direction::kIn,                                         \
                        [&](const iovec* v) { return MG_REAL(in)(fd, v, count, at, flags); });  \
  }                                                                                             \
  MG_WRAPPER(ssize_t, out, int fd, const iovec* vectors, int count, off_t at, int flags) {      \
    return with_vectors(vectors, count, Direction::kOut,                                        \
                        [&](const iovec* v) { return MG_REAL(out)(fd, v, count, at, flags); }); \
  }
MG_POSITIONED_WITH_FLAGS(preadv2, pwritev2)
MG_POSITIONED_WITH_FLAGS(preadv64v2, pwritev64v2)

MG_WRAPPER(ssize_t, readv, int fd, const iovec* vectors, int count) {
  return with_vectors(vectors, count, Direction::kIn, [&](const iovec* v) { return MG_REAL(readv)(fd, v, count); });
}

MG_WRAPPER(ssize_t, writev, int fd, const iovec* vectors, int count) {
  return with_vectors(vectors, count, Direction::kOut, [&](const iovec* v) { return MG_REAL(writev)(fd, v, count); });
}

}  // namespace multigrain
