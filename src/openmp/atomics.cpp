// Atomic updates that compiled code does not make by itself, under one lock of all nodes. Clang 19 makes all updates by
// instructions, or by libatomic; these are for code of other compilers of its family, and for objects of older ones.
#include <algorithm>

#include "openmp/named_locks.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

// Its address is the name of the lock, on all nodes.
constexpr CriticalName kAtomic = {};

template <typename T, typename Update>
void update(T* variable, Update&& new_value) {
  const mg_lock_t lock = lock_of(&kAtomic);
  mg_lock(lock);
  *variable = static_cast<T>(new_value(*variable));
  mg_unlock(lock);
}

}  // namespace

// An update of a variable of the type by `value`, under the name that the compilers give it.
#define MG_ATOMIC(NAME, OPERATION, TYPE, EXPRESSION)                                     \
  void __kmpc_atomic_##NAME##_##OPERATION(Ident*, int32_t, TYPE* variable, TYPE value) { \
    update(variable, [value](TYPE old) { return EXPRESSION; });                          \
  }
#define MG_ATOMICS_OF_NUMBERS(NAME, TYPE)          \
  MG_ATOMIC(NAME, add, TYPE, old + value)          \
  MG_ATOMIC(NAME, sub, TYPE, old - value)          \
  MG_ATOMIC(NAME, mul, TYPE, old* value)           \
  MG_ATOMIC(NAME, div, TYPE, old / value)          \
  MG_ATOMIC(NAME, min, TYPE, std::min(old, value)) \
  MG_ATOMIC(NAME, max, TYPE, std::max(old, value))
#define MG_ATOMICS_OF_INTEGERS(NAME, TYPE)                    \
  MG_ATOMICS_OF_NUMBERS(NAME, TYPE)                           \
  MG_ATOMIC(NAME, andb, TYPE, old& value)                     \
  MG_ATOMIC(NAME, orb, TYPE, old | value)                     \
  MG_ATOMIC(NAME, xor, TYPE, old ^ value)                     \
  MG_ATOMIC(NAME, shl, TYPE, old << value)                    \
  MG_ATOMIC(NAME, shr, TYPE, old >> value)                    \
  MG_ATOMIC(NAME, andl, TYPE, old != 0 && value != 0 ? 1 : 0) \
  MG_ATOMIC(NAME, orl, TYPE, old != 0 || value != 0 ? 1 : 0)

MG_OPENMP_BEGIN

void __kmpc_atomic_start(void) {
  mg_lock(lock_of(&kAtomic));
}
void __kmpc_atomic_end(void) {
  mg_unlock(lock_of(&kAtomic));
}

MG_ATOMICS_OF_INTEGERS(fixed1, int8_t)
MG_ATOMICS_OF_INTEGERS(fixed1u, uint8_t)
MG_ATOMICS_OF_INTEGERS(fixed2, int16_t)
MG_ATOMICS_OF_INTEGERS(fixed2u, uint16_t)
MG_ATOMICS_OF_INTEGERS(fixed4, int32_t)
MG_ATOMICS_OF_INTEGERS(fixed4u, uint32_t)
MG_ATOMICS_OF_INTEGERS(fixed8, int64_t)
MG_ATOMICS_OF_INTEGERS(fixed8u, uint64_t)
MG_ATOMICS_OF_NUMBERS(float4, float)
MG_ATOMICS_OF_NUMBERS(float8, double)
MG_ATOMICS_OF_NUMBERS(float10, long double)

MG_OPENMP_END

}  // namespace multigrain::openmp
