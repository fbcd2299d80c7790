// Answers questions about what the loader has put into this process: the executable and shared libraries.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <string_view>

namespace multigrain {

// Returns whether a segment of the object holds the address.
inline bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (ElfW(Half) i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && address - (object.dlpi_addr + segment.p_vaddr) < segment.p_memsz) return true;
  }
  return false;
}

// Returns whether the path is that of a library which belongs to the system, or of the kernel's own object.
inline bool is_system_library(std::string_view path) {
  if (path.find('/') == std::string_view::npos) return true;  // the kernel's own object
  if (path.starts_with("/usr/local/")) return false;
  return path.starts_with("/lib/") || path.starts_with("/lib64/") || path.starts_with("/usr/");
}

// Returns whether the path is that of Multigrain's OpenMP runtime, a library of its own beside the one that calls this.
inline bool is_openmp_runtime(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("libmultigrain-openmp.so");
}

}  // namespace multigrain
