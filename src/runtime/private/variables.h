// The program's variables by name, for messages: from the symbol tables of its files, and where they were declared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace multigrain {

struct Variable {
  std::string name;  // as in the source
  uintptr_t begin = 0;
  size_t size = 0;
  std::string place;  // "file.c:18"; empty: no debug information, or nothing here that reads it

  // "the global bins (hist.c:18)".
  [[nodiscard]] std::string described() const;
};

// The variable of the executable or of a shared library that holds the address; nothing if none does, or if the file
// has no symbol for it. Reads files and may run addr2line: for what is said once, by ordinary code.
std::optional<Variable> variable_at(uintptr_t address);

}  // namespace multigrain
