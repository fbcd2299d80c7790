// Atomic updates that compiled code cannot make by itself, under one lock of all nodes. Clang 19 makes all updates by
// instructions, or by libatomic; these are for code of other compilers of its family.
#include "openmp/named_locks.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

// Its address is the name of the lock, on all nodes.
constexpr CriticalName kAtomic = {};

}  // namespace

MG_OPENMP_BEGIN

void __kmpc_atomic_start(void) {
  mg_lock(lock_of(&kAtomic));
}
void __kmpc_atomic_end(void) {
  mg_unlock(lock_of(&kAtomic));
}

MG_OPENMP_END

}  // namespace multigrain::openmp
