#include "instrument/runtime/memory_functions.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "instrument/runtime/memory_access.h"
#include "instrument/runtime/windows.h"

namespace multigrain::checks {
namespace {

// What one batch of a long copy covers: windows are open for a bounded time.
constexpr size_t kPiece = 4096;

uintptr_t number(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}
bool shared(const void* begin, size_t size) {
  return touches_shared(number(begin), number(begin) + size);
}

void copy_piece(std::byte* to, const std::byte* from, size_t size) {
  const mg_fine_run runs[] = {{number(to), number(to) + size, 1, 0, 1}, {number(from), number(from) + size, 0, 0, 1}};
  if (open_batch(runs)) {
    std::memmove(to, from, size);
    close_windows();
    return;
  }
  std::byte buffer[kPiece];
  load(number(from), size, buffer);
  store(number(to), size, buffer);
}

// Overlapping or not, as memmove.
void* move(void* to, const void* from, size_t size) {
  if (!shared(to, size) && !shared(from, size)) return std::memmove(to, from, size);
  begin_access();
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  if (number(to) - number(from) >= size) {
    for (size_t at = 0; at < size; at += kPiece) copy_piece(out + at, in + at, std::min(kPiece, size - at));
  } else {
    for (size_t rest = size; rest > 0;) {
      const size_t piece = std::min(kPiece, rest);
      rest -= piece;
      copy_piece(out + rest, in + rest, piece);
    }
  }
  return to;
}

// A private copy of [from, from + size) if that is shared.
class Readable {
 public:
  Readable(const void* from, size_t size) : data_(static_cast<const char*>(from)) {
    if (size == 0 || !shared(from, size)) return;
    if (size > sizeof small_) copy_ = std::make_unique<char[]>(size);
    char* const copy = copy_ != nullptr ? copy_.get() : small_;
    begin_access();
    load(number(from), size, reinterpret_cast<std::byte*>(copy));
    data_ = copy;
  }
  [[nodiscard]] const char* data() const { return data_; }

 private:
  const char* data_;
  char small_[256];
  std::unique_ptr<char[]> copy_;
};

// A C string, or at most the first `limit` characters of it.
class String {
 public:
  explicit String(const char* s, size_t limit = SIZE_MAX) : original_(s), data_(s) {
    if (!is_shared(number(s))) {
      size_ = limit == SIZE_MAX ? std::strlen(s) : strnlen(s, limit);
      return;
    }
    begin_access();
    // No further than the string is sure to go: to the end of its line.
    constexpr size_t kStep = size_t{1} << MG_FINE_MIN_LINE_SHIFT;
    for (size_t at = 0; at < limit;) {
      const size_t part = std::min(kStep - (number(s) + at) % kStep, limit - at);
      char buffer[kStep];
      load(number(s) + at, part, reinterpret_cast<std::byte*>(buffer));
      const void* const end = std::memchr(buffer, 0, part);
      copy_.append(buffer, end != nullptr ? static_cast<const char*>(end) - buffer : part);
      if (end != nullptr) break;
      at += part;
    }
    data_ = copy_.c_str();
    size_ = copy_.size();
  }
  [[nodiscard]] const char* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  // Where in the original a pointer into data() points.
  [[nodiscard]] char* original(const char* at) const {
    return at == nullptr ? nullptr : const_cast<char*>(original_) + (at - data_);
  }

 private:
  const char* original_;
  const char* data_;
  size_t size_ = 0;
  std::string copy_;
};

}  // namespace
}  // namespace multigrain::checks

using namespace multigrain::checks;

#define MG_ENTRY extern "C" __attribute__((visibility("default")))

MG_ENTRY void* __multigrain_memmove(void* to, const void* from, size_t size) {
  const int error = errno;
  move(to, from, size);
  errno = error;
  return to;
}
MG_ENTRY void* __multigrain_memcpy(void* to, const void* from, size_t size) {
  return __multigrain_memmove(to, from, size);
}
MG_ENTRY void* __multigrain_mempcpy(void* to, const void* from, size_t size) {
  return static_cast<char*>(__multigrain_memmove(to, from, size)) + size;
}
MG_ENTRY void* __multigrain_memset(void* to, int byte, size_t size) {
  if (!shared(to, size)) return std::memset(to, byte, size);
  const int error = errno;
  begin_access();
  for (size_t at = 0; at < size; at += kPiece) {
    const size_t piece = std::min(kPiece, size - at);
    auto* const begin = static_cast<std::byte*>(to) + at;
    const mg_fine_run run = {number(begin), number(begin) + piece, 1, 0, 1};
    if (open_batch({&run, 1})) {
      std::memset(begin, byte, piece);
      close_windows();
    } else {
      std::byte buffer[kPiece];
      std::memset(buffer, byte, piece);
      store(number(begin), piece, buffer);
    }
  }
  errno = error;
  return to;
}

