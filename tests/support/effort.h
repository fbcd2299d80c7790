// This says how much a test does of what is random or large. The stages asan and tsan of ./test run a tenth as fast as
// GCC's optimised code does, in which `./test full` runs the same tests.
#pragma once

#include <type_traits>

namespace multigrain {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = false;
#endif
#else
inline constexpr bool kHasSanitizer = false;
#endif

// Returns `whole`, or with a sanitizer `part`.
template <typename T>
constexpr T effort(T whole, std::type_identity_t<T> part) {
  return kHasSanitizer ? part : whole;
}

}  // namespace multigrain
