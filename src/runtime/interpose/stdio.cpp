// Lets streams take shared memory. The C library hands large parts of the caller's buffer straight to the kernel,
// through internal calls that cannot be interposed, so fread, fwrite, fputs and puts of shared buffers go in pieces
// through a private one.
//
// fgets, getline, fscanf and the printf family move bytes between the stream's private buffer and the program's in user
// mode and need nothing, with one exception: printf("%s") of a shared string longer than the stream's buffer (4096
// bytes) to a FILE; use fputs or fwrite for those.
#include <cstdio>
#include <cstring>

#include "runtime/interpose/real.h"
#include "runtime/interpose/transfer.h"

namespace multigrain {
namespace {

// Keeps other threads' output out of the middle of a transfer in pieces.
class StreamLock {
 public:
  explicit StreamLock(FILE* stream) : stream_(stream) { ::flockfile(stream); }
  ~StreamLock() { ::funlockfile(stream_); }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  FILE* stream_;
};

struct NoLock {
  explicit NoLock(FILE*) {}
  ~NoLock() {}  // NOLINT: a guard like StreamLock, and used like one
};

// call(bytes, n) is the real function on n items of one byte.
template <typename Lock, typename Call>
size_t read_items(void* buffer, size_t size, size_t count, FILE* stream, Call&& call) {
  size_t total;
  if (size == 0 || count == 0 || __builtin_mul_overflow(size, count, &total)) return 0;
  const Lock lock(stream);
  Bounce bounce;
  std::byte* copy = bounce.acquire_or_die(Bounce::kPooled);
  size_t done = 0;
  while (done < total) {
    const size_t piece = std::min(total - done, Bounce::kPooled);
    const size_t got = call(copy, piece);
    copy_to_shared(static_cast<std::byte*>(buffer) + done, copy, got);
    done += got;
    if (got < piece) break;
  }
  return done / size;
}

template <typename Lock, typename Call>
size_t write_items(const void* buffer, size_t size, size_t count, FILE* stream, Call&& call) {
  size_t total;
  if (size == 0 || count == 0 || __builtin_mul_overflow(size, count, &total)) return 0;
  const Lock lock(stream);
  Bounce bounce;
  std::byte* copy = bounce.acquire_or_die(Bounce::kPooled);
  size_t done = 0;
  while (done < total) {
    const size_t piece = std::min(total - done, Bounce::kPooled);
    copy_from_shared(copy, static_cast<const std::byte*>(buffer) + done, piece);
    const size_t put = call(copy, piece);
    done += put;
    if (put < piece) break;
  }
  return done / size;
}

}  // namespace

MG_WRAPPER(size_t, fread, void* buffer, size_t size, size_t count, FILE* stream) {
  if (!in_shared_region(buffer)) [[likely]]
    return MG_REAL(fread)(buffer, size, count, stream);
  return read_items<StreamLock>(buffer, size, count, stream,
                                [&](void* b, size_t n) { return MG_REAL(fread)(b, 1, n, stream); });
}

MG_WRAPPER(size_t, fread_unlocked, void* buffer, size_t size, size_t count, FILE* stream) {
  if (!in_shared_region(buffer)) [[likely]]
    return MG_REAL(fread_unlocked)(buffer, size, count, stream);
  return read_items<NoLock>(buffer, size, count, stream,
                            [&](void* b, size_t n) { return MG_REAL(fread_unlocked)(b, 1, n, stream); });
}

// The checked forms end the program if the buffer is too small; that stays the C library's decision.
MG_WRAPPER(size_t, __fread_chk, void* buffer, size_t buffer_size, size_t size, size_t count, FILE* stream) {
  size_t total;
  if (!in_shared_region(buffer) || __builtin_mul_overflow(size, count, &total) || total > buffer_size) [[likely]]
    return MG_REAL(__fread_chk)(buffer, buffer_size, size, count, stream);
  return mg_wrap_fread(buffer, size, count, stream);
}

MG_WRAPPER(size_t, __fread_unlocked_chk, void* buffer, size_t buffer_size, size_t size, size_t count, FILE* stream) {
  size_t total;
  if (!in_shared_region(buffer) || __builtin_mul_overflow(size, count, &total) || total > buffer_size) [[likely]]
    return MG_REAL(__fread_unlocked_chk)(buffer, buffer_size, size, count, stream);
  return mg_wrap_fread_unlocked(buffer, size, count, stream);
}

MG_WRAPPER(size_t, fwrite, const void* buffer, size_t size, size_t count, FILE* stream) {
  if (!in_shared_region(buffer)) [[likely]]
    return MG_REAL(fwrite)(buffer, size, count, stream);
  return write_items<StreamLock>(buffer, size, count, stream,
                                 [&](const void* b, size_t n) { return MG_REAL(fwrite)(b, 1, n, stream); });
}

MG_WRAPPER(size_t, fwrite_unlocked, const void* buffer, size_t size, size_t count, FILE* stream) {
  if (!in_shared_region(buffer)) [[likely]]
    return MG_REAL(fwrite_unlocked)(buffer, size, count, stream);
  return write_items<NoLock>(buffer, size, count, stream,
                             [&](const void* b, size_t n) { return MG_REAL(fwrite_unlocked)(b, 1, n, stream); });
}

MG_WRAPPER(int, fputs, const char* string, FILE* stream) {
  if (!in_shared_region(string)) [[likely]]
    return MG_REAL(fputs)(string, stream);
  const size_t length = length_of_shared(string);
  return mg_wrap_fwrite(string, 1, length, stream) == length ? 1 : EOF;
}

MG_WRAPPER(int, fputs_unlocked, const char* string, FILE* stream) {
  if (!in_shared_region(string)) [[likely]]
    return MG_REAL(fputs_unlocked)(string, stream);
  const size_t length = length_of_shared(string);
  return mg_wrap_fwrite_unlocked(string, 1, length, stream) == length ? 1 : EOF;
}

MG_WRAPPER(int, puts, const char* string) {
  if (!in_shared_region(string)) [[likely]]
    return MG_REAL(puts)(string);
  const StreamLock lock(stdout);
  return mg_wrap_fputs(string, stdout) == EOF || ::putchar('\n') == EOF ? EOF : 1;
}

// The kernel reads and writes a stream's own buffer. The standard lets setvbuf ignore the buffer that it is offered, so
// a shared one is ignored.
MG_WRAPPER(int, setvbuf, FILE* stream, char* buffer, int mode, size_t size) {
  return MG_REAL(setvbuf)(stream, in_shared_region(buffer) ? nullptr : buffer, mode, size);
}

MG_WRAPPER(void, setbuffer, FILE* stream, char* buffer, size_t size) {
  if (in_shared_region(buffer)) {
    MG_REAL(setvbuf)(stream, nullptr, _IOFBF, size);
  } else {
    MG_REAL(setbuffer)(stream, buffer, size);
  }
}

MG_WRAPPER(void, setbuf, FILE* stream, char* buffer) {
  if (in_shared_region(buffer)) {
    MG_REAL(setvbuf)(stream, nullptr, _IOFBF, BUFSIZ);
  } else {
    MG_REAL(setbuf)(stream, buffer);
  }
}

}  // namespace multigrain