MG_ENTRY int __multigrain_memcmp(const void* a, const void* b, size_t size) {
  // In pieces: memory behind the first difference need not be there.
  for (size_t at = 0; at < size; at += kPiece) {
    const size_t piece = std::min(kPiece, size - at);
    const Readable left(static_cast<const char*>(a) + at, piece);
    const Readable right(static_cast<const char*>(b) + at, piece);
    if (const int order = std::memcmp(left.data(), right.data(), piece); order != 0) return order;
  }
  return 0;
}
MG_ENTRY int __multigrain_bcmp(const void* a, const void* b, size_t size) {
  return __multigrain_memcmp(a, b, size);
}
MG_ENTRY void* __multigrain_memchr(const void* in, int byte, size_t size) {
  const char* const start = static_cast<const char*>(in);
  // To the end of a line at a time: behind the byte that is looked for there may be no memory.
  constexpr size_t kStep = size_t{1} << MG_FINE_MIN_LINE_SHIFT;
  if (!shared(in, std::min<size_t>(size, SIZE_MAX - number(in)))) return const_cast<void*>(std::memchr(in, byte, size));
  for (size_t at = 0; at < size;) {
    const size_t part = std::min(kStep - (number(start) + at) % kStep, size - at);
    const Readable here(start + at, part);
    if (const void* const found = std::memchr(here.data(), byte, part))
      return const_cast<char*>(start) + at + (static_cast<const char*>(found) - here.data());
    at += part;
  }
  return nullptr;
}

MG_ENTRY size_t __multigrain_strlen(const char* s) {
  return String(s).size();
}
MG_ENTRY size_t __multigrain_strnlen(const char* s, size_t size) {
  return String(s, size).size();
}
MG_ENTRY int __multigrain_strcmp(const char* a, const char* b) {
  return std::strcmp(String(a).data(), String(b).data());
}
MG_ENTRY int __multigrain_strncmp(const char* a, const char* b, size_t size) {
  return std::strncmp(String(a, size).data(), String(b, size).data(), size);
}
MG_ENTRY char* __multigrain_strcpy(char* to, const char* from) {
  const String source(from);
  __multigrain_memcpy(to, source.data(), source.size() + 1);
  return to;
}
MG_ENTRY char* __multigrain_stpcpy(char* to, const char* from) {
  const String source(from);
  __multigrain_memcpy(to, source.data(), source.size() + 1);
  return to + source.size();
}
MG_ENTRY char* __multigrain_strncpy(char* to, const char* from, size_t size) {
  const String source(from, size);
  __multigrain_memcpy(to, source.data(), source.size());
  __multigrain_memset(to + source.size(), 0, size - source.size());
  return to;
}
MG_ENTRY char* __multigrain_strcat(char* to, const char* from) {
  __multigrain_strcpy(to + __multigrain_strlen(to), from);
  return to;
}
MG_ENTRY char* __multigrain_strchr(const char* s, int c) {
  const String string(s);
  return string.original(std::strchr(string.data(), c));
}
MG_ENTRY char* __multigrain_strrchr(const char* s, int c) {
  const String string(s);
  return string.original(std::strrchr(string.data(), c));
}
MG_ENTRY char* __multigrain_strstr(const char* s, const char* part) {
  const String string(s);
  return string.original(std::strstr(string.data(), String(part).data()));
}
MG_ENTRY char* __multigrain_strdup(const char* s) {
  return strdup(String(s).data());
}

MG_ENTRY void __multigrain_qsort(void* base, size_t count, size_t size, int (*compare)(const void*, const void*)) {
  if (!shared(base, count * size)) {
    std::qsort(base, count, size, compare);
    return;
  }
  // Sorted as a copy: the comparison may be compiled code that waits for other nodes, but what the C library moves is
  // not.
  const std::unique_ptr<char[]> copy(new (std::nothrow) char[count * size]);
  if (copy == nullptr)
    multigrain::die(1, "qsort of shared memory: no private memory for a copy of it, bytes:", count * size);
  __multigrain_memcpy(copy.get(), base, count * size);
  std::qsort(copy.get(), count, size, compare);
  __multigrain_memcpy(base, copy.get(), count * size);
}

MG_ENTRY int __multigrain_vsnprintf(char* to, size_t size, const char* format, va_list arguments) {
  if (size == 0 || !shared(to, size)) return std::vsnprintf(to, size, format, arguments);
  char* text = nullptr;
  const int length = vasprintf(&text, format, arguments);
  if (length < 0) return length;
  const size_t kept = std::min<size_t>(static_cast<size_t>(length), size - 1);
  text[kept] = 0;
  __multigrain_memcpy(to, text, kept + 1);
  std::free(text);
  return length;
}
MG_ENTRY int __multigrain_vsprintf(char* to, const char* format, va_list arguments) {
  // Of private memory nothing is known but where it begins, so it is left to the C library.
  if (!is_shared(number(to))) return std::vsprintf(to, format, arguments);
  return __multigrain_vsnprintf(to, kViewEnd - number(to), format, arguments);
}
MG_ENTRY int __multigrain_snprintf(char* to, size_t size, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = __multigrain_vsnprintf(to, size, format, arguments);
  va_end(arguments);
  return length;
}
MG_ENTRY int __multigrain_sprintf(char* to, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = __multigrain_vsprintf(to, format, arguments);
  va_end(arguments);
  return length;
}
MG_ENTRY char* __multigrain_fgets(char* to, int size, FILE* stream) {
  if (size <= 0 || !shared(to, static_cast<size_t>(size))) return std::fgets(to, size, stream);
  const std::unique_ptr<char[]> line(new (std::nothrow) char[static_cast<size_t>(size)]);
  if (line == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  if (std::fgets(line.get(), size, stream) == nullptr) return nullptr;
  __multigrain_memcpy(to, line.get(), std::strlen(line.get()) + 1);
  return to;
}

MG_ENTRY const char* __multigrain_string(const char* s) {
  if (!is_shared(number(s))) return s;
  static thread_local std::array<std::string, 16> copies;
  static thread_local size_t next;
  std::string& copy = copies[next++ % copies.size()];
  copy = String(s).data();
  return copy.c_str();
}
