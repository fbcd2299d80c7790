// Compiled translation (instrument/abi.h; docs/internals/mgs.md, "Compiled translation"): the entries that compiled code calls
// when its translation table does not allow an access.
#include "instrument/runtime/translation.h"

#include <atomic>

#include "base/keep_errno.h"
#include "coherence/hazard.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "instrument/runtime/memory_access.h"

namespace multigrain {
namespace {

std::atomic<TranslatedMemory*> memory_of_process{nullptr};

// The table of a thread that has none. In a run without compiled translation it allows everything.
constinit uint8_t rights_without_table = MG_TRANSLATE_MAY_READ | MG_TRANSLATE_MAY_WRITE;

}  // namespace

TranslatedMemory* translated_memory() {
  return memory_of_process.load(std::memory_order_acquire);
}

void set_translated_memory(TranslatedMemory* memory) {
  memory_of_process.store(memory, std::memory_order_release);
  constexpr uint8_t kAll = MG_TRANSLATE_MAY_READ | MG_TRANSLATE_MAY_WRITE;
  std::atomic_ref(rights_without_table).store(memory == nullptr ? kAll : uint8_t{0}, std::memory_order_seq_cst);
}

}  // namespace multigrain

__thread mg_translation __multigrain_translation
    __attribute__((tls_model("initial-exec"))) = {&multigrain::rights_without_table, MG_TRANSLATE_NO_TABLE};

namespace multigrain::checks {
namespace {

uint64_t page_of_table(uintptr_t address) {
  return (address - MG_FINE_VIEW_BASE) >> __multigrain_translation.shift;
}

bool allows(uintptr_t address, bool stores) {
  // The runtime writes the table.
  const uint8_t rights = __atomic_load_n(&__multigrain_translation.rights[page_of_table(address)], __ATOMIC_ACQUIRE);
  return (rights & (stores ? MG_TRANSLATE_MAY_WRITE : MG_TRANSLATE_MAY_READ)) != 0;
}

// Calls look(address) for an address in each page of [begin, end), until it returns false. Returns whether it never did.
template <typename Look>
bool all_pages(uintptr_t begin, uintptr_t end, Look&& look) {
  if (!look(begin)) return false;
  // The fault on the first page may have given this thread its table.
  while (page_of_table(begin) != page_of_table(end - 1)) {
    const uintptr_t page = uintptr_t{1} << __multigrain_translation.shift;
    begin = (begin & ~(page - 1)) + page;
    if (!look(begin)) return false;
  }
  return true;
}

// Compiled code is about to make an access that its table did not allow when it looked.
void miss(const void* address, uint64_t size, bool stores) {
  const KeepErrno keep;
  begin_access();
  const uintptr_t begin = address_of(address);
  const uintptr_t end = begin + size;
  const uint64_t word = make_hazard(line_of(begin), MG_TRANSLATE_LINES, stores);
  while (true) {
    hazard(0).exchange(word);
    if (is_translated(begin, end, stores)) return;
    hazard(0).store(0, std::memory_order_release);
    if (!translate(begin, end, stores)) return;
  }
}

}  // namespace

bool translates() {
  return translated_memory() != nullptr;
}

bool is_translated(uintptr_t begin, uintptr_t end, bool stores) {
  return all_pages(begin, end, [stores](uintptr_t address) { return allows(address, stores); });
}

bool translate(uintptr_t begin, uintptr_t end, bool stores) {
  TranslatedMemory* const memory = translated_memory();
  if (memory == nullptr) return true;
  return all_pages(begin, end,
                   [=](uintptr_t address) { return allows(address, stores) || memory->fault(address, stores); });
}

}  // namespace multigrain::checks

// The trampolines of these names (__multigrain_...) save all registers and call these functions.
extern "C" void multigrain_translate_read_miss(const void* address, uint64_t size) {
  multigrain::checks::miss(address, size, false);
}
extern "C" void multigrain_translate_write_miss(const void* address, uint64_t size) {
  multigrain::checks::miss(address, size, true);
}
