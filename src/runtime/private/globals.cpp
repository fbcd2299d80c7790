#include "runtime/private/globals.h"

#include <cpuid.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/fnv.h"
#include "runtime/private/build_id.h"
#include "runtime/private/loaded_objects.h"
#include "runtime/private/runtimes.h"

namespace multigrain {
namespace {

constexpr size_t kMaxHoles = 16384;
constexpr size_t kMaxSegments = 1024;
constexpr size_t kMaxRanges = kMaxHoles + kMaxSegments;
constexpr size_t kMaxObjects = 512;

struct Interval {
  uintptr_t begin;
  uintptr_t end;
};

// The dynamic section of an object, read. The loader relocates addresses in it except on some systems, where they are
// offsets: an address below the load address is an offset.
struct Dynamic {
  const ElfW(Dyn) * entries = nullptr;
  uintptr_t rela = 0, rela_bytes = 0, jump_rela = 0, jump_rela_bytes = 0, global_offset_table = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* hash = nullptr;
  uint64_t soname = 0;  // in `strings`; 0: it has none

  Dynamic() = default;
  Dynamic(uintptr_t load, const ElfW(Dyn) * section) : entries(section) {
    const auto absolute = [&](uintptr_t value) { return value < load ? value + load : value; };
    for (const ElfW(Dyn)* entry = section; entry->d_tag != DT_NULL; ++entry) {
      const uintptr_t address = absolute(entry->d_un.d_ptr);
      switch (entry->d_tag) {
        case DT_RELA:
          rela = address;
          break;
        case DT_RELASZ:
          rela_bytes = entry->d_un.d_val;
          break;
        case DT_JMPREL:
          jump_rela = address;
          break;
        case DT_PLTRELSZ:
          jump_rela_bytes = entry->d_un.d_val;
          break;
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          strings = reinterpret_cast<const char*>(address);
          break;
        case DT_GNU_HASH:
          gnu_hash = reinterpret_cast<const uint32_t*>(address);
          break;
        case DT_HASH:
          hash = reinterpret_cast<const uint32_t*>(address);
          break;
        case DT_PLTGOT:
          global_offset_table = address;
          break;
        case DT_SONAME:
          soname = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
  }

  [[nodiscard]] bool defines(const char* name) const {
    const auto is_it = [&](uint32_t index) {
      return symbols[index].st_shndx != SHN_UNDEF && std::strcmp(strings + symbols[index].st_name, name) == 0;
    };
    if (gnu_hash != nullptr) {
      // The table has the number of buckets, the first symbol in the table, the number of words of the Bloom filter,
      // and its shift; then the filter, the buckets and the chains.
      const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], words = gnu_hash[2];
      const uint32_t* const bucket = gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
      const uint32_t* const chain = bucket + buckets;
      uint32_t wanted = 5381;
      for (const char* c = name; *c != 0; ++c) wanted = wanted * 33 + static_cast<unsigned char>(*c);
      if (buckets == 0) return false;
      uint32_t index = bucket[wanted % buckets];
      if (index < first) return false;
      for (;; ++index) {
        const uint32_t hash_of_it = chain[index - first];
        if ((hash_of_it | 1) == (wanted | 1) && is_it(index)) return true;
        if ((hash_of_it & 1) != 0) return false;
      }
    }
    if (hash == nullptr) return false;
    for (uint32_t index = 1; index < hash[1]; ++index)
      if (is_it(index)) return true;
    return false;
  }
};

// The executable or a shared library.
struct Object {
  dl_phdr_info info;
  std::string_view path;
  Dynamic dynamic;
  bool is_ours = false;  // Multigrain's runtime
  // The executable needs it, perhaps by way of other libraries.
  bool of_program = false;
  // Multigrain's runtime needs it, or another runtime that keeps threads of its own.
  bool of_a_runtime = false;

