#include "guest/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/file_descriptor.h"

namespace multigrain::guest {
namespace {

// As in Linux, an interpreter may be a script, that many times.
constexpr unsigned kMaxScripts = 5;
constexpr size_t kScriptLine = 256;                    // Linux's BINPRM_BUF_SIZE
constexpr uint64_t kLargestStack = uint64_t{1} << 30;  // the stack's size if it has no limit
constexpr uint64_t kGap = uint64_t{1} << 20;           // the gap below the stack
constexpr unsigned kMaxHeaders = 512;

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Returns whether all of it could be read.
  [[nodiscard]] bool read_at(uint64_t offset, void* to, size_t bytes) const {
    return pread(fd(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }

 private:
  FileDescriptor fd_;
};

tl::unexpected<CannotExecute> cannot(int code, const std::string& path, std::string_view why = {}) {
  const std::string sentence = fmt::format("cannot run '{}': {}", path, why.empty() ? std::strerror(code) : why);
  return tl::unexpected<CannotExecute>(CannotExecute{.code = code, .sentence = sentence});
}

// Returns the words of a #! line: the interpreter, and at most one argument.
std::vector<std::string> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t";
  line = line.substr(0, line.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const size_t last = line.find_last_not_of(kBlank);
  line = line.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (line.empty()) return {};
  const size_t end = line.find_first_of(kBlank);
  std::vector<std::string> words{std::string(line.substr(0, end))};
  if (end == std::string_view::npos) return words;
  const std::string_view rest = line.substr(end);
  words.emplace_back(rest.substr(rest.find_first_not_of(kBlank)));
  return words;
}

// Holds the headers of an ELF file that this machine can run.
struct Image {
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::string interpreter;
  // The segments that are loaded lie between these addresses of the file, which are of whole pages.
  uint64_t low = 0, high = 0;
  bool stack_is_executable = false;
};

tl::expected<Image, CannotExecute> read_image(const File& file, const std::string& path) {
  if (file.fd() < 0) return cannot(errno, path);
  Image image;
  Elf64_Ehdr& header = image.header;
  if (!file.read_at(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return cannot(ENOEXEC, path, "it is neither a program for this machine nor a script with a #! line");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
    return cannot(ENOEXEC, path, "it is a program for another architecture than x86-64");
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
    return cannot(ENOEXEC, path, "it is an ELF file but no program");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 || header.e_phnum > kMaxHeaders)
    return cannot(ENOEXEC, path, "its program headers are damaged");
  image.segments.resize(header.e_phnum);
  if (!file.read_at(header.e_phoff, image.segments.data(), image.segments.size() * sizeof(Elf64_Phdr)))
    return cannot(ENOEXEC, path, "its program headers are damaged");
  image.low = ~uint64_t{0};
  // A file that says nothing about its stack is an old one, and may run code there.
  image.stack_is_executable = header.e_type == ET_EXEC;
  for (const Elf64_Phdr& segment : image.segments) {
    if (segment.p_type == PT_INTERP) {
      if (segment.p_filesz < 2 || segment.p_filesz > 4096)
        return cannot(ENOEXEC, path, "its interpreter's name is damaged");
      image.interpreter.resize(segment.p_filesz);
      if (!file.read_at(segment.p_offset, image.interpreter.data(), segment.p_filesz))
        return cannot(ENOEXEC, path, "its interpreter's name is damaged");
      image.interpreter.resize(std::strlen(image.interpreter.c_str()));
    }
    if (segment.p_type == PT_GNU_STACK) image.stack_is_executable = (segment.p_flags & PF_X) != 0;
    if (segment.p_type != PT_LOAD || segment.p_memsz == 0) continue;
    const bool is_aligned = segment.p_vaddr % kPageSize == segment.p_offset % kPageSize;
    const bool is_sane = segment.p_filesz <= segment.p_memsz && segment.p_vaddr + segment.p_memsz < (uint64_t{1} << 46);
    if (!is_sane || (!is_aligned && segment.p_filesz != 0)) return cannot(ENOEXEC, path, "its segments are damaged");
    image.low = std::min(image.low, page_down(segment.p_vaddr));
    image.high = std::max(image.high, page_up(segment.p_vaddr + segment.p_memsz));
  }
  if (image.low >= image.high) return cannot(ENOEXEC, path, "it has no segments to load");
  return image;
}

int rights_of(const Elf64_Phdr& segment) {
  return ((segment.p_flags & PF_R) != 0 ? PROT_READ : 0) | ((segment.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
         ((segment.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
}

// Maps one segment. Returns -errno or 0.
long map_segment(AddressSpace& space, const File& file, const Elf64_Phdr& segment, uint64_t bias) {
  const uint64_t begin = page_down(bias + segment.p_vaddr);
  const uint64_t file_end = bias + segment.p_vaddr + segment.p_filesz;
  const uint64_t end = page_up(bias + segment.p_vaddr + segment.p_memsz);
  const int rights = rights_of(segment);
  const uint64_t mapped_end = segment.p_filesz == 0 ? begin : page_up(file_end);
  if (mapped_end > begin) {
    const long result =
        space.map(begin, file_end - begin, rights, MAP_PRIVATE | MAP_FIXED, file.fd(), page_down(segment.p_offset));
    if (result < 0) return result;
  }
  if (end > mapped_end) {
    const long result = space.map(mapped_end, end - mapped_end, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (result < 0) return result;
  }
  // Bytes that the file has behind the segment's end must not be seen where the program expects zeros.
  if (segment.p_memsz > segment.p_filesz && (rights & PROT_WRITE) != 0 && mapped_end > file_end)
    std::memset(reinterpret_cast<void*>(file_end), 0, mapped_end - file_end);
  return 0;
}

// Maps an image. Returns how far its addresses are from those of the file.
tl::expected<uint64_t, CannotExecute> map_image(AddressSpace& space, const File& file, const Image& image,
                                                const std::string& path, bool is_interpreter) {
  uint64_t bias = 0;
  if (image.header.e_type == ET_DYN) {
    if (is_interpreter) {
      const auto place = space.place_of(image.high - image.low);
      if (!place) return cannot(ENOMEM, path, place.error().message);
      bias = *place - image.low;
    } else {
      bias = space.place_of_program() - image.low;
    }
  }
  for (const Elf64_Phdr& segment : image.segments) {
    if (segment.p_type != PT_LOAD || segment.p_memsz == 0) continue;
    const long result = map_segment(space, file, segment, bias);
    if (result == -ENOMEM && image.header.e_type == ET_EXEC && !space.can_have(image.low, image.high))
      return cannot(
          ENOMEM, path,
          "its addresses are fixed (it is not position-independent), and not free on all nodes; it runs on one node");
    if (result < 0) return cannot(static_cast<int>(-result), path);
  }
  return bias;
}

// Writes the first stack from its top down.
class Stack {
 public:
  explicit Stack(uint64_t top) : at_(top) {}
  uint64_t push(const void* bytes, size_t count) {
    at_ -= count;
    std::memcpy(reinterpret_cast<void*>(at_), bytes, count);
    return at_;
  }
  uint64_t push(const std::string& text) { return push(text.c_str(), text.size() + 1); }
  void align() { at_ &= ~uint64_t{15}; }
  [[nodiscard]] uint64_t at() const { return at_; }

 private:
  uint64_t at_;
};

struct Auxiliary {
  uint64_t program_headers, header_count, base, entry;
  bool has_vdso;
};

// Builds the first stack, and returns its lowest address. `words` is everything below the strings, the lowest word
// first. `vector` gets the auxiliary vector.
uint64_t build_stack(uint64_t top, const Executable& executable, const std::vector<std::string>& environment,
                     const Auxiliary& auxiliary, std::string& vector) {
  Stack stack(top - 8);
  const uint64_t name = stack.push(executable.path);
  const auto push_all = [&stack](const std::vector<std::string>& texts) {
    std::vector<uint64_t> places(texts.size());
    for (size_t i = texts.size(); i-- > 0;) places[i] = stack.push(texts[i]);
    return places;
  };
  const std::vector<uint64_t> environment_places = push_all(environment);
  const std::vector<uint64_t> argument_places = push_all(executable.arguments);
  const uint64_t platform = stack.push(std::string("x86_64"));
  uint8_t random[16] = {};
  if (getrandom(random, sizeof random, 0) != sizeof random) random[0] = 1;
  stack.align();
  const uint64_t random_place = stack.push(random, sizeof random);

  std::vector<uint64_t> words{argument_places.size()};
  words.insert(words.end(), argument_places.begin(), argument_places.end());
  words.push_back(0);
  words.insert(words.end(), environment_places.begin(), environment_places.end());
  words.push_back(0);
  const size_t begin = words.size();
  const auto add = [&words](uint64_t kind, uint64_t value) {
    words.push_back(kind);
    words.push_back(value);
  };
  // Values that are about this machine and this process are those that the kernel has told the host.
  constexpr uint64_t kMinimalSignalStack = 51;
  for (const uint64_t kind : {uint64_t{AT_SYSINFO_EHDR}, kMinimalSignalStack, uint64_t{AT_HWCAP}, uint64_t{AT_PAGESZ},
                              uint64_t{AT_CLKTCK}, uint64_t{AT_FLAGS}, uint64_t{AT_UID}, uint64_t{AT_EUID},
                              uint64_t{AT_GID}, uint64_t{AT_EGID}, uint64_t{AT_HWCAP2}}) {
    if (kind == AT_SYSINFO_EHDR && !auxiliary.has_vdso) continue;
    errno = 0;
    const uint64_t value = getauxval(kind);
    if (value != 0 || errno == 0) add(kind, value);
  }
  add(AT_PHDR, auxiliary.program_headers);
  add(AT_PHENT, sizeof(Elf64_Phdr));
  add(AT_PHNUM, auxiliary.header_count);
  add(AT_BASE, auxiliary.base);
  add(AT_ENTRY, auxiliary.entry);
  add(AT_SECURE, 0);
  add(AT_RANDOM, random_place);
  add(AT_EXECFN, name);
  add(AT_PLATFORM, platform);
  add(AT_NULL, 0);
  vector.assign(reinterpret_cast<const char*>(&words[begin]), (words.size() - begin) * sizeof(uint64_t));

  stack.align();
  if (words.size() % 2 != 0) stack.push("\0\0\0\0\0\0\0", 8);
  return stack.push(words.data(), words.size() * sizeof(uint64_t));
}

// Returns the address of the program's headers in memory.
uint64_t headers_of(const Image& image, uint64_t bias) {
  for (const Elf64_Phdr& segment : image.segments)
    if (segment.p_type == PT_PHDR) return bias + segment.p_vaddr;
  for (const Elf64_Phdr& segment : image.segments)
    if (segment.p_type == PT_LOAD && image.header.e_phoff >= segment.p_offset &&
        image.header.e_phoff < segment.p_offset + segment.p_filesz)
      return bias + segment.p_vaddr + (image.header.e_phoff - segment.p_offset);
  return 0;
}

}  // namespace

tl::expected<Executable, CannotExecute> find_executable(const std::string& path, std::vector<std::string> arguments) {
  Executable executable{.path = path, .arguments = std::move(arguments)};
  for (unsigned scripts = 0;; ++scripts) {
    struct stat about{};
    if (stat(executable.path.c_str(), &about) != 0) return cannot(errno, executable.path);
    if (S_ISDIR(about.st_mode)) return cannot(EACCES, executable.path, "it is a directory");
    if (!S_ISREG(about.st_mode) || access(executable.path.c_str(), X_OK) != 0) return cannot(EACCES, executable.path);
    const bool changes_user = (about.st_mode & S_ISUID) != 0 && about.st_uid != geteuid();
    const bool changes_group =
        (about.st_mode & S_ISGID) != 0 && (about.st_mode & S_IXGRP) != 0 && about.st_gid != getegid();
    const File file(executable.path);
    if (file.fd() < 0) return cannot(errno, executable.path);
    char begin[kScriptLine] = {};
    const ssize_t count = pread(file.fd(), begin, sizeof begin - 1, 0);
    if (count < 2 || begin[0] != '#' || begin[1] != '!') {
      if (changes_user || changes_group)
        return cannot(EPERM, executable.path,
                      "it runs as another user or group (set-user-id), which only the system can do");
      const auto image = read_image(file, executable.path);
      if (!image) return tl::unexpected<CannotExecute>(image.error());
      return executable;
    }
    if (scripts == kMaxScripts)
      return cannot(ELOOP, executable.path, "its interpreter is a script whose interpreter is a script, too often");
    std::vector<std::string> words = words_of(std::string_view(begin + 2, std::strlen(begin + 2)));
    if (words.empty()) return cannot(ENOEXEC, executable.path, "its #! line names no interpreter");
    const std::string interpreter = words.front();
    words.push_back(executable.path);
    if (!executable.arguments.empty())
      words.insert(words.end(), executable.arguments.begin() + 1, executable.arguments.end());
    executable = {.path = interpreter, .arguments = std::move(words)};
  }
}

tl::expected<Start, CannotExecute> load_program(AddressSpace& space, const Executable& executable,
                                                const std::vector<std::string>& environment, bool has_vdso) {
  const File file(executable.path);
  const auto image = read_image(file, executable.path);
  if (!image) return tl::unexpected<CannotExecute>(image.error());

  rlimit limit{};
  getrlimit(RLIMIT_STACK, &limit);
  const uint64_t stack_bytes = page_up(std::clamp<uint64_t>(limit.rlim_cur, uint64_t{128} << 10, kLargestStack));
  const int stack_rights = PROT_READ | PROT_WRITE | (image->stack_is_executable ? PROT_EXEC : 0);
  const auto anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  const uint64_t top = space.top();
  for (const auto& [begin, bytes, rights] : {std::tuple{top - stack_bytes, stack_bytes, stack_rights},
                                             std::tuple{top - stack_bytes - kGap, kGap, PROT_NONE}})
    if (const long mapped = space.map(begin, bytes, rights, anonymous | (rights == PROT_NONE ? 0 : MAP_STACK), -1, 0);
        mapped < 0)
      return cannot(static_cast<int>(-mapped), executable.path, "there is no room for its stack");

  const auto bias = map_image(space, file, *image, executable.path, false);
  if (!bias) return tl::unexpected<CannotExecute>(bias.error());
  space.begin_break(*bias + image->high);
  Auxiliary auxiliary{.program_headers = headers_of(*image, *bias),
                      .header_count = image->header.e_phnum,
                      .base = 0,
                      .entry = *bias + image->header.e_entry,
                      .has_vdso = has_vdso};
  uint64_t begin = auxiliary.entry;
  if (!image->interpreter.empty()) {
    const File loader(image->interpreter);
    if (loader.fd() < 0)
      return cannot(errno, executable.path,
                    fmt::format("its interpreter '{}' cannot be opened: {}", image->interpreter, std::strerror(errno)));
    const auto loader_image = read_image(loader, image->interpreter);
    if (!loader_image) return tl::unexpected<CannotExecute>(loader_image.error());
    const auto loader_bias = map_image(space, loader, *loader_image, image->interpreter, true);
    if (!loader_bias) return tl::unexpected<CannotExecute>(loader_bias.error());
    auxiliary.base = *loader_bias + loader_image->low;
    begin = *loader_bias + loader_image->header.e_entry;
  }
  uint64_t needed = 0;
  for (const auto* const texts : {&executable.arguments, &environment})
    for (const std::string& text : *texts) needed += text.size() + 1 + sizeof(uint64_t);
  if (needed > stack_bytes / 4) return cannot(E2BIG, executable.path);
  Start start{.instruction = begin, .stack = 0, .auxiliary = {}};
  start.stack = build_stack(top, executable, environment, auxiliary, start.auxiliary);
  return start;
}

}  // namespace multigrain::guest
