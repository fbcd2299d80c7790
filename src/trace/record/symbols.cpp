#include "trace/record/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <tuple>

#include "base/child_process.h"

namespace multigrain::trace {
namespace {

// This is a file mapped for reading; it is empty if it cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status = {};
    if (fstat(fd, &status) == 0 && status.st_size > 0) {
      void* const mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) data_ = static_cast<const char*>(mapped), size_ = static_cast<size_t>(status.st_size);
    }
    close(fd);
  }
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Returns the `count` elements at `offset`, or null if they are not all in the file.
  template <typename T>
  [[nodiscard]] const T* at(uint64_t offset, uint64_t count = 1) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(T) || offset % alignof(T) != 0) return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }
  // Returns a string that ends in the file, or "".
  [[nodiscard]] const char* string(uint64_t offset) const {
    if (offset >= size_ || std::memchr(data_ + offset, 0, size_ - offset) == nullptr) return "";
    return data_ + offset;
  }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Runs `command` with `input` and returns what it prints; empty if it cannot be run.
std::string output_of(const std::vector<std::string>& command, const std::string& input) {
  // The input goes through a file, because a pipe could fill up while this process does not read the output.
  const int in = memfd_create("input", MFD_CLOEXEC);
  if (in < 0) return "";
  int out[2];
  if (write(in, input.data(), input.size()) != static_cast<ssize_t>(input.size()) || lseek(in, 0, SEEK_SET) != 0 ||
      pipe2(out, O_CLOEXEC) != 0) {
    close(in);
    return "";
  }
  ChildStart start;
  start.command = command;
  start.input = in;
  start.output = out[1];
  start.error = kNullDescriptor;
  const auto child = start_child(start);
  close(in);
  close(out[1]);
  std::string output;
  if (child) {
    output = read_to_end(out[0]);
    wait_for_child(*child);
  }
  close(out[0]);
  return output;
}

// A name of C++ as the program has it; others as they are.
std::string readable(const char* name) {
  if (!std::string_view(name).starts_with("_Z")) return name;
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = text != nullptr ? text : name;
  std::free(text);
  return out;
}

}  // namespace

std::vector<Mapping> mappings_of(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  std::ostringstream text;
  text << maps.rdbuf();
  return mappings_in(text.str());
}

std::vector<Mapping> mappings_in(const std::string& text) {
  std::vector<Mapping> mappings;
  std::istringstream maps(text);
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    Mapping mapping;
    char dash = 0;
    std::string rights, device, inode;
    fields >> std::hex >> mapping.begin >> dash >> mapping.end >> rights >> mapping.offset >> device >> inode;
    if (!fields) continue;
    std::getline(fields >> std::ws, mapping.path);
    mapping.executable = rights.size() > 2 && rights[2] == 'x';
    mappings.push_back(std::move(mapping));
  }
  return mappings;
}

void Symbols::load(const std::vector<Mapping>& mappings) {
  modules_.clear();
  functions_.clear();
  variables_.clear();
  for (const Mapping& mapping : mappings) {
    if (!mapping.executable || !mapping.path.starts_with("/")) continue;
    const MappedFile file(mapping.path);
    const auto* const header = file.at<Elf64_Ehdr>(0);
    if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) continue;
    const auto* const segments = file.at<Elf64_Phdr>(header->e_phoff, header->e_phnum);
    if (segments == nullptr) continue;
    for (unsigned i = 0; i < header->e_phnum; ++i) {
      const Elf64_Phdr& segment = segments[i];
      const uint64_t page = segment.p_offset & ~uint64_t{4095};
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || page != mapping.offset) continue;
      load_module({mapping.begin, mapping.end, mapping.begin - (segment.p_vaddr & ~uint64_t{4095}), mapping.path});
    }
  }
  std::sort(functions_.begin(), functions_.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
  // Of aliases, and of what is in two tables of a file, the longest stays.
  std::sort(variables_.begin(), variables_.end(), [](const Variable& a, const Variable& b) {
    return std::tie(a.begin, b.bytes, a.name) < std::tie(b.begin, a.bytes, b.name);
  });
  uint64_t end = 0;
  std::erase_if(variables_, [&](const Variable& variable) {
    if (variable.begin < end) return true;
    end = variable.begin + variable.bytes;
    return false;
  });
}

void Symbols::load_module(const Module& module) {
  modules_.push_back(module);
  const MappedFile file(module.path);
  const auto* const header = file.at<Elf64_Ehdr>(0);
  const auto* const sections = file.at<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    if ((section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) || section.sh_link >= header->e_shnum)
      continue;
    const uint64_t count = section.sh_size / sizeof(Elf64_Sym);
    const auto* const symbols = file.at<Elf64_Sym>(section.sh_offset, count);
    if (symbols == nullptr) continue;
    for (uint64_t j = 0; j < count; ++j) {
      const Elf64_Sym& symbol = symbols[j];
      if (symbol.st_shndx == SHN_UNDEF) continue;
      const uint64_t begin = symbol.st_value + module.bias;
      const char* const name = file.string(sections[section.sh_link].sh_offset + symbol.st_name);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
        functions_.push_back({begin, begin + symbol.st_size, name});
      } else if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size != 0 &&
                 symbol.st_shndx < header->e_shnum && (sections[symbol.st_shndx].sh_flags & SHF_WRITE) != 0) {
        variables_.push_back({begin, symbol.st_size, readable(name), module.path});
      }
    }
  }
}

std::vector<uint64_t> Symbols::find(std::string_view name) const {
  std::vector<uint64_t> found;
  for (const Function& function : functions_) {
    if (function.name == name) found.push_back(function.begin);
  }
  return found;
}

const Symbols::Module* Symbols::module_of(uint64_t address) const {
  for (const Module& module : modules_) {
    if (address >= module.begin && address < module.end) return &module;
  }
  return nullptr;
}

Site Symbols::site_of(uint64_t address) const {
  Site site;
  if (const Module* const module = module_of(address)) site.file = module->path;
  auto after = std::upper_bound(functions_.begin(), functions_.end(), address,
                                [](uint64_t a, const Function& function) { return a < function.begin; });
  // Aliases begin together, and a nested label of size 0 may be in between.
  for (int looked = 0; after != functions_.begin() && looked < 8; ++looked) {
    --after;
    if (address < after->end) {
      site.function = readable(after->name.c_str());
      break;
    }
  }
  return site;
}

void Symbols::add_lines(const std::vector<uint64_t>& addresses, std::vector<Site>& sites) const {
  std::map<const Module*, std::vector<size_t>> by_module;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (const Module* const module = module_of(addresses[i])) by_module[module].push_back(i);
  }
  for (const auto& [module, indices] : by_module) {
    std::string input;
    for (const size_t i : indices) input += fmt::format("{:x}\n", addresses[i] - module->bias);
    std::istringstream lines(output_of({"addr2line", "-e", module->path}, input));
    std::string line;
    for (size_t i = 0; i < indices.size() && std::getline(lines, line); ++i) {
      const size_t colon = line.rfind(':');
      if (colon == std::string::npos || line.starts_with("??")) continue;
      const auto number = static_cast<uint32_t>(std::strtoul(line.c_str() + colon + 1, nullptr, 10));
      if (number == 0) continue;
      sites[indices[i]].file = line.substr(0, colon);
      sites[indices[i]].line = number;
    }
  }
}

}  // namespace multigrain::trace
