// A run under a line protocol ends here when the program hands shared memory to a library function that has neither
// checks nor a wrapper. The function would read the flag value where a line is invalid, and its stores there would be
// lost. The runtime cannot bring the lines beforehand, because it does not know how much memory the function accesses.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/error.h"
#include "instrument/runtime/entry.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "instrument/runtime/memory_functions.h"

namespace {

// Tells whether the pointer leads to the library's function of that name, and not to a function of the program's own
// with the same name.
bool is_of_library(const void* function, const char* name) {
  if (function == nullptr) return true;  // a built-in function of the processor
  if (dlsym(RTLD_DEFAULT, name) != function) return false;
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT) == 0)
    return true;
  // The first object in the list is the executable. A symbol that is not defined there leads to the library.
  const bool in_executable = info.dli_fbase != nullptr && _r_debug.r_map != nullptr &&
                             reinterpret_cast<uintptr_t>(info.dli_fbase) == _r_debug.r_map->l_addr;
  return !in_executable || symbol == nullptr || symbol->st_shndx == SHN_UNDEF;
}

}  // namespace

MG_ENTRY void __multigrain_hand_out(const void* pointer, const void* function, const char* name, const char* file,
                                    unsigned line) {
  multigrain::LineProtocol* const protocol = multigrain::line_protocol();
  const bool translates = multigrain::translated_memory() != nullptr;
  if (protocol == nullptr && !(translates && multigrain::checks::is_shared(reinterpret_cast<uintptr_t>(pointer))))
    return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  // What is handed over may go on to the next page, which may have moved to lines where this one has not.
  constexpr uintptr_t kFurther = multigrain::Config::kMinPageSize - 1;
  if (!translates && !protocol->keeps(address) && !protocol->keeps(address + kFurther))
    return protocol->is_handed_out(address);
  if (!is_of_library(function, name)) return;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                        std::free);
  const std::string where = file != nullptr ? fmt::format("{}:{}: ", file, line) : std::string();
  const std::string sentence = fmt::format(
      "{}the pointer {} to shared memory is handed to {}, which has no access checks: it would read "
      "memory that is not here, and what it stores would be lost; hand it private memory, and copy from or to that, or {}",
      where, pointer, status == 0 && readable != nullptr ? readable.get() : name,
      translates ? "leave translation to the hardware (--mgs translation=hardware)"
                 : "keep memory coherent by pages (--protocol hlrc)");
  multigrain::die(1, sentence.c_str());
}
