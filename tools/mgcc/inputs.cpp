#include "inputs.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "command.h"
#include "count/note.h"
#include "instrument/note.h"

namespace multigrain::compiler {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kElf = "\177ELF"sv;
constexpr std::string_view kArchive = "!<arch>\n"sv;
// The head of the note of instrument/note.h: the sizes of name and version, the type, and the name.
constexpr std::string_view kNote = "\13\0\0\0\4\0\0\0\1\0\0\0Multigrain\0"sv;

// The same of count/note.h, and what stands for it in a file of -flto.
constexpr std::string_view kCountNote = "\13\0\0\0\4\0\0\0\3\0\0\0Multigrain\0"sv;
// The same of compiled translation (instrument/note.h).
constexpr std::string_view kTranslateNote = "\13\0\0\0\4\0\0\0\4\0\0\0Multigrain\0"sv;
constexpr std::string_view kBitcode = "BC\xc0\xde"sv;

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
  return ends_with_any(name, {".c", ".cc", ".cpp", ".cxx", ".C", ".c++", ".i", ".ii", ".h", ".hpp", ".bc", ".ll"});
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

// Calls look(name, bytes) for each member of a static library, until it returns false. Returns whether it never did. A file that
// is no static library is its own only member, without a name.
template <typename Look>
bool all_members(std::string_view bytes, Look look) {
  if (!bytes.starts_with(kArchive)) return look(std::string_view(), bytes);
  std::string_view long_names;
  for (size_t at = kArchive.size(); at < bytes.size();) {
    if (bytes.size() - at < kHead) return false;
    std::string_view name = bytes.substr(at, kNameLength);
    std::string_view number = bytes.substr(at + kSizeAt, kSizeLength);
    number = number.substr(0, number.find(' '));
    size_t size = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), size).ec != std::errc{}) return false;
    at += kHead;
    if (size > bytes.size() - at) return false;
    const std::string_view member = bytes.substr(at, size);
    at += size + size % 2;
    if (name.starts_with("// ")) long_names = member;
    if (is_table(name)) continue;
    // A long name is in the table, at the place that stands behind the slash.
    size_t place = 0;
    if (name.starts_with('/') && std::from_chars(name.data() + 1, name.data() + name.size(), place).ec == std::errc{} &&
        place < long_names.size())
      name = long_names.substr(place);
    if (!look(name.substr(0, name.find('/')), member)) return false;
  }
  return true;
}

// Returns nothing if the file cannot be read.
std::optional<std::string> contents_of(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) return std::nullopt;
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) return std::nullopt;
  return bytes;
}

bool file_has_checks(const std::string& name) {
  const std::optional<std::string> bytes = contents_of(name);
  return bytes && all_have_checks(*bytes);
}

bool is_counted_object(std::string_view bytes) {
  // A file of -flto has no note before it is linked, but the names of its variables.
  if (bytes.starts_with(kBitcode)) return bytes.find(MG_COUNTED_MODULE) != std::string_view::npos;
  return bytes.starts_with(kElf) && bytes.find(kCountNote) != std::string_view::npos;
}

// The same of compiled translation, but for files of -flto, which get theirs, and the note, when they are compiled.
bool is_translated_object(std::string_view bytes) {
  if (bytes.starts_with(kBitcode)) return bytes.find("__multigrain_translation") != std::string_view::npos;
  return bytes.starts_with(kElf) && bytes.find(kTranslateNote) != std::string_view::npos;
}

// Of other files than object files nothing is known here: checks in a file of -flto are made when it is linked, and a run is refused
// by a shared library without any.
bool may_be_checked(std::string_view bytes) {
  Elf64_Ehdr head;
  if (!bytes.starts_with(kElf) || bytes.size() < sizeof head) return true;
  std::memcpy(&head, bytes.data(), sizeof head);
  return head.e_type != ET_REL || bytes.find(kNote) != std::string_view::npos;
}

// Code without checks has no version of them. The description of a note, its version, follows the name, which is padded to words.
bool has_no_other_version(std::string_view bytes) {
  Elf64_Ehdr head;
  if (!bytes.starts_with(kElf) || bytes.size() < sizeof head) return true;
  std::memcpy(&head, bytes.data(), sizeof head);
  // A shared library has a run of its own to be refused by: the system may have a newer one by then.
  if (head.e_type != ET_REL) return true;
  for (size_t at = bytes.find(kNote); at != std::string_view::npos; at = bytes.find(kNote, at + 1)) {
    uint32_t version;
    const size_t description = at + (kNote.size() + sizeof version - 1) / sizeof version * sizeof version;
    if (description + sizeof version > bytes.size()) return true;
    std::memcpy(&version, bytes.data() + description, sizeof version);
    if (version != MG_FINE_VERSION) return false;
  }
  return true;
}