  [[nodiscard]] bool is_called(std::string_view name) const {
    const std::string_view file = path.substr(path.rfind('/') + 1);
    return name == path || (!file.empty() && name == file) ||
           (dynamic.soname != 0 && name == dynamic.strings + dynamic.soname);
  }
};

// Returns whether the library keeps threads, connections or shadows of memory, none of which would survive a
// copy of its state: none survives fork either.
bool is_a_runtime(std::string_view path) {
  static constexpr std::string_view kNames[] = {"libgomp.so", "libomp.so",   "libiomp5.so", "libtbb.so",
                                                "libmpi.so",  "libmpich.so", "libasan.so",  "libtsan.so",
                                                "liblsan.so", "libubsan.so"};
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return is_openmp_runtime(path) ||
         std::ranges::any_of(kNames, [&](std::string_view name) { return file.starts_with(name); });
}

// Returns whether the user has named the library in MULTIGRAIN_PRIVATE_LIBRARIES: file names, with colons between them.
bool is_to_stay(const Object& object) {
  const char* const list = std::getenv("MULTIGRAIN_PRIVATE_LIBRARIES");
  for (std::string_view rest = list != nullptr ? list : ""; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(':'));
    if (!name.empty() && object.is_called(name)) return true;
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return false;
}

// The tables are fixed: this runs before main(), where an allocation would already be part of what is to be copied.
struct Program {
  std::array<Object, kMaxObjects> objects;  // the executable first
  size_t object_count = 0;
  std::array<Interval, kMaxHoles> holes;
  size_t hole_count = 0;
  std::array<Interval, kMaxSegments> segments;
  // The parts of these that the loader has mapped from files, by whole pages.
  std::array<Interval, kMaxSegments> from_files;
  size_t segment_count = 0;
  std::array<Range, kMaxRanges> ranges;
  size_t range_count = 0;
  std::array<Range, kMaxSegments> pages;  // that hold `ranges`
  size_t page_count = 0;
  std::atomic<bool> is_shared = false;
  std::array<Interval, kMaxSegments> code;  // the executable's first
  size_t code_count = 0;
  Interval cxx_library_code{};
  std::array<Interval, kMaxSegments> runtimes_code;
  size_t runtimes_code_count = 0;
  std::span<const std::byte> build_id;

  void exclude(uintptr_t begin, size_t length) {
    if (length == 0) return;
    // Slots of one table follow each other.
    if (hole_count != 0 && holes[hole_count - 1].end == begin) {
      holes[hole_count - 1].end = begin + length;
      return;
    }
    if (hole_count == holes.size())
      die(1,
          "the program and its libraries take too many variables from other libraries; link it as position-independent "
          "(-fPIE), and its libraries with -Wl,-z,now");
    holes[hole_count++] = {begin, begin + length};
  }

  // Marks the objects that `from` needs, and the objects that those need.
  void mark(Object& from, bool Object::* flag) {
    if (from.*flag) return;
    from.*flag = true;
    if (from.dynamic.entries == nullptr) return;
    for (const ElfW(Dyn)* entry = from.dynamic.entries; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != DT_NEEDED) continue;
      const char* const name = from.dynamic.strings + entry->d_un.d_val;
      for (size_t i = 0; i < object_count; ++i)
        if (objects[i].is_called(name)) mark(objects[i], flag);
    }
  }

  // Returns whether the library's state is the program's: the executable is linked with it, and it is neither the
  // system's nor a runtime's.
  [[nodiscard]] static bool is_own_library(const Object& object) {
    return object.of_program && !object.of_a_runtime && !is_system_library(object.path) && !is_to_stay(object);
  }
  // The same libraries: returns whether one of them defines a variable that the linker placed in the executable.
  [[nodiscard]] bool own_library_defines(const char* name) const {
    for (size_t i = 1; i < object_count; ++i)
      if (is_own_library(objects[i]) && objects[i].dynamic.defines(name)) return true;
    return false;
  }
};

constinit Program g_program{};

int list_object(dl_phdr_info* info, size_t, void* context) {
  Program& program = *static_cast<Program*>(context);
  if (program.object_count == program.objects.size()) die(1, "the program has more libraries than Multigrain can list");
  Object& object = program.objects[program.object_count++];
  object.info = *info;
  object.path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  object.is_ours = holds(*info, reinterpret_cast<uintptr_t>(&list_object));
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC)
      object.dynamic = Dynamic(info->dlpi_addr, reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + header.p_vaddr));
  }
  return 0;
}

