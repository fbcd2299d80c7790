#include "fabric/ucx/interposed_calls.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace multigrain {
namespace {

// The tables of one loaded library, as its dynamic section describes them.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * plt = nullptr;  // functions that are bound on their first call
  size_t plt_count = 0;
  const ElfW(Rela) * others = nullptr;  // other relocations, also of functions that are bound at load
  size_t others_count = 0;
};

struct Search {
  std::span<const char* const> libraries;
  std::span<const Interposition> functions;
  // The search calls this for each entry `place` of `function`.
  void (*found)(void* context, const Interposition& function, void** place, bool read_only);
  void* context;
};

Tables tables_of(const dl_phdr_info& object, const ElfW(Dyn) * dynamic) {
  Tables tables;
  // The loader stores absolute addresses here, except for objects whose dynamic section it cannot write.
  const auto pointer = [&](ElfW(Addr) value) { return value < object.dlpi_addr ? value + object.dlpi_addr : value; };
  size_t plt_bytes = 0;
  size_t others_bytes = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer(dynamic->d_un.d_ptr));
        break;
      case DT_STRTAB:
        tables.names = reinterpret_cast<const char*>(pointer(dynamic->d_un.d_ptr));
        break;
      case DT_JMPREL:
        tables.plt = reinterpret_cast<const ElfW(Rela)*>(pointer(dynamic->d_un.d_ptr));
        break;
      case DT_PLTRELSZ:
        plt_bytes = dynamic->d_un.d_val;
        break;
      case DT_RELA:
        tables.others = reinterpret_cast<const ElfW(Rela)*>(pointer(dynamic->d_un.d_ptr));
        break;
      case DT_RELASZ:
        others_bytes = dynamic->d_un.d_val;
        break;
      default:
        break;
    }
  }
  tables.plt_count = tables.plt != nullptr ? plt_bytes / sizeof(ElfW(Rela)) : 0;
  tables.others_count = tables.others != nullptr ? others_bytes / sizeof(ElfW(Rela)) : 0;
  return tables;
}

int visit(dl_phdr_info* object, size_t, void* context) {
  const Search& search = *static_cast<const Search*>(context);
  const std::string_view path = object->dlpi_name != nullptr ? object->dlpi_name : "";
  const std::string_view file = path.substr(path.rfind('/') + 1);
  bool wanted = false;
  for (const char* library : search.libraries) wanted = wanted || file.starts_with(library);
  if (!wanted) return 0;

  const ElfW(Dyn)* dynamic = nullptr;
  ElfW(Addr) read_only_begin = 0;
  ElfW(Addr) read_only_end = 0;
  for (ElfW(Half) i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_GNU_RELRO) {
      read_only_begin = object->dlpi_addr + segment.p_vaddr;
      read_only_end = read_only_begin + segment.p_memsz;
    }
  }
  if (dynamic == nullptr) return 0;
  const Tables tables = tables_of(*object, dynamic);
  if (tables.symbols == nullptr || tables.names == nullptr) return 0;

  const auto look_through = [&](const ElfW(Rela) * entries, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const auto type = ELF64_R_TYPE(entries[i].r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
      const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(entries[i].r_info)];
      for (const Interposition& function : search.functions) {
        if (strcmp(tables.names + symbol.st_name, function.name) != 0) continue;
        const ElfW(Addr) place = object->dlpi_addr + entries[i].r_offset;
        search.found(search.context, function, reinterpret_cast<void**>(place),
                     place >= read_only_begin && place < read_only_end);
      }
    }
  };
  look_through(tables.plt, tables.plt_count);
  look_through(tables.others, tables.others_count);
  return 0;
}

}  // namespace

Result<InterposedCalls> InterposedCalls::install(std::span<const char* const> libraries,
                                                 std::span<const Interposition> functions) {
  InterposedCalls made;
  Search search{libraries, functions,
                [](void* context, const Interposition& function, void** place, bool read_only) {
                  static_cast<InterposedCalls*>(context)->slots_.push_back(
                      Slot{function.name, place, nullptr, function.replacement, read_only});
                },
                &made};
  dl_iterate_phdr(&visit, &search);
  for (Slot& slot : made.slots_) {
    slot.before = *slot.place;
    if (Status written = write(slot, slot.after); !written) {
      // The entries that were written are restored: a gate with a hole would be worse than none.
      for (Slot& undone : made.slots_) {
        if (&undone == &slot) break;
        if (const Status back = write(undone, undone.before); !back) break;
      }
      return tl::unexpected(written.error());
    }
  }
  return made;
}

unsigned InterposedCalls::count(const char* name) const {
  unsigned found = 0;
  for (const Slot& slot : slots_) found += strcmp(slot.name, name) == 0 ? 1 : 0;
  return found;
}

Status InterposedCalls::restore() {
  for (const Slot& slot : slots_)
    if (Status written = write(slot, slot.before); !written) return written;
  slots_.clear();
  return {};
}

Status InterposedCalls::write(const Slot& slot, void* value) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot.place) & ~(page_size - 1));
  if (slot.read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0)
    return fail_errno(errno, "cannot change the global offset table of a UCX library");
  std::atomic_ref(*slot.place).store(value, std::memory_order_release);
  if (slot.read_only && mprotect(page, page_size, PROT_READ) != 0)
    return fail_errno(errno, "cannot protect the global offset table of a UCX library again");
  return {};
}

}  // namespace multigrain
