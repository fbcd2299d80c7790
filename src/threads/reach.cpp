// How atomic operations reach their objects (atomics.h).
#include <sched.h>

#include "base/clock.h"
#include "instrument/runtime/installed_protocol.h"
#include "runtime/interpose/syscalls.h"
#include "threads/atomics.h"

namespace multigrain::threads {
namespace {

constexpr uintptr_t kObjectsOfALock = 64;  // bytes

// Mixes the number, so that the objects of an array, at whatever distance, have different locks.
SyncId lock_of(const Sync& sync, const void* object) {
  constexpr uint64_t kMix = 0x9e37'79b9'7f4a'7c15;
  static_assert(kAtomicsLocks == 1u << 8);
  const uint64_t number = reinterpret_cast<uintptr_t>(object) / kObjectsOfALock;
  return sync.own_lock(static_cast<uint32_t>(number * kMix >> 56));
}

struct Look {
  const void* object = nullptr;
  uint64_t value = 0;
  unsigned in_vain = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Look t_last;
// So often a thread looks in vain before it yields its core. A thread that computes may look at an object each time it
// goes round, and yielding takes longer than looking.
constexpr unsigned kLooks = 32;

}  // namespace

Reach reach_of(const void* object) {
  if (!in_shared_region(object)) [[likely]]
    return Reach::kPrivate;
  Node* const node = Node::get();
  if (node == nullptr) return Reach::kPrivate;
  if (LineProtocol* const lines = line_protocol();
      lines != nullptr && checks::is_shared(checks::address_of(object)) && lines->keeps(checks::address_of(object)))
    return Reach::kLines;
  if (node->config().nodes == 1) return Reach::kPages;
  return node->config().protocol_of(Grain::kPage).is_sequential ? Reach::kPages : Reach::kLocked;
}

LockedObject::LockedObject(const void* object)
    : sync_(Node::get()->sync()), object_(object), lock_(lock_of(sync_, object)) {
  // The lock may have to be waited for, and no thread waits with a hazard published.
  checks::begin_access();
  sync_.lock(lock_);
}

LockedObject::~LockedObject() {
  sync_.unlock(lock_);
}

ExclusiveLines::ExclusiveLines(const void* object, size_t size) {
  checks::begin_access();
  // What the thread has stored before is visible to other nodes before the operation is.
  line_protocol()->fence();
  checks::publish_over_object(checks::address_of(object), size);
}

void looked_at(const void* object, uint64_t value, bool changed) {
  if (changed || t_last.object != object || t_last.value != value) {
    t_last = {.object = object, .value = value};
    return;
  }
  if (LineProtocol* const lines = line_protocol()) lines->spin();
  cpu_relax();
  if (++t_last.in_vain % kLooks == 0) sched_yield();
}

}  // namespace multigrain::threads
