#include "report/symbols.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace multigrain {
namespace {

// libdw looks for debug information beside the file and in /usr/lib/debug, and never on the network.
char* g_debug_path = nullptr;
constexpr Dwfl_Callbacks kProcess{.find_elf = dwfl_linux_proc_find_elf,
                                  .find_debuginfo = dwfl_standard_find_debuginfo,
                                  .section_address = nullptr,
                                  .debuginfo_path = &g_debug_path};
constexpr Dwfl_Callbacks kFiles{.find_elf = dwfl_build_id_find_elf,
                                .find_debuginfo = dwfl_standard_find_debuginfo,
                                .section_address = nullptr,
                                .debuginfo_path = &g_debug_path};

Dwfl* begin(const Dwfl_Callbacks& callbacks) {
  // With this variable set, libdw would ask a server for debug information that is not on this machine.
  unsetenv("DEBUGINFOD_URLS");
  Dwfl* const session = dwfl_begin(&callbacks);
  if (session != nullptr) dwfl_report_begin(session);
  return session;
}

std::string readable(const char* name) {
  // The name of a C function may look like the mangled name of a C++ type ("f" is float).
  if (!std::string_view(name).starts_with("_Z")) return name;
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && plain != nullptr ? plain : name;
  std::free(plain);
  return result;
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

std::string name_of(Dwarf_Die* function) {
  Dwarf_Attribute attribute;
  for (const unsigned which : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    if (dwarf_attr_integrate(function, which, &attribute) == nullptr) continue;
    if (const char* const name = dwarf_formstring(&attribute)) return readable(name);
  }
  const char* const name = dwarf_diename(function);
  return name != nullptr ? name : "?";
}

std::string place(std::string_view file, int line) {
  return fmt::format("{}:{}", file_name(file), line);
}

// Returns the functions that contain the address, from the innermost on: first the inlined functions, then the function
// that contains them. Each has the line at which it calls the function before it.
std::vector<std::string> inlined_at(Dwfl_Module* module, Dwarf_Addr address, const std::string& line) {
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = dwfl_module_addrdie(module, address, &bias);
  if (unit == nullptr) return {};
  Dwarf_Die* scopes = nullptr;
  const int found = dwarf_getscopes(unit, address - bias, &scopes);
  std::vector<std::string> result;
  std::string at = line;
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  const bool has_files = dwarf_getsrcfiles(unit, &files, &count) == 0;
  for (int i = 0; i < found; ++i) {
    const int tag = dwarf_tag(&scopes[i]);
    if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
    result.push_back(fmt::format("{} at {}", name_of(&scopes[i]), at));
    if (tag == DW_TAG_subprogram) break;
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0;
    Dwarf_Word number = 0;
    const bool known = dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_file, &attribute), &file) == 0 &&
                       dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_line, &attribute), &number) == 0;
    const char* const path = known && has_files ? dwarf_filesrc(files, file, nullptr, nullptr) : nullptr;
    at = path != nullptr ? place(path, static_cast<int>(number)) : "a line that is not known";
  }
  std::free(scopes);
  return result;
}

}  // namespace

Symbols Symbols::of_process(pid_t pid) {
  Dwfl* const session = begin(kProcess);
  if (session != nullptr) {
    dwfl_linux_proc_report(session, pid);
    dwfl_report_end(session, nullptr, nullptr);
  }
  return Symbols(session);
}

Symbols Symbols::of_modules(std::span<const LoadedModule> modules) {
  Dwfl* const session = begin(kFiles);
  if (session != nullptr) {
    for (const LoadedModule& module : modules)
      dwfl_report_elf(session, module.path.c_str(), module.path.c_str(), -1, module.base, false);
    dwfl_report_end(session, nullptr, nullptr);
  }
  return Symbols(session);
}

Symbols::Symbols(Symbols&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}

Symbols::~Symbols() {
  if (session_ != nullptr) dwfl_end(session_);
}

std::vector<std::string> Symbols::describe_all(uint64_t address, bool is_return_address) {
  Dwfl_Module* const module = session_ != nullptr ? dwfl_addrmodule(session_, address) : nullptr;
  if (module == nullptr) return {fmt::format("{:#x}", address)};
  const Dwarf_Addr asked = is_return_address ? address - 1 : address;
  const char* path = nullptr;
  const char* const known = dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, &path, nullptr);
  const std::string_view file = file_name(path != nullptr ? path : known != nullptr ? known : "?");
  int line = 0;
  const char* source = nullptr;
  if (Dwfl_Line* const found = dwfl_module_getsrc(module, asked))
    source = dwfl_lineinfo(found, nullptr, &line, nullptr, nullptr, nullptr);
  if (source != nullptr) {
    if (auto functions = inlined_at(module, asked, place(source, line)); !functions.empty()) return functions;
  }
  GElf_Off offset = 0;
  GElf_Sym symbol;
  const char* const name = dwfl_module_addrinfo(module, asked, &offset, &symbol, nullptr, nullptr, nullptr);
  if (name == nullptr) return {fmt::format("{:#x} in {}", address, file)};
  if (source != nullptr) return {fmt::format("{} at {}", readable(name), place(source, line))};
  return {fmt::format("{}+{:#x} in {}", readable(name), offset + (is_return_address ? 1 : 0), file)};
}

std::string Symbols::line_of_call(uint64_t return_address) {
  Dwfl_Module* const module = session_ != nullptr ? dwfl_addrmodule(session_, return_address) : nullptr;
  int line = 0;
  if (module != nullptr)
    if (Dwfl_Line* const found = dwfl_module_getsrc(module, return_address - 1))
      if (const char* const source = dwfl_lineinfo(found, nullptr, &line, nullptr, nullptr, nullptr))
        return place(source, line);
  return describe(return_address, true);
}

std::string Symbols::function_at(uint64_t address) {
  Dwfl_Module* const module = session_ != nullptr ? dwfl_addrmodule(session_, address) : nullptr;
  const char* const name = module != nullptr ? dwfl_module_addrname(module, address) : nullptr;
  return name != nullptr ? readable(name) : describe(address, false);
}

}  // namespace multigrain
