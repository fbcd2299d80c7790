// What mgcc knows of the files that it links: whether all of them have access checks, and of its own version, are
// counted, and have compiled translation. A run whose protocol Multigrain chooses
// keeps memory coherent by lines only if no code can reach it without checks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace multigrain::compiler {

// Returns whether `bytes`, which are an object file or a static library (not a thin one), have a note of the checks in each
// object file that there is.
[[nodiscard]] bool all_have_checks(std::string_view bytes);

// Returns whether the compiler's arguments link nothing but source files, object files and static libraries with checks, and
// libraries of the system whose functions the checks know. A file that cannot be read has none.
[[nodiscard]] bool links_only_checked(const std::vector<std::string>& arguments);

// Fails if the compiler's arguments link an object file, a member of a static library or a shared library that is not counted
// (-fmultigrain-count), and names it. Libraries of the system whose functions have prices are not looked at.
[[nodiscard]] Status check_counted(const std::vector<std::string>& arguments);

// Fails if they link an object file, or a member of a static library, without access checks, and names it.
[[nodiscard]] Status check_checked(const std::vector<std::string>& arguments);

// Fails if they link an object file, or a member of a static library, whose access checks are of another version of their contract
// (instrument/abi.h) than mgcc's own, and names it.
[[nodiscard]] Status check_versions(const std::vector<std::string>& arguments);

// The same as check_counted() for compiled translation (-fmultigrain-translate).
[[nodiscard]] Status check_translated(const std::vector<std::string>& arguments);

}  // namespace multigrain::compiler
