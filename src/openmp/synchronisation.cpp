// Barriers, critical sections, reductions, single, master and flush, as compiled code calls them.
//
// Each of them is an acquire and a release of Multigrain where OpenMP has a flush: a barrier, or a lock.
#include <multigrain/multigrain.h>

#include <cstdio>

#include "openmp/memory.h"
#include "openmp/named_locks.h"
#include "openmp/ordered.h"
#include "openmp/team.h"
#include "runtime/running.h"

namespace multigrain::openmp {
namespace {

void flush() {
  if (__multigrain_is_running() == 0 || mg_processors() == 1) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return;
  }
  mg_release();
  mg_acquire();
}

// The thread combines its values with the variables itself, under the lock. In a team of one nobody else does.
int32_t begin_reduction(const CriticalName* name) {
  if (this_thread().frame->threads != 1) mg_lock(lock_of(name));
  return 1;
}

void end_reduction(const CriticalName* name) {
  if (this_thread().frame->threads != 1) mg_unlock(lock_of(name));
}

}  // namespace

MG_OPENMP_BEGIN

void __kmpc_barrier(Ident*, int32_t) {
  team_barrier(this_thread());
}
// Nothing is ever cancelled.
int32_t __kmpc_cancel_barrier(Ident*, int32_t) {
  team_barrier(this_thread());
  return 0;
}
int32_t __kmpc_cancel(Ident*, int32_t, int32_t) {
  return 0;
}
int32_t __kmpc_cancellationpoint(Ident*, int32_t, int32_t) {
  return 0;
}

int32_t __kmpc_master(Ident*, int32_t) {
  return this_thread().frame->number == 0 ? 1 : 0;
}
void __kmpc_end_master(Ident*, int32_t) {}
int32_t __kmpc_masked(Ident*, int32_t, int32_t filter) {
  return static_cast<int32_t>(this_thread().frame->number) == filter ? 1 : 0;
}
void __kmpc_end_masked(Ident*, int32_t) {}

// Which thread executes it is this library's choice. To find out which comes first would cost each thread a lock.
int32_t __kmpc_single(Ident*, int32_t) {
  return this_thread().frame->number == 0 ? 1 : 0;
}
void __kmpc_end_single(Ident*, int32_t) {}

void __kmpc_critical(Ident*, int32_t, CriticalName* name) {
  publish_iterations();
  mg_lock(lock_of(name));
}
void __kmpc_critical_with_hint(Ident*, int32_t, CriticalName* name, uint32_t) {
  publish_iterations();
  mg_lock(lock_of(name));
}
void __kmpc_end_critical(Ident*, int32_t, CriticalName* name) {
  mg_unlock(lock_of(name));
}

int32_t __kmpc_reduce_nowait(Ident*, int32_t, int32_t, size_t, void*, void (*)(void*, void*), CriticalName* name) {
  return begin_reduction(name);
}
void __kmpc_end_reduce_nowait(Ident*, int32_t, CriticalName* name) {
  end_reduction(name);
}
int32_t __kmpc_reduce(Ident*, int32_t, int32_t, size_t, void*, void (*)(void*, void*), CriticalName* name) {
  return begin_reduction(name);
}
void __kmpc_end_reduce(Ident*, int32_t, CriticalName* name) {
  end_reduction(name);
  team_barrier(this_thread());
}

void __kmpc_flush(Ident*) {
  flush();
}
void __kmpc_flush_acquire(Ident*) {
  flush();
}
void __kmpc_flush_release(Ident*) {
  flush();
}
void __kmpc_flush_acqrel(Ident*) {
  flush();
}

// The thread that has executed the single hands on where its values are, and does not go on before all have them.
void __kmpc_copyprivate(Ident*, int32_t, size_t, void* data, void (*copy)(void* to, void* from), int32_t has_executed) {
  Thread& thread = this_thread();
  if (thread.frame->threads == 1) return;
  Shared& all = shared();
  if (has_executed != 0) all.copied = data;
  team_barrier(thread);
  if (has_executed == 0) copy(data, all.copied);
  team_barrier(thread);
}

void __kmpc_error(Ident*, int severity, const char* message) {
  constexpr int kFatal = 2;
  if (severity == kFatal) end_run(message != nullptr ? message : "the program has met an error directive");
  std::fprintf(stderr, "multigrain: OpenMP: %s\n",
               message != nullptr ? message : "the program has met an error directive");
}
MG_OPENMP_END

}  // namespace multigrain::openmp
