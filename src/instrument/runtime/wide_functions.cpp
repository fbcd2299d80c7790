// These are wrappers of the C library's functions on wide characters, which are int in the binary interface.
#include <cstdlib>
#include <cwchar>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

using namespace multigrain::checks;

static_assert(sizeof(wchar_t) == sizeof(int));

namespace {

class Wide : public WideText {
 public:
  explicit Wide(const int* s, size_t limit = SIZE_MAX) : WideText(reinterpret_cast<const wchar_t*>(s), limit) {}
  [[nodiscard]] int* original_of(const wchar_t* at) const { return reinterpret_cast<int*>(original(at)); }
};

size_t bytes_of(size_t count) {
  return count * sizeof(int);
}

template <typename Value, typename... Base>
Value number_in(const int* text, int** end, Value (*read)(const wchar_t*, wchar_t**, Base...), Base... base) {
  const Wide copy(text);
  wchar_t* stop = nullptr;
  const Value value = read(copy, &stop, base...);
  if (end != nullptr) store_shared(end, copy.original_of(stop));
  return value;
}

}  // namespace

MG_ENTRY int* __multigrain_wmemset(int* to, int c, size_t count) {
  if (!touches_shared(to, bytes_of(count)))
    return reinterpret_cast<int*>(std::wmemset(reinterpret_cast<wchar_t*>(to), c, count));
  constexpr size_t kPiece = 256;
  int piece[kPiece];
  for (int& each : piece) each = c;
  for (size_t at = 0; at < count; at += kPiece)
    __multigrain_memcpy(to + at, piece, bytes_of(std::min(kPiece, count - at)));
  return to;
}
MG_ENTRY int* __multigrain_wmemcpy(int* to, const int* from, size_t count) {
  return static_cast<int*>(__multigrain_memcpy(to, from, bytes_of(count)));
}
MG_ENTRY int* __multigrain_wmemmove(int* to, const int* from, size_t count) {
  return static_cast<int*>(__multigrain_memmove(to, from, bytes_of(count)));
}
MG_ENTRY int* __multigrain_wmempcpy(int* to, const int* from, size_t count) {
  return __multigrain_wmemcpy(to, from, count) + count;
}
MG_ENTRY int __multigrain_wmemcmp(const int* a, const int* b, size_t count) {
  return std::wmemcmp(InBytes(a, bytes_of(count)), InBytes(b, bytes_of(count)), count);
}
MG_ENTRY int* __multigrain_wmemchr(const int* in, int c, size_t count) {
  const InBytes bytes(in, bytes_of(count));
  const wchar_t* const start = bytes;
  return static_cast<int*>(bytes.original(std::wmemchr(start, c, count)));
}
MG_ENTRY size_t __multigrain_wcslen(const int* s) {
  return Wide(s).size();
}
MG_ENTRY size_t __multigrain_wcsnlen(const int* s, size_t count) {
  return Wide(s, count).size();
}
MG_ENTRY int __multigrain_wcscmp(const int* a, const int* b) {
  return std::wcscmp(Wide(a), Wide(b));
}
MG_ENTRY int __multigrain_wcsncmp(const int* a, const int* b, size_t count) {
  return std::wcsncmp(Wide(a, count), Wide(b, count), count);
}
MG_ENTRY int __multigrain_wcscoll(const int* a, const int* b) {
  return std::wcscoll(Wide(a), Wide(b));
}
MG_ENTRY int* __multigrain_wcpcpy(int* to, const int* from) {
  const Wide source(from);
  const size_t size = source.size();
  __multigrain_memcpy(to, source.data(), bytes_of(size + 1));
  return to + size;
}
MG_ENTRY int* __multigrain_wcscpy(int* to, const int* from) {
  __multigrain_wcpcpy(to, from);
  return to;
}
MG_ENTRY int* __multigrain_wcsncpy(int* to, const int* from, size_t count) {
  const Wide source(from, count);
  const size_t size = source.size();
  __multigrain_memcpy(to, source.data(), bytes_of(size));
  __multigrain_memset(to + size, 0, bytes_of(count - size));
  return to;
}
MG_ENTRY int* __multigrain_wcscat(int* to, const int* from) {
  __multigrain_wcpcpy(to + __multigrain_wcslen(to), from);
  return to;
}
MG_ENTRY int* __multigrain_wcsncat(int* to, const int* from, size_t count) {
  const Wide source(from, count);
  const size_t size = source.size();
  int* const end = to + __multigrain_wcslen(to);
  __multigrain_memcpy(end, source.data(), bytes_of(size));
  __multigrain_memset(end + size, 0, sizeof(int));
  return to;
}
MG_ENTRY int* __multigrain_wcschr(const int* s, int c) {
  const Wide text(s);
  return text.original_of(std::wcschr(text.data(), c));
}
MG_ENTRY int* __multigrain_wcsrchr(const int* s, int c) {
  const Wide text(s);
  return text.original_of(std::wcsrchr(text.data(), c));
}
MG_ENTRY int* __multigrain_wcsstr(const int* s, const int* part) {
  const Wide text(s);
  return text.original_of(std::wcsstr(text.data(), Wide(part)));
}
MG_ENTRY int* __multigrain_wcspbrk(const int* s, const int* set) {
  const Wide text(s);
  return text.original_of(std::wcspbrk(text.data(), Wide(set)));
}
MG_ENTRY size_t __multigrain_wcsspn(const int* s, const int* set) {
  return std::wcsspn(Wide(s), Wide(set));
}
MG_ENTRY size_t __multigrain_wcscspn(const int* s, const int* set) {
  return std::wcscspn(Wide(s), Wide(set));
}
MG_ENTRY int* __multigrain_wcsdup(const int* s) {
  return reinterpret_cast<int*>(wcsdup(Wide(s)));
}
MG_ENTRY size_t __multigrain_mbstowcs(int* to, const char* from, size_t count) {
  return std::mbstowcs(InOutBytes(to, to != nullptr ? bytes_of(count) : 0), Text(from), count);
}
MG_ENTRY size_t __multigrain_wcstombs(char* to, const int* from, size_t count) {
  return std::wcstombs(InOutBytes(to, to != nullptr ? count : 0), Wide(from), count);
}
MG_ENTRY int __multigrain_mbtowc(int* to, const char* from, size_t size) {
  return std::mbtowc(reinterpret_cast<wchar_t*>(static_cast<int*>(in_out(to))), Text(from, size), size);
}
MG_ENTRY int __multigrain_wctomb(char* to, int c) {
  return std::wctomb(InOutBytes(to, to != nullptr ? MB_CUR_MAX : 0), c);
}
MG_ENTRY int __multigrain_mblen(const char* s, size_t size) {
  return std::mblen(Text(s, size), size);
}
MG_ENTRY size_t __multigrain_mbrtowc(int* to, const char* from, size_t size, void* state) {
  return std::mbrtowc(reinterpret_cast<wchar_t*>(static_cast<int*>(in_out(to))), Text(from, size), size,
                      in_out(static_cast<mbstate_t*>(state)));
}
MG_ENTRY size_t __multigrain_wcrtomb(char* to, int c, void* state) {
  return std::wcrtomb(InOutBytes(to, to != nullptr ? MB_CUR_MAX : 0), c, in_out(static_cast<mbstate_t*>(state)));
}
MG_ENTRY long __multigrain_wcstol(const int* text, int** end, int base) {
  return number_in(text, end, std::wcstol, base);
}
MG_ENTRY unsigned long __multigrain_wcstoul(const int* text, int** end, int base) {
  return number_in(text, end, std::wcstoul, base);
}
MG_ENTRY long long __multigrain_wcstoll(const int* text, int** end, int base) {
  return number_in(text, end, std::wcstoll, base);
}
MG_ENTRY unsigned long long __multigrain_wcstoull(const int* text, int** end, int base) {
  return number_in(text, end, std::wcstoull, base);
}
MG_ENTRY double __multigrain_wcstod(const int* text, int** end) {
  return number_in(text, end, std::wcstod);
}
MG_ENTRY float __multigrain_wcstof(const int* text, int** end) {
  return number_in(text, end, std::wcstof);
}
MG_ENTRY int __multigrain_fputws(const int* s, FILE* stream) {
  return std::fputws(Wide(s), stream);
}
