#include "guest/vdso.h"

#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "guest/areas.h"

namespace multigrain::guest {
namespace {

// The table of symbols of an image: where it is, and how many symbols there are.
struct Symbols {
  Elf64_Sym* first = nullptr;
  const char* names = nullptr;
  size_t count = 0;
};

template <typename T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

Symbols symbols_of(uint64_t begin) {
  const auto& header = *at<const Elf64_Ehdr>(begin);
  const auto* const segments = at<const Elf64_Phdr>(begin + header.e_phoff);
  uint64_t moved = begin;
  const Elf64_Dyn* dynamic = nullptr;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD) moved = begin + segments[i].p_offset - segments[i].p_vaddr;
    if (segments[i].p_type == PT_DYNAMIC) dynamic = at<const Elf64_Dyn>(begin + segments[i].p_offset);
  }
  Symbols symbols;
  if (dynamic == nullptr) return symbols;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const uint64_t address = moved + dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) symbols.first = at<Elf64_Sym>(address);
    if (dynamic->d_tag == DT_STRTAB) symbols.names = at<const char>(address);
  }
  // The names follow the symbols, in every image that the linker makes.
  if (symbols.first != nullptr && symbols.names != nullptr) {
    const auto table = reinterpret_cast<uint64_t>(symbols.first);
    const auto names = reinterpret_cast<uint64_t>(symbols.names);
    if (names > table) symbols.count = (names - table) / sizeof(Elf64_Sym);
  }
  return symbols;
}

}  // namespace

Status hide_processor_number() {
  const uint64_t begin = getauxval(AT_SYSINFO_EHDR);
  if (begin == 0) return {};
  const Symbols symbols = symbols_of(begin);
  for (size_t i = 0; i < symbols.count; ++i) {
    Elf64_Sym& symbol = symbols.first[i];
    const std::string_view name = symbols.names + symbol.st_name;
    if (name != "getcpu" && name != "__vdso_getcpu") continue;
    const uint64_t page = page_down(reinterpret_cast<uint64_t>(&symbol));
    // The kernel lets debuggers write there, and so any process in its own copy.
    if (mprotect(at<void>(page), 2 * kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
      return fail_errno(errno, "cannot hide the number of the processor from the program (mprotect of the vdso)");
    symbol.st_value = 0;
    symbol.st_shndx = SHN_UNDEF;
    mprotect(at<void>(page), 2 * kPageSize, PROT_READ | PROT_EXEC);
  }
  return {};
}

}  // namespace multigrain::guest
