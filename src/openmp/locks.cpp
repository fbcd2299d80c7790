// The locks of omp.h. A lock is a lock of Multigrain, whose handle is in the program's variable. A nestable lock is one,
// too: how often its holder has taken it, only the holder need know.
#include "openmp/memory.h"
#include "openmp/ordered.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

struct LockVariable {
  mg_lock_t lock;
};

Thread::Nested* find_nested(Thread& thread, mg_lock_t lock) {
  for (Thread::Nested& nested : thread.nested)
    if (nested.lock == lock) return &nested;
  return nullptr;
}

void note_taken(Thread& thread, mg_lock_t lock) {
  Thread::Nested* const free = find_nested(thread, 0);
  if (free == nullptr) end_run("a thread holds too many nestable locks; it can hold", thread.nested.size());
  *free = {lock, 1};
}

}  // namespace

MG_OPENMP_BEGIN

void omp_init_lock(LockVariable* variable) {
  variable->lock = mg_lock_create();
}
void omp_init_lock_with_hint(LockVariable* variable, int) {
  variable->lock = mg_lock_create();
}
void omp_destroy_lock(LockVariable* variable) {
  mg_lock_destroy(variable->lock);
  variable->lock = 0;
}
void omp_set_lock(LockVariable* variable) {
  publish_iterations();
  mg_lock(variable->lock);
}
void omp_unset_lock(LockVariable* variable) {
  mg_unlock(variable->lock);
}
int omp_test_lock(LockVariable* variable) {
  return mg_trylock(variable->lock);
}

void omp_init_nest_lock(LockVariable* variable) {
  variable->lock = mg_lock_create();
}
void omp_init_nest_lock_with_hint(LockVariable* variable, int) {
  variable->lock = mg_lock_create();
}
void omp_destroy_nest_lock(LockVariable* variable) {
  mg_lock_destroy(variable->lock);
  variable->lock = 0;
}
void omp_set_nest_lock(LockVariable* variable) {
  Thread& thread = this_thread();
  const mg_lock_t lock = variable->lock;
  if (Thread::Nested* const held = lock != 0 ? find_nested(thread, lock) : nullptr) {
    ++held->depth;
    return;
  }
  publish_iterations();
  mg_lock(lock);
  note_taken(thread, lock);
}
void omp_unset_nest_lock(LockVariable* variable) {
  Thread::Nested* const held = variable->lock != 0 ? find_nested(this_thread(), variable->lock) : nullptr;
  if (held == nullptr) end_run("omp_unset_nest_lock: the thread does not hold the lock");
  if (--held->depth != 0) return;
  held->lock = 0;
  mg_unlock(variable->lock);
}
int omp_test_nest_lock(LockVariable* variable) {
  Thread& thread = this_thread();
  const mg_lock_t lock = variable->lock;
  if (Thread::Nested* const held = lock != 0 ? find_nested(thread, lock) : nullptr)
    return static_cast<int>(++held->depth);
  if (mg_trylock(lock) == 0) return 0;
  note_taken(thread, lock);
  return 1;
}

// Compiled code has these names for them.
void __kmpc_init_lock(Ident*, int32_t, void** variable) {
  omp_init_lock(reinterpret_cast<LockVariable*>(variable));
}
void __kmpc_destroy_lock(Ident*, int32_t, void** variable) {
  omp_destroy_lock(reinterpret_cast<LockVariable*>(variable));
}
void __kmpc_set_lock(Ident*, int32_t, void** variable) {
  omp_set_lock(reinterpret_cast<LockVariable*>(variable));
}
void __kmpc_unset_lock(Ident*, int32_t, void** variable) {
  omp_unset_lock(reinterpret_cast<LockVariable*>(variable));
}
int __kmpc_test_lock(Ident*, int32_t, void** variable) {
  return omp_test_lock(reinterpret_cast<LockVariable*>(variable));
}

MG_OPENMP_END

}  // namespace multigrain::openmp
