// Reads the notes that mgcc's passes put into object files, out of what the loader has put into this process.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace multigrain {

// Calls visit(type, version) for each of the object's notes of Multigrain; each object file that was linked into the object
// has its own. Notes are padded to the alignment of their segment, which is 4 or 8. A note without a version has version 0.
template <typename Visit>
void for_each_note(const dl_phdr_info& object, Visit visit) {
  constexpr std::string_view kName{"Multigrain\0", 11};  // with its terminating zero
  for (ElfW(Half) i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const uint64_t alignment = segment.p_align == 8 ? 8 : 4;
    const auto padded = [&](uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
    const auto* const bytes = reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);
    for (uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= segment.p_memsz;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, bytes + at, sizeof note);
      at += sizeof note;
      if (at + padded(note.n_namesz) + note.n_descsz > segment.p_memsz) break;
      if (std::string_view(bytes + at, note.n_namesz) == kName) {
        uint32_t version = 0;
        if (note.n_descsz == sizeof version) std::memcpy(&version, bytes + at + padded(note.n_namesz), sizeof version);
        visit(uint32_t{note.n_type}, version);
      }
      at += padded(note.n_namesz) + padded(note.n_descsz);
    }
  }
}

}  // namespace multigrain
