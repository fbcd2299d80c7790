#include "inputs.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "command.h"

namespace multigrain::compiler {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kElf = "\177ELF"sv;
constexpr std::string_view kArchive = "!<arch>\n"sv;
// The head of the note of instrument/note.h: the sizes of name and version, the type, and the name.
constexpr std::string_view kNote = "\13\0\0\0\4\0\0\0\1\0\0\0Multigrain\0"sv;

// A member of a static library has a head of this form (ar(5)), and begins at an even place.
constexpr size_t kHead = 60;
constexpr size_t kNameLength = 16;
constexpr size_t kSizeAt = 48;
constexpr size_t kSizeLength = 10;

// Of a shared library the linker takes only a part of what it says of itself into the program.
bool is_checked_object(std::string_view bytes) {
  Elf64_Ehdr head;
  if (!bytes.starts_with(kElf) || bytes.size() < sizeof head) return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  return head.e_type == ET_REL && bytes.find(kNote) != std::string_view::npos;
}

// A static library has tables of symbols and of long names among its members. These are their names.
bool is_table(std::string_view name) {
  name = name.substr(0, name.find(' '));
  return name == "/" || name == "//" || name == "/SYM64/";
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

bool is_source(std::string_view name) {
  return ends_with_any(name, {".c", ".cc", ".cpp", ".cxx", ".C", ".c++", ".i", ".ii", ".h", ".hpp"});
}

// Of these libraries' functions the checks know which access memory, and the rest of what is linked is Multigrain's own.
bool is_known_library(std::string_view name) {
  constexpr std::array kKnown = {"m"sv,   "c"sv,     "pthread"sv, "dl"sv,   "rt"sv,         "stdc++"sv,
                                 "gcc"sv, "gcc_s"sv, "atomic"sv,  "util"sv, "multigrain"sv, "multigrain-openmp"sv};
  return std::ranges::find(kKnown, name) != kKnown.end();
}

// Tells whether the option may bring in more than it says, or hide what is linked.
bool may_bring_more(std::string_view option) {
  if (option.starts_with("-Wl,"))
    return !(option.starts_with("-Wl,-rpath") || option.starts_with("-Wl,-O") || option.starts_with("-Wl,-z,") ||
             option == "-Wl,--as-needed" || option == "-Wl,--no-as-needed");
  return option == "-" || option.starts_with('@') || option == "-x" || option == "-T" || option == "-Xlinker" ||
         option.starts_with("-flto") || option == "-shared" || option.starts_with("-fopenmp");
}

bool file_has_checks(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) return false;
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return file.good() && all_have_checks(bytes);
}

}  // namespace

bool all_have_checks(std::string_view bytes) {
  if (!bytes.starts_with(kArchive)) return is_checked_object(bytes);
  for (size_t at = kArchive.size(); at < bytes.size();) {
    if (bytes.size() - at < kHead) return false;
    const std::string_view name = bytes.substr(at, kNameLength);
    std::string_view number = bytes.substr(at + kSizeAt, kSizeLength);
    number = number.substr(0, number.find(' '));
    size_t size = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), size).ec != std::errc{}) return false;
    at += kHead;
    if (size > bytes.size() - at) return false;
    if (!is_table(name) && !is_checked_object(bytes.substr(at, size))) return false;
    at += size + size % 2;
  }
  return true;
}

bool links_only_checked(const std::vector<std::string>& arguments) {
  const auto is_file = [](const std::string& argument) { return !argument.starts_with('-') && !is_source(argument); };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.starts_with("-l")) {
      const bool is_apart = argument == "-l";
      if (is_apart && i + 1 == arguments.size()) return false;
      if (!is_known_library(is_apart ? arguments[++i] : std::string_view(argument).substr(2))) return false;
      continue;
    }
    if (may_bring_more(argument) || (is_file(argument) && !file_has_checks(argument))) return false;
    if (takes_value(argument)) ++i;
  }
  return true;
}

}  // namespace multigrain::compiler