// What all files that are linked have to be, or should.
struct Demand {
  std::string_view option;
  std::string_view is;      // "counted"
  std::string_view danger;  // what the program would be otherwise
  bool (*holds)(std::string_view object);
  bool of_all = true;  // what cannot be looked at does not hold
};
constexpr Demand kCounted{.option = "-fmultigrain-count",
                          .is = "counted",
                          .danger = "the program would be counted in parts",
                          .holds = &is_counted_object};
constexpr Demand kTranslated{.option = "-fmultigrain-translate",
                             .is = "compiled with translation",
                             .danger = "it would access shared memory that is not here",
                             .holds = &is_translated_object};
constexpr Demand kChecked{.option = "mgcc",
                          .is = "compiled with access checks",
                          .danger = "a run under a line protocol goes wrong where it accesses shared memory",
                          .holds = &may_be_checked,
                          .of_all = false};

constexpr Demand kSameVersion{.option = "this mgcc",
                              .is = "compiled with this version of the access checks",
                              .danger = "a run under a line protocol would be refused",
                              .holds = &has_no_other_version,
                              .of_all = false};

Status check_file(const std::string& name, const Demand& demand) {
  const std::optional<std::string> bytes = contents_of(name);
  if (!bytes) return {};  // the compiler will say so
  std::string without = name;
  const bool all = all_members(*bytes, [&](std::string_view member, std::string_view object) {
    const bool holds = demand.holds(object);
    if (!holds && !member.empty()) without = fmt::format("{}({})", name, member);
    return holds;
  });
  if (all) return {};
  return fail("{} is not {}, and {}: compile it with {}, too", without, demand.is, demand.danger, demand.option);
}

// Returns the file of a library in one of the folders that -L names; nothing if it is in none.
std::string library_file(std::string_view name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    for (const char* const ending : {".so", ".a"}) {
      std::string path = fmt::format("{}/lib{}{}", folder, name, ending);
      if (std::ifstream(path)) return path;
    }
  }
  return {};
}

std::vector<std::string> folders_of_libraries(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("-L")) continue;
    if (arguments[i].size() > 2)
      folders.push_back(arguments[i].substr(2));
    else if (i + 1 < arguments.size())
      folders.push_back(arguments[++i]);
  }
  return folders;
}

}  // namespace

bool all_have_checks(std::string_view bytes) {
  return all_members(bytes, [](std::string_view, std::string_view object) { return is_checked_object(object); });
}

namespace {

Status check_all(const std::vector<std::string>& arguments, const Demand& demand) {
  const std::vector<std::string> folders = folders_of_libraries(arguments);
  bool are_sources = false;  // -x says so
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.starts_with('@') && demand.of_all)
      return fail("{} looks at all files that it links, and not into {}: name them themselves", demand.option,
                  argument);
    if (argument.starts_with("-x")) {
      const bool is_apart = argument == "-x" && i + 1 < arguments.size();
      are_sources = (is_apart ? arguments[++i] : argument.substr(2)) != "none";
    } else if (argument.starts_with("-l")) {
      const bool is_apart = argument == "-l" && i + 1 < arguments.size();
      const std::string_view name = is_apart ? arguments[++i] : std::string_view(argument).substr(2);
      if (is_known_library(name)) continue;
      const std::string file = library_file(name, folders);
      if (file.empty() && !demand.of_all) continue;
      if (file.empty())
        return fail("the library of -l{} is not {}, and {}: compile it with {}, too, and give -L", name, demand.is,
                    demand.danger, demand.option);
      if (const Status good = check_file(file, demand); !good) return good;
    } else if (takes_value(argument)) {
      ++i;
    } else if (argument != "-" && !argument.starts_with('-') && !argument.starts_with('@') && !are_sources &&
               !is_source(argument)) {
      if (const Status good = check_file(argument, demand); !good) return good;
    }
  }
  return {};
}

}  // namespace

Status check_counted(const std::vector<std::string>& arguments) {
  return check_all(arguments, kCounted);
}

Status check_translated(const std::vector<std::string>& arguments) {
  return check_all(arguments, kTranslated);
}

Status check_checked(const std::vector<std::string>& arguments) {
  return check_all(arguments, kChecked);
}

Status check_versions(const std::vector<std::string>& arguments) {
  return check_all(arguments, kSameVersion);
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
