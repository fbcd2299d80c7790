#include "count/counting.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/mutex.h"
#include "count/memory.h"

__thread mg_count __multigrain_count = {.now = 0, .limit = UINT64_MAX};

namespace multigrain::counting {
namespace {

// These are never destroyed: modules unregister themselves until the process ends.
struct Modules {
  Mutex mutex;
  mg_counted_module* first MG_GUARDED_BY(mutex) = nullptr;            // of those that report no accesses
  mg_counted_module* first_of_memory MG_GUARDED_BY(mutex) = nullptr;  // and of those that do
  bool wants_memory MG_GUARDED_BY(mutex) = false;                     // all have to
  std::optional<InstructionCosts> costs MG_GUARDED_BY(mutex);
};
Modules& modules() {
  static Modules& made = *std::make_unique<Modules>().release();
  return made;
}

std::atomic<void (*)()> installed_poll = nullptr;
std::atomic<PriceOfAccess> installed_memory = nullptr;

// Returns the address at which the file that contains this address was loaded.
const void* file_of(const void* address) {
  Dl_info found;
  return dladdr(address, &found) != 0 ? found.dli_fbase : nullptr;
}

// Tells whether the program has a function of its own with the name of a library's. It counts itself.
bool is_own_function(const mg_counted_module& module, const char* name) {
  const void* const function = dlsym(RTLD_DEFAULT, name);
  return function != nullptr && file_of(function) == file_of(&module);
}

CallCost price_of(const mg_counted_module& module, const char* name, const InstructionCosts& costs) {
  if (is_own_function(module, name)) return {};
  const auto known = costs.calls.find(std::string_view(name));
  return known != costs.calls.end() ? known->second : costs.other_calls;
}

void price(const mg_counted_module& module, const InstructionCosts& costs) {
  if (module.version != MG_COUNT_VERSION)
    die(2, {module.source, " was compiled with -fmultigrain-count by another version of mgcc: compile it again"});
  for (uint32_t i = 0; i < module.entries; ++i) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < MG_COUNT_CLASSES; ++c) sum += module.instructions[i][c] * costs.of_class[c];
    if (costs.translation)
      sum += module.instructions[i][MG_COUNT_TRANSLATE_POINTER] * costs.translation->pointer +
             module.instructions[i][MG_COUNT_TRANSLATE_ARRAY] * costs.translation->array;
    module.costs[i] = sum;
  }
  for (uint32_t i = 0; i < module.number_of_calls; ++i) {
    const mg_counted_call& call = module.calls[i];
    const CallCost cost = price_of(module, call.name, costs);
    module.costs[call.entry] += call.calls * cost.fixed + call.bytes * cost.per_byte;
  }
}

}  // namespace

void install(const InstructionCosts& costs) {
  Modules& all = modules();
  const LockGuard guard(all.mutex);
  all.costs = costs;
  for (const mg_counted_module* first : {all.first, all.first_of_memory})
    for (const mg_counted_module* module = first; module != nullptr; module = module->next) price(*module, costs);
}

const char* set_memory(PriceOfAccess price) {
  Modules& all = modules();
  const LockGuard guard(all.mutex);
  if (all.first != nullptr) return all.first->source;
  all.wants_memory = true;
  installed_memory.store(price);
  return nullptr;
}

void report(const void* address, uint64_t bytes, bool writes, const void* caller) {
  const PriceOfAccess price = installed_memory.load(std::memory_order_relaxed);
  if (price != nullptr && address != nullptr) __multigrain_count.now += price(address, bytes, writes, caller);
}

void set_poll(void (*poll)()) {
  installed_poll.store(poll);
}

}  // namespace multigrain::counting

using namespace multigrain;
using namespace multigrain::counting;

void __multigrain_count_register(mg_counted_module* module) {
  Modules& all = modules();
  const LockGuard guard(all.mutex);
  if (all.wants_memory)
    die(2, {module->source,
            " does not report its accesses to memory, which this run needs: compile it with "
            "mgcc -fmultigrain-count=memory"});
  module->next = all.first;
  all.first = module;
  if (all.costs) price(*module, *all.costs);
}

void __multigrain_count_register_memory(mg_counted_module* module) {
  Modules& all = modules();
  const LockGuard guard(all.mutex);
  module->next = all.first_of_memory;
  all.first_of_memory = module;
  if (all.costs) price(*module, *all.costs);
}

void __multigrain_count_read(const void* address, uint64_t bytes) {
  report(address, bytes, false, __builtin_return_address(0));
}

void __multigrain_count_write(const void* address, uint64_t bytes) {
  report(address, bytes, true, __builtin_return_address(0));
}

void __multigrain_count_unregister(mg_counted_module* module) {
  Modules& all = modules();
  const LockGuard guard(all.mutex);
  for (mg_counted_module** const first : {&all.first, &all.first_of_memory}) {
    for (mg_counted_module** link = first; *link != nullptr; link = &(*link)->next) {
      if (*link != module) continue;
      *link = module->next;
      return;
    }
  }
}

// The trampoline __multigrain_count_poll (instrument/runtime/trampolines.cpp) calls this, and keeps the registers.
extern "C" [[gnu::visibility("hidden")]] void multigrain_count_poll();
void multigrain_count_poll() {
  if (auto* const poll = installed_poll.load())
    poll();
  else
    __multigrain_count.limit = UINT64_MAX;
}
