// Errors are values that carry one sentence that a user can act on. A broken invariant stops the run and names itself.
//
// tl::expected stands in for C++23's std::expected, which it follows to the letter.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace multigrain {

// Marks an argument of panic or die as absent.
inline constexpr uint64_t kNoNumber = ~uint64_t{0};

// An error says in one sentence what went wrong, and what to do about it where that is known.
struct Error {
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

template <typename... Args>
tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{fmt::format(format, std::forward<Args>(args)...)});
}

// Makes an error of a message and the sentence for errno value `code`: "cannot map frames: Cannot allocate memory".
tl::unexpected<Error> fail_errno(int code, std::string_view what);

// Ends this node: prints "multigrain: node N: <what>" to standard error and aborts. Async-signal-safe: no allocation,
// no stdio. It is for broken invariants and for messages from other nodes that cannot be right. The fixed text is the
// first argument; up to three numbers are printed after it.
[[noreturn]] void panic(const char* what, uint64_t a = kNoNumber, uint64_t b = kNoNumber, uint64_t c = kNoNumber);

// Does the same for faults of the user or the environment rather than of Multigrain: exits with `status`, without a
// core.
[[noreturn]] void die(int status, const char* what, uint64_t a = kNoNumber, uint64_t b = kNoNumber);

// Calls die with a sentence that is made of several pieces of text.
[[noreturn]] void die(int status, std::initializer_list<const char*> pieces);

// Sets the node number that panic and die print. Called once at start-up.
void set_panic_node(unsigned node);

}  // namespace multigrain

// Checks a condition that holds unless Multigrain itself is wrong. It is always compiled in, because the checks are
// cheap.
#define MG_CHECK(condition, ...)                                                                         \
  do {                                                                                                   \
    if (!(condition)) [[unlikely]]                                                                       \
      ::multigrain::panic("invariant broken: " #condition " (" __FILE__ ")" __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
