// What code calls that mgcc compiled with -fmultigrain-races (abi.h). Without --check-races a call looks at one variable of its
// thread.
#include <cstring>

#include "races/compiled/abi.h"
#include "races/compiled/compiled_detector.h"

using namespace multigrain::races;

// Where the program's code calls from. The address before it is in the line that the access belongs to.
#define MG_RACES_CODE (reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1)

namespace {

template <unsigned kBytes, bool kIsWrite>
[[gnu::always_inline]] inline void at_aligned(const void* where, uintptr_t code) {
  Owner* const me = t_owner;
  if (me == nullptr) return;
  CompiledDetector& detector = *g_compiled_detector;
  const auto address = reinterpret_cast<uint64_t>(where);
  if (!detector.covers(address)) return;
  detector.access_aligned<kBytes, kIsWrite>(*me, address, code);
}

[[gnu::always_inline]] inline void at(const void* where, size_t bytes, bool is_write, uintptr_t code) {
  Owner* const me = t_owner;
  if (me == nullptr) return;
  CompiledDetector& detector = *g_compiled_detector;
  const auto address = reinterpret_cast<uint64_t>(where);
  if (!detector.covers(address)) return;
  detector.access(*me, address, bytes, is_write, false, code);
}

}  // namespace

#define MG_RACES_DEFINE(N)                              \
  void __multigrain_race_read##N(const void* address) { \
    at_aligned<N, false>(address, MG_RACES_CODE);       \
  }                                                     \
  void __multigrain_race_write##N(void* address) {      \
    at_aligned<N, true>(address, MG_RACES_CODE);        \
  }
MG_RACES_DEFINE(1)
MG_RACES_DEFINE(2)
MG_RACES_DEFINE(4)
MG_RACES_DEFINE(8)
#undef MG_RACES_DEFINE

void __multigrain_race_read16(const void* address) {
  const uintptr_t code = MG_RACES_CODE;
  at_aligned<8, false>(address, code);
  at_aligned<8, false>(static_cast<const char*>(address) + 8, code);
}
void __multigrain_race_write16(void* address) {
  const uintptr_t code = MG_RACES_CODE;
  at_aligned<8, true>(address, code);
  at_aligned<8, true>(static_cast<char*>(address) + 8, code);
}

#define MG_RACES_DEFINE(N)                                        \
  void __multigrain_race_unaligned_read##N(const void* address) { \
    at(address, N, false, MG_RACES_CODE);                         \
  }                                                               \
  void __multigrain_race_unaligned_write##N(void* address) {      \
    at(address, N, true, MG_RACES_CODE);                          \
  }
MG_RACES_DEFINE(1)
MG_RACES_DEFINE(2)
MG_RACES_DEFINE(4)
MG_RACES_DEFINE(8)
MG_RACES_DEFINE(16)
#undef MG_RACES_DEFINE

void __multigrain_race_read_range(const void* address, size_t bytes) {
  at(address, bytes, false, MG_RACES_CODE);
}
void __multigrain_race_write_range(void* address, size_t bytes) {
  at(address, bytes, true, MG_RACES_CODE);
}
void __multigrain_race_vptr_read(const void* address) {
  at_aligned<8, false>(address, MG_RACES_CODE);
}
// A constructor or destructor of a base class stores what is there already, if there is no class in between.
void __multigrain_race_vptr_update(void* address, const void* value) {
  const void* old = nullptr;
  std::memcpy(&old, address, sizeof old);
  if (old != value) at_aligned<8, true>(address, MG_RACES_CODE);
}

void* __multigrain_race_memcpy(void* to, const void* from, size_t bytes) {
  const uintptr_t code = MG_RACES_CODE;
  at(from, bytes, false, code);
  at(to, bytes, true, code);
  return std::memcpy(to, from, bytes);
}
void* __multigrain_race_memmove(void* to, const void* from, size_t bytes) {
  const uintptr_t code = MG_RACES_CODE;
  at(from, bytes, false, code);
  at(to, bytes, true, code);
  return std::memmove(to, from, bytes);
}
void* __multigrain_race_memset(void* to, int byte, size_t bytes) {
  at(to, bytes, true, MG_RACES_CODE);
  return std::memset(to, byte, bytes);
}

void __multigrain_race_func_entry(void* site) {
  if (Owner* const me = t_owner; me != nullptr)
    g_compiled_detector->contexts().enter(me->calls, reinterpret_cast<uintptr_t>(site),
                                          reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
}
void __multigrain_race_func_exit(void) {
  if (Owner* const me = t_owner; me != nullptr) Contexts::leave(me->calls);
}

void* __multigrain_race_begin_atomic(const void* object) {
  if (t_owner == nullptr || !g_compiled_detector->covers(reinterpret_cast<uint64_t>(object))) return nullptr;
  return &g_compiled_detector->order().begin_atomic(reinterpret_cast<uint64_t>(object));
}
void __multigrain_race_end_atomic(void* begun, const void* object, size_t size, uint32_t what) {
  if (begun == nullptr) return;
  Owner& me = *t_owner;
  CompiledDetector& detector = *g_compiled_detector;
  SyncObject& locked = *static_cast<SyncObject*>(begun);
  const Order::Atomic operation{.acquires = (what & MG_RACE_ACQUIRES) != 0,
                                .releases = (what & MG_RACE_RELEASES) != 0,
                                .reads = (what & MG_RACE_READS) != 0,
                                .writes = (what & MG_RACE_WRITES) != 0};
  detector.order().acquire_by_atomic(me, locked, operation);
  detector.access(me, reinterpret_cast<uint64_t>(object), size, operation.writes, true, MG_RACES_CODE);
  detector.order().end_atomic(me, locked, operation);
}
void __multigrain_race_release_fence(void) {
  if (t_owner != nullptr) g_compiled_detector->order().release_fence(*t_owner);
}
void __multigrain_race_acquire_fence(void) {
  if (t_owner != nullptr) g_compiled_detector->order().acquire_fence(*t_owner);
}
void __multigrain_race_release(const void* object) {
  if (t_owner != nullptr) g_compiled_detector->release(object::atomic(reinterpret_cast<uint64_t>(object)));
}
void __multigrain_race_acquire(const void* object) {
  if (t_owner != nullptr) g_compiled_detector->acquire(object::atomic(reinterpret_cast<uint64_t>(object)));
}
void __multigrain_race_posix_release(const void* object) {
  if (t_owner != nullptr && !g_compiled_detector->is_told_of_posix(object)) __multigrain_race_release(object);
}
void __multigrain_race_posix_acquire(const void* object) {
  if (t_owner != nullptr && !g_compiled_detector->is_told_of_posix(object)) __multigrain_race_acquire(object);
}
