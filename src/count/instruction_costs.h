// The prices of what counted code executes (mgcc -fmultigrain-count), on the processor that is emulated.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "count/abi.h"

namespace multigrain::counting {

// What a call of a library function costs, in picoseconds, with the call itself.
struct CallCost {
  uint64_t fixed = 0;
  // For functions that say how many bytes they handle: memcpy, memmove, memset, memcmp, bcopy, bzero, bcmp, memchr, strncpy,
  // strncmp, fread, fwrite, read, write. Of others nothing is added.
  uint64_t per_byte = 0;
};

// What compiled code pays for an access that it translates, and that its translation table allows, in picoseconds.
struct TranslationCosts {
  uint64_t pointer = 0;  // through a pointer
  uint64_t array = 0;    // of an element of an array, at an index
  bool operator==(const TranslationCosts&) const = default;
};

// Prices in picoseconds.
struct InstructionCosts {
  std::array<uint64_t, MG_COUNT_CLASSES> of_class{};   // by mg_count_class
  std::map<std::string, CallCost, std::less<>> calls;  // by name, as the linker knows it: "sin", "malloc", "_Znwm"
  CallCost other_calls;                                // library functions that `calls` does not have
  // nullopt: the description does not say, or compiled code does not translate in this run.
  std::optional<TranslationCosts> translation;
};

// The name of each class of instructions in a machine description, in the order of mg_count_class. May be called by any thread.
[[nodiscard]] inline std::span<const std::string_view> class_names() {
  static constexpr std::array<std::string_view, MG_COUNT_INSTRUCTIONS> kNames = {
      "integer", "multiply",  "divide",         "load",         "store",      "branch", "call",
      "atomic",  "float_add", "float_multiply", "float_divide", "float_sqrt", "convert"};
  return kNames;
}

}  // namespace multigrain::counting