void exclude_relocated(Program& program, const Object& object, uintptr_t table, size_t bytes) {
  const uintptr_t load = object.info.dlpi_addr;
  const ElfW(Sym)* const symbols = object.dynamic.symbols;
  const auto* entry = reinterpret_cast<const ElfW(Rela)*>(table);
  for (size_t i = 0; i < bytes / sizeof *entry; ++i) {
    const uintptr_t target = load + entry[i].r_offset;
    switch (ELF64_R_TYPE(entry[i].r_info)) {
      case R_X86_64_COPY: {
        const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(entry[i].r_info)];
        if (!program.own_library_defines(object.dynamic.strings + symbol.st_name))
          program.exclude(target, symbol.st_size);
        break;
      }
      case R_X86_64_GLOB_DAT:
      case R_X86_64_JUMP_SLOT:
      case R_X86_64_DTPMOD64:
      case R_X86_64_DTPOFF64:
      case R_X86_64_TPOFF64:
        program.exclude(target, sizeof(uintptr_t));
        break;
      case R_X86_64_TLSDESC:
        program.exclude(target, 2 * sizeof(uintptr_t));
        break;
      // All others are initial values of the program's own variables, which the program may have changed since.
      default:
        break;
    }
  }
}

void inspect(Program& program, const Object& object) {
  const uintptr_t load = object.info.dlpi_addr;
  for (size_t i = 0; i < object.info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.info.dlpi_phdr[i];
    const uintptr_t begin = load + header.p_vaddr;
    switch (header.p_type) {
      case PT_LOAD:
        if ((header.p_flags & PF_W) == 0 || header.p_memsz == 0) break;
        if (program.segment_count == program.segments.size())
          die(1, "the program has more writable segments than Multigrain can copy");
        program.from_files[program.segment_count] = {
            begin / kGlobalsPage * kGlobalsPage,
            (begin + header.p_filesz + kGlobalsPage - 1) / kGlobalsPage * kGlobalsPage};
        program.segments[program.segment_count++] = {begin, begin + header.p_memsz};
        break;
      case PT_GNU_RELRO:
        // The loader protects whole pages. The part of the last page beyond the last boundary stays writable, yet the
        // linker means it to be the loader's, too.
        program.exclude(begin, header.p_memsz);
        break;
      case PT_DYNAMIC:
        program.exclude(begin, header.p_memsz);
        exclude_relocated(program, object, object.dynamic.rela, object.dynamic.rela_bytes);
        exclude_relocated(program, object, object.dynamic.jump_rela, object.dynamic.jump_rela_bytes);
        // The table's first three words are the loader's (link map, resolver).
        if (object.dynamic.global_offset_table != 0)
          program.exclude(object.dynamic.global_offset_table, 3 * sizeof(uintptr_t));
        break;
      default:
        break;
    }
  }
}

void subtract_holes(Program& program) {
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  std::sort(program.segments.begin(), program.segments.begin() + program.segment_count, by_begin);
  std::sort(program.holes.begin(), program.holes.begin() + program.hole_count, by_begin);
  for (size_t s = 0; s < program.segment_count; ++s) {
    uintptr_t at = program.segments[s].begin;
    const uintptr_t end = program.segments[s].end;
    const auto keep = [&](uintptr_t until) {
      if (at < until) program.ranges[program.range_count++] = {reinterpret_cast<std::byte*>(at), until - at};
    };
    for (size_t h = 0; h < program.hole_count; ++h) {
      const Interval& hole = program.holes[h];
      if (hole.end <= at) continue;
      if (hole.begin >= end) break;
      keep(hole.begin);
      at = hole.end;
      if (at >= end) break;
    }
    keep(end);
  }
}

void find_pages(Program& program) {
  for (const Range& range : std::span(program.ranges.data(), program.range_count)) {
    const auto begin = reinterpret_cast<uintptr_t>(range.begin) / kGlobalsPage * kGlobalsPage;
    const auto end =
        (reinterpret_cast<uintptr_t>(range.begin) + range.length + kGlobalsPage - 1) / kGlobalsPage * kGlobalsPage;
    if (program.page_count != 0) {
      Range& last = program.pages[program.page_count - 1];
      const auto last_begin = reinterpret_cast<uintptr_t>(last.begin);
      if (begin <= last_begin + last.length) {
        last.length = std::max(last.length, end - last_begin);
        continue;
      }
    }
    // Ranges between which a whole page lies are few in a segment, but nothing keeps them from being more than that.
    if (program.page_count == program.pages.size()) die(1, "the program's globals lie in too many places");
    program.pages[program.page_count++] = {reinterpret_cast<std::byte*>(begin), end - begin};
  }
}

