#include "openmp/program_symbols.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace multigrain::openmp {
namespace {

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* hash = nullptr;
};

Tables tables_of(const dl_phdr_info& object) {
  Tables tables;
  for (ElfW(Half) i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      // The loader has made an address of it, except in the kernel's own object.
      const uintptr_t value = entry->d_un.d_ptr;
      const uintptr_t address = value < object.dlpi_addr ? value + object.dlpi_addr : value;
      if (entry->d_tag == DT_SYMTAB) tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) tables.strings = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_GNU_HASH) tables.gnu_hash = reinterpret_cast<const uint32_t*>(address);
      if (entry->d_tag == DT_HASH) tables.hash = reinterpret_cast<const uint32_t*>(address);
    }
  }
  return tables;
}

// Symbols without a definition stand before those in the GNU table; the older table has the number of all.
uint32_t count_undefined(const Tables& tables) {
  if (tables.gnu_hash != nullptr) return tables.gnu_hash[1];
  return tables.hash != nullptr ? tables.hash[1] : 0;
}

int look(dl_phdr_info* object, size_t, void* function) {
  const Tables tables = tables_of(*object);
  if (tables.symbols == nullptr || tables.strings == nullptr) return 0;
  const uint32_t count = count_undefined(tables);
  for (uint32_t i = 1; i < count; ++i) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    if (symbol.st_shndx == SHN_UNDEF &&
        std::strcmp(tables.strings + symbol.st_name, static_cast<const char*>(function)) == 0)
      return 1;
  }
  return 0;
}

}  // namespace

bool program_refers_to(const char* function) {
  return dl_iterate_phdr(&look, const_cast<char*>(function)) != 0;
}

}  // namespace multigrain::openmp
