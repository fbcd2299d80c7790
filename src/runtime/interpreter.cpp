#include "runtime/interpreter.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace multigrain::interpreter {
namespace {

// Options of the interpreter whose value is in the same argument or in the next one.
constexpr std::string_view kWithValue = "WX";
// Options behind which the program is: its text, or a module's name.
constexpr std::string_view kProgram = "cm";
// Options that are about the program alone, or that end the interpreter at once: a worker must not go on with a prompt.
constexpr std::string_view kNotForWorkers = "ixhV?";

}  // namespace

bool is_preloaded() {
  return secure_getenv(kVariable) != nullptr;
}

bool is_here() {
  static const bool here = is_preloaded() && dlsym(RTLD_DEFAULT, "Py_BytesMain") != nullptr;
  return here;
}

std::vector<std::string> worker_arguments(std::span<char* const> arguments, const char* code) {
  std::vector<std::string> result;
  if (!arguments.empty()) result.emplace_back(arguments.front());
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument.size() < 2 || argument.front() != '-' || argument == "--") break;
    if (argument.starts_with("--")) {
      result.emplace_back(argument);
      // The one long option with a value.
      if (argument == "--check-hash-based-pycs" && i + 1 < arguments.size()) result.emplace_back(arguments[++i]);
      continue;
    }
    std::string kept = "-";
    bool at_program = false;
    for (size_t at = 1; at < argument.size() && !at_program; ++at) {
      const char option = argument[at];
      if (kWithValue.find(option) != std::string_view::npos) {
        kept += argument.substr(at);
        if (at + 1 == argument.size() && i + 1 < arguments.size()) {
          result.push_back(std::exchange(kept, "-"));
          result.emplace_back(arguments[++i]);
        }
        break;
      }
      at_program = kProgram.find(option) != std::string_view::npos;
      if (!at_program && kNotForWorkers.find(option) == std::string_view::npos) kept += option;
    }
    if (kept.size() > 1) result.push_back(kept);
    if (at_program) break;
  }
  result.emplace_back("-c");
  result.emplace_back(code);
  return result;
}

void forget_preload() {
  const char* const value = secure_getenv("LD_PRELOAD");
  Dl_info own{};
  if (value == nullptr || dladdr(reinterpret_cast<void*>(&forget_preload), &own) == 0) return;
  // mgrun puts it in front of what the user preloads.
  const std::string_view all = value;
  const size_t end = all.find_first_of(": ");
  if (all.substr(0, end) != own.dli_fname) return;
  const std::string rest(end == std::string_view::npos ? std::string_view() : all.substr(end + 1));
  if (rest.empty())
    unsetenv("LD_PRELOAD");
  else
    setenv("LD_PRELOAD", rest.c_str(), 1);
}

}  // namespace multigrain::interpreter
