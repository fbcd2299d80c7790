#include "races/compiled/contexts.h"

#include <link.h>

namespace multigrain::races {

uint64_t Contexts::code_of(uint64_t place) {
  struct Search {
    uint64_t low;
    uint64_t found;
  };
  constexpr uint64_t kLow = (uint64_t{1} << kAddressBits) - 1;
  const auto visit = [](dl_phdr_info* object, size_t, void* result) {
    auto& search = *static_cast<Search*>(result);
    for (ElfW(Half) i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = object->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      const uint64_t begin = object->dlpi_addr + segment.p_vaddr;
      const uint64_t offset = (search.low - begin) & kLow;
      // A call that does not return may be the last instruction.
      if (offset > segment.p_memsz) continue;
      search.found = begin + offset;
      return 1;
    }
    return 0;
  };
  Search search = {place & kLow, place & kLow};
  dl_iterate_phdr(visit, &search);
  return search.found;
}

}  // namespace multigrain::races
