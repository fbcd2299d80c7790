// Finds the names of the program's variables, for messages, in the symbol tables of its files, and where they
// were declared.
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
  // "file.c:18"; empty if there is no debug information, or nothing on this host that reads it.
  std::string place;

  // Returns, for example, "the global bins (hist.c:18)".
  [[nodiscard]] std::string described() const;
};

// Returns the variable of the executable or of a shared library that holds the address; nothing if none does, or if the
// file has no symbol for it. It reads files and may run addr2line, so it is for ordinary code that says something once.
std::optional<Variable> variable_at(uintptr_t address);

}  // namespace multigrain
