// What code calls that mgcc compiled with -fmultigrain-races (abi.h). Without --check-races a call looks at one variable of its
// thread.
#include <array>
#include <cstring>

#include "races/compiled/abi.h"
#include "races/compiled/compiled_detector.h"

using namespace multigrain::races;

// Where the program's code calls from. The address before it is in the line that the access belongs to.
#define MG_RACES_CODE (reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1)

namespace {

// Of a thread that is not looked at, so that its code need not ask whether it is.
constinit std::array<mg_race_recent_line, MG_RACES_RECENT_LINES> g_nothing_known{};

[[gnu::always_inline]] inline void at(const void* where, size_t bytes, bool is_write, uintptr_t code) {
  if (Owner* const me = t_owner; me != nullptr)
    g_compiled_detector->tell_plain(*me, reinterpret_cast<uint64_t>(where), bytes, is_write, code);
}

}  // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local const mg_race_recent_line* __multigrain_race_recent =
    g_nothing_known.data();

void multigrain::races::on_changed_owner(const Owner* owner) {
  __multigrain_race_recent = owner != nullptr ? owner->recent->lines() : g_nothing_known.data();
}

#define MG_RACES_DEFINE(N)                                        \
  void __multigrain_race_read##N(const void* address) {           \
    at(address, N, false, MG_RACES_CODE);                         \
  }                                                               \
  void __multigrain_race_write##N(void* address) {                \
    at(address, N, true, MG_RACES_CODE);                          \
  }                                                               \
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
void __multigrain_race_read_strided(const void* address, size_t bytes, int64_t stride, uint64_t count) {
  if (Owner* const me = t_owner; me != nullptr)
    g_compiled_detector->tell_strided(*me, reinterpret_cast<uint64_t>(address), bytes, stride, count, false,
                                      MG_RACES_CODE);
}
void __multigrain_race_write_strided(void* address, size_t bytes, int64_t stride, uint64_t count) {
  if (Owner* const me = t_owner; me != nullptr)
    g_compiled_detector->tell_strided(*me, reinterpret_cast<uint64_t>(address), bytes, stride, count, true,
                                      MG_RACES_CODE);
}
void __multigrain_race_read_lines(const void* address, size_t bytes, int64_t stride, uint64_t count,
                                  uint64_t other_lines) {
  if (Owner* const me = t_owner; me != nullptr)
    g_compiled_detector->tell_strided(*me, reinterpret_cast<uint64_t>(address), bytes, stride, count, false,
                                      MG_RACES_CODE, other_lines);
}
void __multigrain_race_write_lines(void* address, size_t bytes, int64_t stride, uint64_t count, uint64_t other_lines) {
  if (Owner* const me = t_owner; me != nullptr)
    g_compiled_detector->tell_strided(*me, reinterpret_cast<uint64_t>(address), bytes, stride, count, true,
                                      MG_RACES_CODE, other_lines);
}
void __multigrain_race_vptr_read(const void* address) {
  at(address, 8, false, MG_RACES_CODE);
}
// A constructor or destructor of a base class stores what is there already, if there is no class in between.
void __multigrain_race_vptr_update(void* address, const void* value) {
  const void* old = nullptr;
  std::memcpy(&old, address, sizeof old);
  if (old != value) at(address, 8, true, MG_RACES_CODE);
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
    Contexts::enter(me->calls, reinterpret_cast<uintptr_t>(site),
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