// Calls visit(begin, end) for every segment of the object that has code.
template <typename Visit>
void for_each_code_segment(const Object& object, Visit visit) {
  for (size_t i = 0; i < object.info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.info.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = object.info.dlpi_addr + header.p_vaddr;
    visit(Interval{begin, begin + header.p_memsz});
  }
}

void find_code(Program& program) {
  for (size_t i = 0; i < program.object_count; ++i) {
    const Object& object = program.objects[i];
    if (i == 0 || Program::is_own_library(object)) {
      for_each_code_segment(object, [&](const Interval& segment) {
        if (program.code_count == program.code.size()) die(1, "the program's code lies in too many places");
        program.code[program.code_count++] = segment;
      });
    } else if (object.path.find("/libstdc++.so") != std::string_view::npos ||
               object.path.find("/libc++.so") != std::string_view::npos) {
      for_each_code_segment(object, [&](const Interval& segment) { program.cxx_library_code = segment; });
    } else if (is_a_runtime(object.path) && !is_openmp_runtime(object.path)) {
      for_each_code_segment(object, [&](const Interval& segment) {
        if (program.runtimes_code_count == program.runtimes_code.size()) die(1, "the program has too many runtimes");
        program.runtimes_code[program.runtimes_code_count++] = segment;
      });
    }
  }
}

std::span<const std::byte> build_id_of(const Object& object) {
  for (size_t i = 0; i < object.info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* const notes = reinterpret_cast<const std::byte*>(object.info.dlpi_addr + header.p_vaddr);
    if (const auto id = find_build_id({notes, header.p_memsz}); !id.empty()) return id;
  }
  return {};
}

const Program& program() {
  static const bool found = [] {
    Program& it = g_program;
    dl_iterate_phdr(list_object, &it);
    it.build_id = build_id_of(it.objects[0]);
    it.mark(it.objects[0], &Object::of_program);
    for (size_t i = 1; i < it.object_count; ++i)
      if (it.objects[i].is_ours || is_a_runtime(it.objects[i].path)) it.mark(it.objects[i], &Object::of_a_runtime);
    inspect(it, it.objects[0]);
    for (size_t i = 1; i < it.object_count; ++i)
      if (Program::is_own_library(it.objects[i])) inspect(it, it.objects[i]);
    subtract_holes(it);
    find_pages(it);
    find_code(it);
    return true;
  }();
  static_cast<void>(found);
  return g_program;
}

}  // namespace

std::span<const Range> program_globals() {
  const Program& found = program();
  return {found.ranges.data(), found.is_shared.load(std::memory_order_relaxed) ? 0 : found.range_count};
}

std::span<const Range> pages_of_globals() {
  const Program& found = program();
  return {found.pages.data(), found.page_count};
}

bool is_from_file(const std::byte* page) {
  const Program& found = program();
  const auto address = reinterpret_cast<uintptr_t>(page);
  return std::any_of(found.from_files.begin(), found.from_files.begin() + found.segment_count,
                     [&](const Interval& part) { return part.begin <= address && address < part.end; });
}

bool program_uses(const char* name) {
  const Program& found = program();
  const auto refers = [&](const Object& object, uintptr_t table, size_t bytes) {
    const auto* const entry = reinterpret_cast<const ElfW(Rela)*>(table);
    for (size_t i = 0; i < bytes / sizeof *entry; ++i) {
      const ElfW(Sym)& symbol = object.dynamic.symbols[ELF64_R_SYM(entry[i].r_info)];
      if (symbol.st_shndx == SHN_UNDEF && std::strcmp(object.dynamic.strings + symbol.st_name, name) == 0) return true;
    }
    return false;
  };
  for (size_t i = 0; i < found.object_count; ++i) {
    const Object& object = found.objects[i];
    if (object.dynamic.entries == nullptr || (i != 0 && !Program::is_own_library(object))) continue;
    if (refers(object, object.dynamic.rela, object.dynamic.rela_bytes) ||
        refers(object, object.dynamic.jump_rela, object.dynamic.jump_rela_bytes))
      return true;
  }
  return false;
}

