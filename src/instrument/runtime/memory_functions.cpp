#include "instrument/runtime/memory_functions.h"

#include <search.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/private_copies.h"
#include "instrument/runtime/references.h"

namespace multigrain::checks {
namespace {

// A batch of a long copy covers this many bytes, because hazards must not stay published for long.
constexpr size_t kPiece = 4096;

void copy_piece(std::byte* to, const std::byte* from, size_t size) {
  const mg_fine_run runs[] = {{address_of(to), address_of(to) + size, 1, 0, 1},
                              {address_of(from), address_of(from) + size, 0, 0, 1}};
  // No hazard keeps a page here that may be in another node's memory.
  if (!refers() && begin_batch(runs)) {
    std::memmove(to, from, size);
    clear_hazards();
    return;
  }
  std::byte buffer[kPiece];
  load(address_of(from), size, buffer);
  store(address_of(to), size, buffer);
}

// Moves memory as memmove does. The two parts may overlap.
void* move(void* to, const void* from, size_t size) {
  if (!touches_shared(to, size) && !touches_shared(from, size)) return std::memmove(to, from, size);
  begin_access();
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  if (address_of(to) - address_of(from) >= size) {
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

}  // namespace
}  // namespace multigrain::checks

using namespace multigrain::checks;

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
  if (!touches_shared(to, size)) return std::memset(to, byte, size);
  const int error = errno;
  begin_access();
  for (size_t at = 0; at < size; at += kPiece) {
    const size_t piece = std::min(kPiece, size - at);
    auto* const begin = static_cast<std::byte*>(to) + at;
    const mg_fine_run run = {address_of(begin), address_of(begin) + piece, 1, 0, 1};
    if (!refers() && begin_batch({&run, 1})) {
      std::memset(begin, byte, piece);
      clear_hazards();
    } else {
      std::byte buffer[kPiece];
      std::memset(buffer, byte, piece);
      store(address_of(begin), piece, buffer);
    }
  }
  errno = error;
  return to;
}

MG_ENTRY void* __multigrain_memccpy(void* to, const void* from, int last, size_t size) {
  const auto* const end = static_cast<const char*>(__multigrain_memchr(from, last, size));
  const size_t length = end != nullptr ? static_cast<size_t>(end - static_cast<const char*>(from)) + 1 : size;
  __multigrain_memmove(to, from, length);
  return end != nullptr ? static_cast<char*>(to) + length : nullptr;
}
MG_ENTRY void __multigrain_bcopy(const void* from, void* to, size_t size) {
  __multigrain_memmove(to, from, size);
}
MG_ENTRY void __multigrain_bzero(void* to, size_t size) {
  __multigrain_memset(to, 0, size);
}
MG_ENTRY void __multigrain_explicit_bzero(void* to, size_t size) {
  __multigrain_memset(to, 0, size);
}
MG_ENTRY void __multigrain_swab(const void* from, void* to, ssize_t size) {
  if (size > 1)
    swab(InBytes(from, static_cast<size_t>(size)), InOutBytes(to, static_cast<size_t>(size) & ~size_t{1}), size);
}

MG_ENTRY int __multigrain_memcmp(const void* a, const void* b, size_t size) {
  // The memory is compared in pieces, because there may be no memory behind the first difference.
  for (size_t at = 0; at < size; at += kPiece) {
    const size_t piece = std::min(kPiece, size - at);
    const InBytes left(static_cast<const char*>(a) + at, piece);
    const InBytes right(static_cast<const char*>(b) + at, piece);
    if (const int order = std::memcmp(left, right, piece); order != 0) return order;
  }
  return 0;
}
MG_ENTRY int __multigrain_bcmp(const void* a, const void* b, size_t size) {
  return __multigrain_memcmp(a, b, size);
}
MG_ENTRY void* __multigrain_memchr(const void* in, int byte, size_t size) {
  const char* const start = static_cast<const char*>(in);
  // The search goes to the end of a line at a time: there may be no memory behind the byte that it finds.
  constexpr size_t kStep = size_t{1} << MG_FINE_MIN_LINE_SHIFT;
  if (!touches_shared(in, std::min<size_t>(size, SIZE_MAX - address_of(in))))
    return const_cast<void*>(std::memchr(in, byte, size));
  for (size_t at = 0; at < size;) {
    const size_t part = std::min(kStep - (address_of(start) + at) % kStep, size - at);
    const InBytes here(start + at, part);
    if (const void* const found = std::memchr(static_cast<const void*>(here), byte, part)) return here.original(found);
    at += part;
  }
  return nullptr;
}
MG_ENTRY void* __multigrain_rawmemchr(const void* in, int byte) {
  return __multigrain_memchr(in, byte, SIZE_MAX - address_of(in));
}
MG_ENTRY void* __multigrain_memrchr(const void* in, int byte, size_t size) {
  const InBytes bytes(in, size);
  return bytes.original(memrchr(static_cast<const void*>(bytes), byte, size));
}
MG_ENTRY void* __multigrain_memmem(const void* in, size_t size, const void* part, size_t part_size) {
  const InBytes bytes(in, size);
  return bytes.original(memmem(bytes, size, InBytes(part, part_size), part_size));
}

MG_ENTRY size_t __multigrain_strlen(const char* s) {
  return Text(s).size();
}
MG_ENTRY size_t __multigrain_strnlen(const char* s, size_t size) {
  return Text(s, size).size();
}
MG_ENTRY int __multigrain_strcmp(const char* a, const char* b) {
  return std::strcmp(Text(a), Text(b));
}
MG_ENTRY int __multigrain_strncmp(const char* a, const char* b, size_t size) {
  return std::strncmp(Text(a, size), Text(b, size), size);
}
MG_ENTRY int __multigrain_strcasecmp(const char* a, const char* b) {
  return strcasecmp(Text(a), Text(b));
}
MG_ENTRY int __multigrain_strncasecmp(const char* a, const char* b, size_t size) {
  return strncasecmp(Text(a, size), Text(b, size), size);
}
MG_ENTRY int __multigrain_strcoll(const char* a, const char* b) {
  return std::strcoll(Text(a), Text(b));
}
MG_ENTRY int __multigrain_strverscmp(const char* a, const char* b) {
  return strverscmp(Text(a), Text(b));
}
MG_ENTRY size_t __multigrain_strxfrm(char* to, const char* from, size_t size) {
  return std::strxfrm(InOutBytes(to, size), Text(from), size);
}
MG_ENTRY char* __multigrain_strcpy(char* to, const char* from) {
  const Text source(from);
  __multigrain_memcpy(to, source.data(), source.size() + 1);
  return to;
}
MG_ENTRY char* __multigrain_stpcpy(char* to, const char* from) {
  const Text source(from);
  const size_t size = source.size();
  __multigrain_memcpy(to, source.data(), size + 1);
  return to + size;
}
MG_ENTRY char* __multigrain_stpncpy(char* to, const char* from, size_t room) {
  const Text source(from, room);
  const size_t size = source.size();
  __multigrain_memcpy(to, source.data(), size);
  __multigrain_memset(to + size, 0, room - size);
  return to + size;
}
MG_ENTRY char* __multigrain_strncpy(char* to, const char* from, size_t room) {
  __multigrain_stpncpy(to, from, room);
  return to;
}
MG_ENTRY char* __multigrain_strcat(char* to, const char* from) {
  __multigrain_strcpy(to + __multigrain_strlen(to), from);
  return to;
}
MG_ENTRY char* __multigrain_strncat(char* to, const char* from, size_t most) {
  const Text source(from, most);
  const size_t size = source.size();
  char* const end = to + __multigrain_strlen(to);
  __multigrain_memcpy(end, source.data(), size);
  __multigrain_memset(end + size, 0, 1);
  return to;
}
MG_ENTRY char* __multigrain_strchr(const char* s, int c) {
  const Text text(s);
  return text.original(std::strchr(text.data(), c));
}
MG_ENTRY char* __multigrain_strrchr(const char* s, int c) {
  const Text text(s);
  return text.original(std::strrchr(text.data(), c));
}
MG_ENTRY char* __multigrain_strchrnul(const char* s, int c) {
  const Text text(s);
  return text.original(strchrnul(text.data(), c));
}
MG_ENTRY char* __multigrain_index(const char* s, int c) {
  return __multigrain_strchr(s, c);
}
MG_ENTRY char* __multigrain_rindex(const char* s, int c) {
  return __multigrain_strrchr(s, c);
}
MG_ENTRY char* __multigrain_strstr(const char* s, const char* part) {
  const Text text(s);
  return text.original(std::strstr(text.data(), Text(part)));
}
MG_ENTRY char* __multigrain_strcasestr(const char* s, const char* part) {
  const Text text(s);
  return text.original(strcasestr(text.data(), Text(part)));
}
MG_ENTRY char* __multigrain_strpbrk(const char* s, const char* set) {
  const Text text(s);
  return text.original(std::strpbrk(text.data(), Text(set)));
}
MG_ENTRY size_t __multigrain_strspn(const char* s, const char* set) {
  return std::strspn(Text(s), Text(set));
}
MG_ENTRY size_t __multigrain_strcspn(const char* s, const char* set) {
  return std::strcspn(Text(s), Text(set));
}

// Returns the next token from `at` on, and ends it with a zero. Sets `at` to the place behind the token. Returns
// nullptr if there is no token left.
static char* next_token(char*& at, const char* set) {
  const Text separators(set);
  const Text text(at);
  const size_t begin = std::strspn(text, separators);
  if (text[begin] == 0) {
    at += begin;
    return nullptr;
  }
  const size_t length = std::strcspn(text.data() + begin, separators);
  char* const token = at + begin;
  const bool is_last = text[begin + length] == 0;
  at = token + length;
  if (!is_last) __multigrain_memset(at++, 0, 1);
  return token;
}
MG_ENTRY char* __multigrain_strtok_r(char* s, const char* set, char** rest) {
  char* at = s != nullptr ? s : load_shared(rest);
  if (at == nullptr) return nullptr;
  char* const token = next_token(at, set);
  store_shared(rest, at);
  return token;
}
MG_ENTRY char* __multigrain___strtok_r(char* s, const char* set, char** rest) {
  return __multigrain_strtok_r(s, set, rest);
}
MG_ENTRY char* __multigrain_strtok(char* s, const char* set) {
  // As in the C library, all threads share one place. Code without checks uses the C library's own.
  static char* rest;
  return __multigrain_strtok_r(s, set, &rest);
}
MG_ENTRY char* __multigrain_strsep(char** rest, const char* set) {
  char* const token = load_shared(rest);
  if (token == nullptr) return nullptr;
  char* end = __multigrain_strpbrk(token, set);
  if (end != nullptr) __multigrain_memset(end++, 0, 1);
  store_shared(rest, end);
  return token;
}
MG_ENTRY char* __multigrain_strdup(const char* s) {
  return strdup(Text(s));
}
MG_ENTRY char* __multigrain___strdup(const char* s) {
  return strdup(Text(s));
}
MG_ENTRY char* __multigrain_strndup(const char* s, size_t size) {
  return strndup(Text(s, size), size);
}
MG_ENTRY char* __multigrain___strndup(const char* s, size_t size) {
  return strndup(Text(s, size), size);
}

// --- Sorting and searching. The comparison is a function of the program, which has checks.

// Sorts a private copy. The comparison has checks and may wait for other nodes, but the C library moves the
// items without checks.
template <typename Sort>
static void sort_copy(void* base, size_t count, size_t size, Sort&& sort) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || !touches_shared(base, bytes)) return sort(base);
  const std::unique_ptr<char[]> copy(new (std::nothrow) char[bytes]);
  if (copy == nullptr) multigrain::die(1, "qsort of shared memory: no private memory for a copy of it, bytes:", bytes);
  __multigrain_memcpy(copy.get(), base, bytes);
  sort(copy.get());
  __multigrain_memcpy(base, copy.get(), bytes);
}
MG_ENTRY void __multigrain_qsort(void* base, size_t count, size_t size, int (*compare)(const void*, const void*)) {
  sort_copy(base, count, size, [&](void* items) { std::qsort(items, count, size, compare); });
}
MG_ENTRY void __multigrain_qsort_r(void* base, size_t count, size_t size,
                                   int (*compare)(const void*, const void*, void*), void* more) {
  sort_copy(base, count, size, [&](void* items) { qsort_r(items, count, size, compare, more); });
}
MG_ENTRY void* __multigrain_bsearch(const void* key, const void* base, size_t count, size_t size,
                                    int (*compare)(const void*, const void*)) {
  for (size_t low = 0, high = count; low < high;) {
    const size_t middle = low + (high - low) / 2;
    const char* const item = static_cast<const char*>(base) + middle * size;
    const int order = compare(key, item);
    if (order == 0) return const_cast<char*>(item);
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return nullptr;
}
MG_ENTRY void* __multigrain_lfind(const void* key, const void* base, size_t* count, size_t size,
                                  int (*compare)(const void*, const void*)) {
  const char* item = static_cast<const char*>(base);
  for (size_t left = load_shared(count); left > 0; --left, item += size)
    if (compare(key, item) == 0) return const_cast<char*>(item);
  return nullptr;
}
MG_ENTRY void* __multigrain_lsearch(const void* key, void* base, size_t* count, size_t size,
                                    int (*compare)(const void*, const void*)) {
  if (void* const found = __multigrain_lfind(key, base, count, size, compare)) return found;
  const size_t known = load_shared(count);
  void* const place = static_cast<char*>(base) + known * size;
  __multigrain_memcpy(place, key, size);
  store_shared(count, known + 1);
  return place;
}

// Returns the key for a new entry. The table keeps the key, and compares it without checks. So a shared key is replaced
// by a private copy, which lives as long as the table.
static char* key_to_keep(char* key, const ENTRY* found) {
  return !is_shared(key) || found != nullptr ? key : strdup(Text(key));
}
MG_ENTRY int __multigrain_hsearch_r(char* key, void* data, int action, void** entry, void* table) {
  const auto in_out_table = in_out(static_cast<hsearch_data*>(table));
  const Text text(key);
  ENTRY* found = nullptr;
  int done = hsearch_r({const_cast<char*>(text.data()), nullptr}, FIND, &found, in_out_table);
  if (found == nullptr && action == ENTER)
    done = hsearch_r({key_to_keep(key, found), data}, ENTER, &found, in_out_table);
  store_shared(entry, static_cast<void*>(found));
  return done;
}
MG_ENTRY void* __multigrain_hsearch(char* key, void* data, int action) {
  const Text text(key);
  ENTRY* const found = hsearch({const_cast<char*>(text.data()), nullptr}, FIND);
  return found != nullptr || action == FIND ? found : hsearch({key_to_keep(key, found), data}, ENTER);
}
// The C library allocates the nodes of the tree, so they are private.
MG_ENTRY void* __multigrain_tsearch(const void* key, void** root, int (*compare)(const void*, const void*)) {
  return tsearch(key, in_out(root), compare);
}
MG_ENTRY void* __multigrain_tfind(const void* key, void* const* root, int (*compare)(const void*, const void*)) {
  void* const at = root != nullptr ? load_shared(root) : nullptr;
  return tfind(key, root != nullptr ? &at : nullptr, compare);
}
MG_ENTRY void* __multigrain_tdelete(const void* key, void** root, int (*compare)(const void*, const void*)) {
  // The result is unspecified if the root itself is deleted.
  return tdelete(key, in_out(root), compare);
}
