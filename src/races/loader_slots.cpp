#include "races/loader_slots.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <span>

namespace multigrain::races {

void LoaderSlots::find() {
  count_ = 0;
  const auto visit = [](dl_phdr_info* file, size_t, void* argument) {
    auto& self = *static_cast<LoaderSlots*>(argument);
    uint64_t relocations = 0, bytes = 0;
    for (const ElfW(Phdr) & segment : std::span(file->dlpi_phdr, file->dlpi_phnum)) {
      if (segment.p_type != PT_DYNAMIC) continue;
      for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(file->dlpi_addr + segment.p_vaddr);
           entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_JMPREL) relocations = entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
      }
    }
    // The loader has made the table's address an absolute one, but not the vDSO's, which has none.
    if (relocations < file->dlpi_addr || bytes == 0 || self.count_ == kMost) return 0;
    const std::span table(reinterpret_cast<const ElfW(Rela)*>(relocations), bytes / sizeof(ElfW(Rela)));
    const auto [first, last] = std::ranges::minmax(table, {}, &ElfW(Rela)::r_offset);
    self.ranges_[self.count_++] = {file->dlpi_addr + first.r_offset, last.r_offset - first.r_offset + sizeof(uint64_t)};
    return 0;
  };
  dl_iterate_phdr(visit, this);
}

}  // namespace multigrain::races
