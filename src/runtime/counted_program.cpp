#include "runtime/counted_program.h"

#include <link.h>

#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "count/note.h"
#include "runtime/private/loaded_objects.h"
#include "runtime/private/object_notes.h"

// mgcc defines it in the program (count/note.h).
extern "C" [[gnu::weak]] const char __multigrain_only_counted_code;

namespace multigrain::counting {
namespace {

// Says why the object is not counted; nothing if it is.
std::string look_at(const dl_phdr_info& object) {
  const std::string_view path = object.dlpi_name != nullptr ? object.dlpi_name : "";
  const bool is_program = path.empty();
  const std::string_view name = is_program ? program_invocation_name : path;
  if (!is_program && (holds(object, reinterpret_cast<uintptr_t>(&program_is_counted)) || is_system_library(path) ||
                      is_openmp_runtime(path)))
    return {};
  bool has = false;
  bool of_another = false;
  for_each_note(object, [&](uint32_t type, uint32_t version) {
    if (type == MG_COUNT_NOTE_TYPE) (version == MG_COUNT_VERSION ? has : of_another) = true;
  });
  if (of_another)
    return fmt::format("{} was compiled with -fmultigrain-count by another version of mgcc: compile it again", name);
  if (!has) return fmt::format("{} is not counted: compile and link it with mgcc -fmultigrain-count", name);
  if (is_program && &__multigrain_only_counted_code == nullptr)
    return fmt::format("parts of {} are not counted: link it with mgcc -fmultigrain-count, which says which", name);
  return {};
}

}  // namespace

std::string why_not_counted() {
  std::string why;
  const auto visit = [](dl_phdr_info* object, size_t, void* result) {
    auto& found = *static_cast<std::string*>(result);
    found = look_at(*object);
    return found.empty() ? 0 : 1;
  };
  dl_iterate_phdr(visit, &why);
  return why;
}

bool program_is_counted() {
  return why_not_counted().empty();
}

}  // namespace multigrain::counting
