// Defines an interposed function, and lets it reach the function in front of which it stands.
//
//   MG_WRAPPER(ssize_t, read, int fd, void* buffer, size_t size) { ... MG_REAL(read)(fd, copy, size) ... }
//
// The definition has a C++ name of its own and the assembler name "read": the C library's declaration, whose attributes
// (throw(), nonnull, __wur, redirection for 64-bit offsets) differ between versions, is not involved.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace multigrain {

template <size_t N>
struct FunctionName {
  char text[N];
  consteval FunctionName(const char (&name)[N]) { std::copy_n(name, N, text); }  // NOLINT: implicit on purpose
};

// Returns the next definition of `name` after this library's in the loader's order. Ends the process with a sentence if
// there is none.
void* find_real_function(const char* name);

template <FunctionName Name, typename Function>
inline constinit std::atomic<Function*> g_real_function{nullptr};

// Returns the real function. A constructor of this library looks it up, so that signal handlers do not meet the
// loader's lock; or the first call does, when that comes from a constructor that runs even earlier.
template <FunctionName Name, typename Function>
Function* real_function() {
  Function* function = g_real_function<Name, Function>.load(std::memory_order_relaxed);
  if (function == nullptr) [[unlikely]] {
    function = reinterpret_cast<Function*>(find_real_function(Name.text));
    g_real_function<Name, Function>.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace multigrain

#define MG_WRAPPER(result, name, ...)                                                                    \
  extern "C" result mg_wrap_##name(__VA_ARGS__) asm(#name) __attribute__((visibility("default"), used)); \
  [[gnu::constructor, maybe_unused]] static void mg_resolve_##name() {                                   \
    ::multigrain::real_function<#name, decltype(mg_wrap_##name)>();                                      \
  }                                                                                                      \
  extern "C" result mg_wrap_##name(__VA_ARGS__)

#define MG_REAL(name) ::multigrain::real_function<#name, decltype(mg_wrap_##name)>()
