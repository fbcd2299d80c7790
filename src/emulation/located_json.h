// JSON whose members know in which line they are, for sentences about files that people write.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace multigrain {

struct LocatedJson {
  LocatedJson() = default;
  explicit LocatedJson(unsigned of_line) : line(of_line) {}

  enum class Kind { kNull, kBoolean, kNumber, kText, kArray, kObject };
  Kind kind = Kind::kNull;
  unsigned line = 1;                  // of its key; of an element of an array, that of the array's key
  double number = 0;                  // kNumber
  std::string text;                   // kText
  std::vector<LocatedJson> elements;  // kArray
  std::vector<std::pair<std::string, LocatedJson>> members;  // kObject, in their order; no key is there twice

  // Returns the member, or nullptr if there is none.
  [[nodiscard]] const LocatedJson* find(std::string_view key) const {
    for (const auto& [name, value] : members)
      if (name == key) return &value;
    return nullptr;
  }
};

// Reads a text. Errors, which begin with "line N: ": it is no JSON, a key is there twice, it is nested more than eight deep, a
// number is none that a double can be.
Result<LocatedJson> parse_located_json(std::string_view text);

}  // namespace multigrain