void for_each_thread_variables(void (*visit)(void* context, const Range& range), void* context) {
  struct Visit {
    void (*visit)(void*, const Range&);
    void* context;
  } what{visit, context};
  program();
  const auto see = [](dl_phdr_info* info, size_t, void* argument) {
    const Visit& to = *static_cast<const Visit*>(argument);
    for (size_t i = 0; i < g_program.object_count; ++i) {
      const Object& object = g_program.objects[i];
      if (object.info.dlpi_phdr != info->dlpi_phdr || (i != 0 && !Program::is_own_library(object))) continue;
      for (ElfW(Half) h = 0; h < info->dlpi_phnum; ++h)
        if (info->dlpi_phdr[h].p_type == PT_TLS && info->dlpi_tls_data != nullptr && info->dlpi_phdr[h].p_memsz != 0)
          to.visit(to.context, {static_cast<std::byte*>(info->dlpi_tls_data), info->dlpi_phdr[h].p_memsz});
    }
    return 0;
  };
  dl_iterate_phdr(see, &what);
}

uint64_t code_fingerprint() {
  Fnv hash;
  const auto see = [](dl_phdr_info* info, size_t, void* argument) {
    // The kernel's own object has no file, and no frame of a program that waits at a barrier is there.
    if (info->dlpi_name != nullptr && std::string_view(info->dlpi_name).starts_with("linux-vdso")) return 0;
    Fnv& to = *static_cast<Fnv*>(argument);
    to.mix(std::as_bytes(std::span(&info->dlpi_addr, 1)));
    Object object{};
    object.info = *info;
    to.mix(build_id_of(object));
    for (ElfW(Half) h = 0; h < info->dlpi_phnum; ++h) to.mix(std::as_bytes(std::span(&info->dlpi_phdr[h].p_memsz, 1)));
    return 0;
  };
  dl_iterate_phdr(see, &hash);
  return hash.value();
}

void globals_are_shared() {
  program();
  g_program.is_shared.store(true, std::memory_order_relaxed);
}

bool globals_hold_environment() {
  const Object& executable = program().objects[0];
  const auto* const entry = reinterpret_cast<const ElfW(Rela)*>(executable.dynamic.rela);
  return std::ranges::any_of(
      std::span(entry, executable.dynamic.rela_bytes / sizeof *entry), [&](const ElfW(Rela) & relocation) {
        if (ELF64_R_TYPE(relocation.r_info) != R_X86_64_COPY) return false;
        const std::string_view name =
            executable.dynamic.strings + executable.dynamic.symbols[ELF64_R_SYM(relocation.r_info)].st_name;
        return name == "environ" || name == "__environ" || name == "_environ";
      });
}

bool in_program_globals(uint64_t address, uint64_t length) {
  const auto ranges = program_globals();
  const auto begin_of = [](const Range& range) { return reinterpret_cast<uintptr_t>(range.begin); };
  const auto after = std::ranges::upper_bound(ranges, address, {}, begin_of);
  if (after == ranges.begin()) return false;
  const Range& range = *(after - 1);
  const uint64_t offset = address - begin_of(range);
  return offset <= range.length && length <= range.length - offset;
}

bool in_program_code(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Program& found = program();
  return std::any_of(found.code.begin(), found.code.begin() + found.code_count,
                     [at](const Interval& segment) { return at - segment.begin < segment.end - segment.begin; });
}

bool in_cxx_library_code(const void* address) {
  const Interval& code = program().cxx_library_code;
  return reinterpret_cast<uintptr_t>(address) - code.begin < code.end - code.begin;
}

bool in_runtimes_code(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Program& found = program();
  return std::any_of(found.runtimes_code.begin(), found.runtimes_code.begin() + found.runtimes_code_count,
                     [at](const Interval& segment) { return at - segment.begin < segment.end - segment.begin; });
}

std::span<const std::byte> executable_build_id() {
  return program().build_id;
}

uint64_t program_fingerprint() {
  Fnv hash;
  for (const Range& range : program_globals()) hash.mix(std::as_bytes(std::span(&range, 1)));
  hash.mix(executable_build_id());
  return hash.value();
}

uint64_t globals_fingerprint() {
  Fnv hash;
  const auto mix = [&hash](uint64_t value) { hash.mix(std::as_bytes(std::span(&value, 1))); };
  mix(program_fingerprint());
  const Program& found = program();
  for (const Object& object : std::span(found.objects.data(), found.object_count))
    if (object.of_program) mix(object.info.dlpi_addr);
  unsigned a = 0, b = 0, c = 0, d = 0;
  __cpuid(1, a, b, c, d);  // b has the number of the core on which this runs
  for (const unsigned features : {a, c, d}) mix(features);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0)
    for (const unsigned features : {b, c, d}) mix(features);
  return hash.value();
}

}  // namespace multigrain
