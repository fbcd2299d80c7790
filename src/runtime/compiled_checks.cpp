#include "runtime/compiled_checks.h"

#include <link.h>

#include <cerrno>
#include <string_view>

#include "instrument/abi.h"
#include "instrument/note.h"
#include "runtime/private/loaded_objects.h"
#include "runtime/private/object_notes.h"

// mgcc defines it in the program (instrument/note.h).
extern "C" [[gnu::weak]] const char __multigrain_only_checked_code;

namespace multigrain {
namespace {

constexpr uint32_t kHasChecks = 1;
constexpr uint32_t kHasGaps = 2;
constexpr uint32_t kTranslates = MG_TRANSLATE_NOTE_TYPE;

struct Notes {
  bool of_this_version = false;
  bool of_another = false;
  bool of_gaps = false;
  bool of_translation = false;
  bool of_another_translation = false;
};

// Reads the object's notes, which say by which version of mgcc it was compiled.
Notes find_notes(const dl_phdr_info& object) {
  Notes result;
  for_each_note(object, [&](uint32_t type, uint32_t version) {
    result.of_gaps |= type == kHasGaps;
    if (type == kTranslates)
      (version == MG_TRANSLATE_VERSION ? result.of_translation : result.of_another_translation) = true;
    if (type == kHasChecks) (version == MG_FINE_VERSION ? result.of_this_version : result.of_another) = true;
  });
  return result;
}

}  // namespace

CompiledChecks find_compiled_checks() {
  CompiledChecks found;
  const auto visit = [](dl_phdr_info* object, size_t, void* result) {
    auto& checks = *static_cast<CompiledChecks*>(result);
    const std::string_view path = object->dlpi_name != nullptr ? object->dlpi_name : "";
    const bool is_program = path.empty();
    const Notes notes = find_notes(*object);
    const bool has = notes.of_this_version || notes.of_another;
    if (is_program) {
      checks.in_program = notes.of_this_version && !notes.of_another;
      checks.has_no_gaps = checks.in_program && !notes.of_gaps && &__multigrain_only_checked_code != nullptr;
    }
    if (notes.of_another && checks.of_another_version.empty())
      checks.of_another_version = is_program ? program_invocation_name : path;
    const bool is_ours = holds(*object, reinterpret_cast<uintptr_t>(&find_compiled_checks));
    const bool is_known = is_ours || (!is_program && (is_system_library(path) || is_openmp_runtime(path)));
    const std::string name = is_program ? std::string(program_invocation_name) : std::string(path);
    if (notes.of_another_translation && checks.translation_of_another_version.empty())
      checks.translation_of_another_version = name;
    if (!is_known && !notes.of_translation && !notes.of_another_translation && checks.untranslated.empty())
      checks.untranslated = name;
    // What the OpenMP runtime shares with the program is kept by pages.
    if (has || is_known) return 0;
    if (checks.missing.empty()) checks.missing = name;
    return 0;
  };
  dl_iterate_phdr(visit, &found);
  return found;
}

}  // namespace multigrain
