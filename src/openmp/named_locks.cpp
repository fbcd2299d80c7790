#include "openmp/named_locks.h"

#include <atomic>

#include "openmp/memory.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

// What this node has found in the shared table: an open hash table that only grows. A place's lock is written before its
// name.
struct Known {
  std::atomic<const void*> name;
  std::atomic<mg_lock_t> lock;
};
constexpr size_t kPlaces = size_t{4} * kMaxNamedLocks;
constinit std::array<Known, kPlaces> g_known{};
constinit std::atomic<NamedLocks*> g_known_of{nullptr};

size_t place_of(const void* name) {
  return (reinterpret_cast<uintptr_t>(name) >> 3) * 0x9E3779B97F4A7C15u >> 32;
}

mg_lock_t find_known(const void* name) {
  for (size_t i = place_of(name);; ++i) {
    const Known& known = g_known[i % kPlaces];
    const void* const found = known.name.load(std::memory_order_acquire);
    if (found == name) return known.lock.load(std::memory_order_relaxed);
    if (found == nullptr) return 0;
  }
}

// Called under the table's guard, which is of all nodes, so one thread of the node is here at a time.
void remember(const void* name, mg_lock_t lock) {
  for (size_t i = place_of(name);; ++i) {
    Known& known = g_known[i % kPlaces];
    const void* const found = known.name.load(std::memory_order_relaxed);
    if (found == name) return;
    if (found != nullptr) continue;
    known.lock.store(lock, std::memory_order_relaxed);
    known.name.store(name, std::memory_order_release);
    return;
  }
}

mg_lock_t find_or_make(NamedLocks& all, const void* name) {
  for (uint32_t i = 0; i < all.count; ++i)
    if (all.entries[i].name == name) return all.entries[i].lock;
  if (all.count == kMaxNamedLocks) end_run("the program has too many critical sections; there can be", kMaxNamedLocks);
  all.entries[all.count] = {name, mg_lock_create()};
  return all.entries[all.count++].lock;
}

}  // namespace

NamedLocks* make_named_locks() {
  auto* const made = new_shared<NamedLocks>();
  made->guard = mg_lock_create();
  return made;
}

mg_lock_t lock_of(const void* name) {
  NamedLocks& all = *shared().named_locks;
  if (g_known_of.load(std::memory_order_acquire) == &all)
    if (const mg_lock_t known = find_known(name)) return known;
  mg_lock(all.guard);
  // What this node found in a table of its own, before its first worker brought it everybody's, it forgets.
  if (g_known_of.load(std::memory_order_relaxed) != &all) {
    for (Known& known : g_known) known.name.store(nullptr, std::memory_order_relaxed);
    g_known_of.store(&all, std::memory_order_release);
  }
  const mg_lock_t lock = find_or_make(all, name);
  remember(name, lock);
  mg_unlock(all.guard);
  return lock;
}

}  // namespace multigrain::openmp
