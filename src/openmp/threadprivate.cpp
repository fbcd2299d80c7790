#include "openmp/threadprivate.h"

#include <cstring>
#include <mutex>

#include "openmp/abi.h"
#include "openmp/memory.h"
#include "openmp/tasks.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

// The copies that the thread has: an open hash table.
struct Copy {
  const void* variable;
  void* copy;
};
constexpr size_t kPlaces = size_t{4} * kMaxThreadprivate;
[[gnu::tls_model("initial-exec")]] constinit thread_local Copy* t_copies = nullptr;

// What constructors of the program have registered. They run on every node, so each has all of them.
struct Registered {
  const void* variable;
  void* (*construct)(void* copy);
};
constinit std::array<Registered, kMaxThreadprivate> g_registered{};
constinit size_t g_registered_count = 0;
constinit std::mutex g_registering;

void* (*constructor_of(const void* variable))(void*) {
  const std::lock_guard hold(g_registering);
  for (size_t i = 0; i < g_registered_count; ++i)
    if (g_registered[i].variable == variable) return g_registered[i].construct;
  return nullptr;
}

Copy& place_of(const void* variable) {
  if (t_copies == nullptr) t_copies = static_cast<Copy*>(allocate_private(sizeof(Copy) * kPlaces));
  size_t at = (reinterpret_cast<uintptr_t>(variable) >> 2) * 0x9E3779B97F4A7C15u >> 32;
  while (t_copies[at % kPlaces].variable != nullptr && t_copies[at % kPlaces].variable != variable) ++at;
  return t_copies[at % kPlaces];
}

// Called under the guard.
ThreadprivateTable::Entry& entry_of(ThreadprivateTable& table, const void* variable) {
  for (uint32_t i = 0; i < table.count; ++i)
    if (table.entries[i].variable == variable) return table.entries[i];
  if (table.count == kMaxThreadprivate)
    end_run("the program has too many threadprivate variables; there can be", kMaxThreadprivate);
  table.entries[table.count].variable = variable;
  return table.entries[table.count++];
}

void* make_copy(const Thread& thread, void* variable, size_t size) {
  ThreadprivateTable& table = *shared().threadprivate;
  mg_lock(table.guard);
  ThreadprivateTable::Entry& entry = entry_of(table, variable);
  if (entry.initial == nullptr) {
    entry.size = size;
    entry.initial = allocate_task_memory(size);
    std::memcpy(entry.initial, variable, size);
  }
  const void* const initial = entry.initial;
  mg_unlock(table.guard);
  if (thread.kind != Thread::Kind::kWorker && thread.kind != Thread::Kind::kForeign) return variable;
  void* const copy = allocate_task_memory(size);
  if (auto* const construct = constructor_of(variable)) {
    std::memset(copy, 0, size);
    construct(copy);
  } else {
    std::memcpy(copy, initial, size);
  }
  return copy;
}

}  // namespace

ThreadprivateTable* make_threadprivate_table() {
  auto* const made = new_shared<ThreadprivateTable>();
  made->guard = mg_lock_create();
  return made;
}

MG_OPENMP_BEGIN

// Threads live as long as the program: no copy is destroyed before.
void __kmpc_threadprivate_register(Ident*, void* variable, void* (*construct)(void*), void* (*)(void*, void*),
                                   void (*)(void*)) {
  const std::lock_guard hold(g_registering);
  if (g_registered_count == kMaxThreadprivate)
    end_run("the program has too many threadprivate variables; there can be", kMaxThreadprivate);
  g_registered[g_registered_count++] = {variable, construct};
}

void* __kmpc_threadprivate_cached(Ident*, int32_t, void* variable, size_t size, void***) {
  const Thread& thread = this_thread();
  Copy& place = place_of(variable);
  if (place.variable == nullptr) place = {variable, make_copy(thread, variable, size)};
  return place.copy;
}

MG_OPENMP_END

}  // namespace multigrain::openmp
