#include "runtime/private/variables.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <span>
#include <string_view>

#include "base/child_process.h"
#include "runtime/private/loaded_objects.h"

namespace multigrain {
namespace {

// A file, mapped for reading.
class File {
 public:
  explicit File(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      bytes_ = mapped == MAP_FAILED ? nullptr : static_cast<const char*>(mapped);
    }
    if (fd >= 0) ::close(fd);
  }
  ~File() {
    if (bytes_ != nullptr) ::munmap(const_cast<char*>(bytes_), size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Returns `count` values at `offset`; none if the file has not so many there.
  template <typename T>
  [[nodiscard]] std::span<const T> at(uint64_t offset, uint64_t count) const {
    if (bytes_ == nullptr || offset > size_ || count > (size_ - offset) / sizeof(T) || offset % alignof(T) != 0)
      return {};
    return {reinterpret_cast<const T*>(bytes_ + offset), count};
  }

 private:
  const char* bytes_ = nullptr;
  size_t size_ = 0;
};

struct Place {
  uintptr_t address;
  uintptr_t load = 0;
  std::string file;
};

int find_object(dl_phdr_info* info, size_t, void* context) {
  Place& place = *static_cast<Place*>(context);
  if (!holds(*info, place.address)) return 0;
  place.load = info->dlpi_addr;
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  place.file = path.empty() ? "/proc/self/exe" : path;
  return 1;
}

// Finds the smallest variable in the table that holds the address, which is relative to where the file is loaded.
std::optional<Variable> look_up(const File& file, uint32_t wanted_table, uintptr_t address) {
  const auto header = file.at<ElfW(Ehdr)>(0, 1);
  if (header.empty()) return std::nullopt;
  const auto sections = file.at<ElfW(Shdr)>(header[0].e_shoff, header[0].e_shnum);
  std::optional<Variable> best;
  for (const ElfW(Shdr) & table : sections) {
    if (table.sh_type != wanted_table || table.sh_link >= sections.size()) continue;
    const ElfW(Shdr)& strings = sections[table.sh_link];
    const auto text = file.at<char>(strings.sh_offset, strings.sh_size);
    if (text.empty() || text.back() != 0) continue;
    for (const ElfW(Sym) & symbol : file.at<ElfW(Sym)>(table.sh_offset, table.sh_size / sizeof(ElfW(Sym)))) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF) continue;
      if (address - symbol.st_value >= symbol.st_size || symbol.st_name >= text.size()) continue;
      if (best && best->size <= symbol.st_size) continue;
      best = Variable{.name = &text[symbol.st_name], .begin = symbol.st_value, .size = symbol.st_size, .place = {}};
    }
  }
  return best;
}

std::string readable(const std::string& name) {
  int failed = 0;
  // A name of C such as "a" would be read as that of a type.
  char* const demangled =
      name.starts_with("_Z") ? abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed) : nullptr;
  // C compilers make name.number of a static variable of a function.
  if (demangled == nullptr) return name.substr(0, name.find('.'));
  std::string result = demangled;
  std::free(demangled);
  return result;
}

// Returns where the debug information says that the variable was declared.
std::string declared_at(const std::string& file, uintptr_t address) {
  std::string name(4096, '\0');
  const ssize_t length = file == "/proc/self/exe" ? ::readlink(file.c_str(), name.data(), name.size()) : -1;
  name = length > 0 ? name.substr(0, static_cast<size_t>(length)) : file;
  ChildStart start;
  start.command = {"addr2line", "-e", name, fmt::format("{:#x}", address)};
  start.error = kNullDescriptor;
  const auto answer = run_and_read(start);
  if (!answer) return {};
  const std::string_view place = std::string_view(answer->text).substr(0, answer->text.find('\n'));
  if (place.starts_with("??") || place.ends_with(":?") || place.ends_with(":0")) return {};
  return std::string(place.substr(place.rfind('/') + 1));
}

}  // namespace

std::string Variable::described() const {
  return place.empty() ? fmt::format("the global {}", name) : fmt::format("the global {} ({})", name, place);
}

std::optional<Variable> variable_at(uintptr_t address) {
  Place place{.address = address, .file = {}};
  if (::dl_iterate_phdr(find_object, &place) == 0) return std::nullopt;
  const File file(place.file);
  auto found = look_up(file, SHT_SYMTAB, address - place.load);
  if (!found) found = look_up(file, SHT_DYNSYM, address - place.load);
  if (!found) return std::nullopt;
  found->name = readable(found->name);
  found->place = declared_at(place.file, found->begin);
  found->begin += place.load;
  return found;
}

}  // namespace multigrain
