#include "runtime/private/globals.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "base/fnv.h"
#include "runtime/private/build_id.h"

namespace multigrain {
namespace {

constexpr size_t kMaxHoles = 4096;
constexpr size_t kMaxRanges = kMaxHoles + 16;

struct Interval {
  uintptr_t begin;
  uintptr_t end;
};

// Fixed tables: this runs before main(), where an allocation would already be part of what is to be copied.
struct Executable {
  std::array<Interval, kMaxHoles> holes;
  size_t hole_count = 0;
  std::array<Interval, 16> segments;
  size_t segment_count = 0;
  std::array<Range, kMaxRanges> ranges;
  size_t range_count = 0;
  std::span<const std::byte> build_id;

  void exclude(uintptr_t begin, size_t length) {
    if (length == 0) return;
    if (hole_count == holes.size())
      die(1, "the executable takes too many variables from libraries by copy; link it as position-independent (-fPIE)");
    holes[hole_count++] = {begin, begin + length};
  }
};

Executable g_executable;

// The entries of the dynamic section that matter here. Addresses in it are relocated by the loader except on some
// systems, where they are offsets: whichever is below the load address is one.
struct Dynamic {
  uintptr_t rela = 0, rela_bytes = 0, jump_rela = 0, jump_rela_bytes = 0, symbols = 0, global_offset_table = 0;

  Dynamic(uintptr_t load, const ElfW(Dyn) * entry) {
    const auto absolute = [&](uintptr_t value) { return value < load ? value + load : value; };
    for (; entry->d_tag != DT_NULL; ++entry) {
      switch (entry->d_tag) {
        case DT_RELA:
          rela = absolute(entry->d_un.d_ptr);
          break;
        case DT_RELASZ:
          rela_bytes = entry->d_un.d_val;
          break;
        case DT_JMPREL:
          jump_rela = absolute(entry->d_un.d_ptr);
          break;
        case DT_PLTRELSZ:
          jump_rela_bytes = entry->d_un.d_val;
          break;
        case DT_SYMTAB:
          symbols = absolute(entry->d_un.d_ptr);
          break;
        case DT_PLTGOT:
          global_offset_table = absolute(entry->d_un.d_ptr);
          break;
        default:
          break;
      }
    }
  }
};

void exclude_relocated(Executable& executable, uintptr_t load, const Dynamic& dynamic, uintptr_t table, size_t bytes) {
  const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(dynamic.symbols);
  const auto* entry = reinterpret_cast<const ElfW(Rela)*>(table);
  for (size_t i = 0; i < bytes / sizeof *entry; ++i) {
    const uintptr_t target = load + entry[i].r_offset;
    switch (ELF64_R_TYPE(entry[i].r_info)) {
      case R_X86_64_COPY:
        executable.exclude(target, symbols[ELF64_R_SYM(entry[i].r_info)].st_size);
        break;
      case R_X86_64_GLOB_DAT:
      case R_X86_64_JUMP_SLOT:
      case R_X86_64_DTPMOD64:
      case R_X86_64_DTPOFF64:
      case R_X86_64_TPOFF64:
        executable.exclude(target, sizeof(uintptr_t));
        break;
      // Initial values of the program's own variables, which it may have changed since.
      default:
        break;
    }
  }
}

int inspect(dl_phdr_info* info, size_t, void* context) {
  Executable& executable = *static_cast<Executable*>(context);
  const uintptr_t load = info->dlpi_addr;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t begin = load + header.p_vaddr;
    switch (header.p_type) {
      case PT_LOAD:
        if ((header.p_flags & PF_W) == 0 || header.p_memsz == 0) break;
        if (executable.segment_count == executable.segments.size())
          die(1, "the executable has more writable segments than Multigrain can copy");
        executable.segments[executable.segment_count++] = {begin, begin + header.p_memsz};
        break;
      case PT_GNU_RELRO: {
        // The loader protects whole pages; what lies on the last one beyond the last boundary stays writable, yet the
        // linker still means it to be the loader's.
        executable.exclude(begin, header.p_memsz);
        break;
      }
      case PT_DYNAMIC: {
        executable.exclude(begin, header.p_memsz);
        const Dynamic dynamic(load, reinterpret_cast<const ElfW(Dyn)*>(begin));
        exclude_relocated(executable, load, dynamic, dynamic.rela, dynamic.rela_bytes);
        exclude_relocated(executable, load, dynamic, dynamic.jump_rela, dynamic.jump_rela_bytes);
        // Its first three words are the loader's (link map, resolver).
        if (dynamic.global_offset_table != 0) executable.exclude(dynamic.global_offset_table, 3 * sizeof(uintptr_t));
        break;
      }
      case PT_NOTE:
        if (executable.build_id.empty())
          executable.build_id = find_build_id({reinterpret_cast<const std::byte*>(begin), header.p_memsz});
        break;
      default:
        break;
    }
  }
  return 1;  // the executable comes first; nothing else is wanted
}

void subtract_holes(Executable& executable) {
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  std::sort(executable.segments.begin(), executable.segments.begin() + executable.segment_count, by_begin);
  std::sort(executable.holes.begin(), executable.holes.begin() + executable.hole_count, by_begin);
  for (size_t s = 0; s < executable.segment_count; ++s) {
    uintptr_t at = executable.segments[s].begin;
    const uintptr_t end = executable.segments[s].end;
    const auto keep = [&](uintptr_t until) {
      if (at < until) executable.ranges[executable.range_count++] = {reinterpret_cast<std::byte*>(at), until - at};
    };
    for (size_t h = 0; h < executable.hole_count; ++h) {
      const Interval& hole = executable.holes[h];
      if (hole.end <= at) continue;
      if (hole.begin >= end) break;
      keep(hole.begin);
      at = hole.end;
      if (at >= end) break;
    }
    keep(end);
  }
}

const Executable& executable() {
  static const bool found = [] {
    dl_iterate_phdr(inspect, &g_executable);
    subtract_holes(g_executable);
    return true;
  }();
  static_cast<void>(found);
  return g_executable;
}

}  // namespace

std::span<const Range> executable_globals() {
  const Executable& found = executable();
  return {found.ranges.data(), found.range_count};
}

bool in_executable_globals(uint64_t address, uint64_t length) {
  for (const Range& range : executable_globals()) {
    const auto begin = reinterpret_cast<uintptr_t>(range.begin);
    if (address >= begin && address - begin <= range.length && length <= range.length - (address - begin)) return true;
  }
  return false;
}

std::span<const std::byte> executable_build_id() {
  return executable().build_id;
}

uint64_t executable_fingerprint() {
  Fnv hash;
  for (const Range& range : executable_globals()) hash.mix(std::as_bytes(std::span(&range, 1)));
  hash.mix(executable_build_id());
  return hash.value();
}

}  // namespace multigrain
