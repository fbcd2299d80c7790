// Finds the build id that the linker gave to an executable or a library.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace multigrain {

// `notes` are the contents of a PT_NOTE segment. Returns nothing if there is no build id in them. Allocates nothing.
inline std::span<const std::byte> find_build_id(std::span<const std::byte> notes) {
  const auto round_up = [](size_t n) { return (n + 3) & ~size_t{3}; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    const size_t name_at = sizeof header;
    const size_t data_at = name_at + round_up(header.n_namesz);
    const size_t total = data_at + round_up(header.n_descsz);
    if (total > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(&notes[name_at], "GNU", 4) == 0)
      return notes.subspan(data_at, header.n_descsz);
    notes = notes.subspan(total);
  }
  return {};
}

}  // namespace multigrain
