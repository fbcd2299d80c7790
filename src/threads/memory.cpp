#include "threads/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "runtime/allocation.h"
#include "runtime/interpose/real.h"
#include "runtime/interpose/shared_malloc.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/private/globals.h"

namespace multigrain::threads {
namespace {

bool is_for(const void* caller) {
  return in_program_code(caller) || in_cxx_library_code(caller);
}

bool owns(const void* block) {
  Node* const node = Node::get();
  return node != nullptr && node->region().contains(block);
}

void* allocate_block(size_t size, size_t alignment, bool zeroed, const void* caller) {
  Node& node = *Node::get();
  const auto block =
      multigrain::allocate(node, size, alignment, node.default_placement(size, Grain::kPage),
                           zeroed ? Contents::kZero : Contents::kAny, reinterpret_cast<uint64_t>(caller));
  if (block) return *block;
  errno = ENOMEM;
  return nullptr;
}

size_t usable_size(void* block) {
  const auto size = multigrain::usable_size(*Node::get(), block);
  if (!size) panic("malloc_usable_size() of what malloc did not return; address:", reinterpret_cast<uintptr_t>(block));
  return *size;
}

void release_block(void* block) {
  const int saved = errno;
  if (!multigrain::release(*Node::get(), block, 0))
    panic("free() or realloc() of a pointer that malloc did not return; address:", reinterpret_cast<uintptr_t>(block));
  errno = saved;
}

void* reallocate(void* block, size_t size, const void* caller) {
  if (block == nullptr) return allocate_block(size, 0, false, caller);
  if (size == 0) {  // the C library does so
    release_block(block);
    return nullptr;
  }
  const size_t had = usable_size(block);
  // A block that has become much smaller gives its memory back.
  if (size <= had && size >= had / 4) return block;
  void* const other = allocate_block(size, 0, false, caller);
  if (other == nullptr) return nullptr;
  std::memcpy(other, block, std::min(size, had));
  release_block(block);
  return other;
}

// The length of a block is not known in a forked child, since the heap may be another node's. It is no greater than what
// follows in the region, all of which may be read.
void* reallocate_in_child(void* block, size_t size, const void*) {
  void* const other = std::malloc(size);
  const auto* const region = reinterpret_cast<const std::byte*>(detail::g_shared_base.load());
  const size_t left = detail::g_shared_size.load() - static_cast<size_t>(static_cast<std::byte*>(block) - region);
  if (other != nullptr) std::memcpy(other, block, std::min(size, left));
  return other;
}

constexpr SharedMalloc kMallocFunctionsInChild = {
    .is_for = [](const void*) { return false; },
    .owns = [](const void* block) { return block != nullptr && in_shared_region(block); },
    .allocate = [](size_t, size_t, bool, const void*) -> void* { return nullptr; },
    .reallocate = &reallocate_in_child,
    .release = [](void*) {},
    .usable_size = [](void*) -> size_t { return 0; }};

constexpr SharedMalloc kMallocFunctions = {.is_for = &is_for,
                                           .owns = &owns,
                                           .allocate = &allocate_block,
                                           .reallocate = &reallocate,
                                           .release = &release_block,
                                           .usable_size = &usable_size};

}  // namespace

void serve_memory() {
  static_cast<void>(program_globals());  // finds the program's code
  set_shared_malloc(&kMallocFunctions);
}

void serve_memory_of_child() {
  set_shared_malloc(&kMallocFunctionsInChild);
}

// --- Functions of the C library that allocate for their callers

#if !defined(MULTIGRAIN_NO_MALLOC)

namespace {

// Does vasprintf() for the program, whose call returns to `caller`: measures, and prints.
int print(const SharedMalloc& shared, const void* caller, char** out, const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  int result = -1;
  if (length >= 0) {
    const size_t size = static_cast<size_t>(length) + 1;
    if (auto* const text = static_cast<char*>(shared.allocate(size, 0, false, caller))) {
      result = std::vsnprintf(text, size, format, again);
      *out = text;
    }
  }
  va_end(again);
  return result;
}

}  // namespace

MG_WRAPPER(char*, strdup, const char* text) {
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  if (shared == nullptr) return MG_REAL(strdup)(text);
  const size_t size = std::strlen(text) + 1;
  void* const copy = shared->allocate(size, 0, false, MG_CALLER);
  return copy == nullptr ? nullptr : static_cast<char*>(std::memcpy(copy, text, size));
}
MG_WRAPPER(char*, strndup, const char* text, size_t most) {
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  if (shared == nullptr) return MG_REAL(strndup)(text, most);
  const size_t length = strnlen(text, most);
  auto* const copy = static_cast<char*>(shared->allocate(length + 1, 0, false, MG_CALLER));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}
MG_WRAPPER(wchar_t*, wcsdup, const wchar_t* text) {
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  if (shared == nullptr) return MG_REAL(wcsdup)(text);
  const size_t size = (std::wcslen(text) + 1) * sizeof(wchar_t);
  void* const copy = shared->allocate(size, alignof(wchar_t), false, MG_CALLER);
  return copy == nullptr ? nullptr : static_cast<wchar_t*>(std::memcpy(copy, text, size));
}
MG_WRAPPER(int, vasprintf, char** out, const char* format, va_list arguments) {
  if (const SharedMalloc* const shared = shared_malloc_for(MG_CALLER))
    return print(*shared, MG_CALLER, out, format, arguments);
  return MG_REAL(vasprintf)(out, format, arguments);
}
MG_WRAPPER(int, __vasprintf_chk, char** out, int flag, const char* format, va_list arguments) {
  if (const SharedMalloc* const shared = shared_malloc_for(MG_CALLER))
    return print(*shared, MG_CALLER, out, format, arguments);
  return MG_REAL(__vasprintf_chk)(out, flag, format, arguments);
}
MG_WRAPPER(int, asprintf, char** out, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  const int result = shared != nullptr ? print(*shared, MG_CALLER, out, format, arguments)
                                       : MG_REAL(vasprintf)(out, format, arguments);
  va_end(arguments);
  return result;
}
MG_WRAPPER(int, __asprintf_chk, char** out, int flag, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  const int result = shared != nullptr ? print(*shared, MG_CALLER, out, format, arguments)
                                       : MG_REAL(__vasprintf_chk)(out, flag, format, arguments);
  va_end(arguments);
  return result;
}
// Gives the caller a first buffer, if it has none. The C library makes it larger by realloc(), which keeps shared memory
// shared. Returns false if there is no memory.
static bool has_buffer(const void* caller, char** line, size_t* size) {
  constexpr size_t kFirst = 120;
  const SharedMalloc* const shared = shared_malloc_for(caller);
  if (shared == nullptr || line == nullptr || size == nullptr || *line != nullptr) return true;
  *line = static_cast<char*>(shared->allocate(kFirst, 0, false, caller));
  if (*line != nullptr) *size = kFirst;
  return *line != nullptr;
}

MG_WRAPPER(ssize_t, getdelim, char** line, size_t* size, int delimiter, FILE* file) {
  if (!has_buffer(MG_CALLER, line, size)) return -1;
  return MG_REAL(getdelim)(line, size, delimiter, file);
}
MG_WRAPPER(ssize_t, getline, char** line, size_t* size, FILE* file) {
  if (!has_buffer(MG_CALLER, line, size)) return -1;
  return MG_REAL(getline)(line, size, file);
}
MG_WRAPPER(char*, realpath, const char* path, char* resolved) {
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  if (shared == nullptr || resolved != nullptr) return MG_REAL(realpath)(path, resolved);
  char text[4096];
  if (MG_REAL(realpath)(path, text) == nullptr) return nullptr;
  const size_t size = std::strlen(text) + 1;
  void* const copy = shared->allocate(size, 0, false, MG_CALLER);
  return copy == nullptr ? nullptr : static_cast<char*>(std::memcpy(copy, text, size));
}

#endif

}  // namespace multigrain::threads
