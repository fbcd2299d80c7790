// For some atomic operations there is no instruction, because of the object's size or alignment. Compiled code calls
// these functions where it would otherwise call the compiler's library (libatomic), if the object may be shared.
//
// A thread changes an object in shared memory with hazards for stores published over all of its lines, so no other node
// has the object meanwhile. Only the node's own processors can interfere. Where there is an instruction for the size,
// it is used, as in compiled code. For other sizes there is a lock. Its holder has published its hazards already and
// waits for nothing, so other threads may wait for it with their hazards published.
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/spin_lock.h"
#include "instrument/runtime/entry.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "instrument/runtime/memory_access.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/references.h"

namespace multigrain::checks {
namespace {

__extension__ using Wide = unsigned __int128;

// A private copy of an operand, which may be in shared or private memory.
class Operand {
 public:
  explicit Operand(size_t size) : size_(size) {
    if (size > sizeof small_) large_ = std::make_unique<std::byte[]>(size);
  }
  Operand(const void* from, size_t size) : Operand(size) { load(address_of(from), size, data()); }
  std::byte* data() { return large_ != nullptr ? large_.get() : small_; }
  void copy_to(void* to) { store(address_of(to), size_, data()); }

 private:
  size_t size_;
  alignas(16) std::byte small_[64];
  std::unique_ptr<std::byte[]> large_;
};

// `change(old, fresh)` gets the object's value, and returns whether the value that it leaves in `fresh` is to replace
// it. If another processor changes the object first, it is called again.
template <typename T, typename Swap, typename Change>
void change_by_instruction(T old, Swap&& swap, Change&& change) {
  T fresh{};
  while (change(reinterpret_cast<const std::byte*>(&old), reinterpret_cast<std::byte*>(&fresh)) && !swap(old, fresh)) {
  }
}

template <typename T, typename Change>
void change_word(uintptr_t at, Change&& change) {
  auto* const word = reinterpret_cast<T*>(at);
  change_by_instruction(
      __atomic_load_n(word, __ATOMIC_SEQ_CST),
      [&](T& old, T fresh) {
        return __atomic_compare_exchange_n(word, &old, fresh, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      },
      change);
}

bool swap_wide(Wide* at, Wide& old, Wide fresh) {
  const Wide found = __sync_val_compare_and_swap(at, old, fresh);
  const bool swapped = found == old;
  old = found;
  return swapped;
}

template <typename Change>
void change_wide(uintptr_t at, Change&& change) {
  auto* const wide = reinterpret_cast<Wide*>(at);
  Wide old = 0;
  swap_wide(wide, old, 0);
  change_by_instruction(old, [&](Wide& expected, Wide fresh) { return swap_wide(wide, expected, fresh); }, change);
}

// All operations use the same locks, so that loads and exchanges of an object exclude each other.
constinit std::array<SpinLock, 64> locks_of_objects;

template <typename Change>
void change_by_lock(uintptr_t at, size_t size, Operand& old, Operand& fresh, Change&& change) {
  SpinLock& lock = locks_of_objects[(at >> 3) % locks_of_objects.size()];
  lock.lock();
  auto* const object = reinterpret_cast<std::byte*>(at);
  if (refers()) {
    load_by_reference(at, size, old.data());
    if (change(old.data(), fresh.data())) store_by_reference(at, size, fresh.data());
  } else {
    std::memcpy(old.data(), object, size);
    if (change(old.data(), fresh.data())) std::memcpy(object, fresh.data(), size);
  }
  lock.unlock();
}

// Where the object may be in another node's memory, it is changed by references.
template <typename Change>
bool change_by_references(uintptr_t at, size_t size, Change&& change) {
  if (!refers() || size > sizeof(uint64_t) || (size & (size - 1)) != 0 || at % size != 0) return false;
  uint64_t old = 0;
  load_by_reference(at, size, reinterpret_cast<std::byte*>(&old));
  change_by_instruction(
      old,
      [&](uint64_t& expected, uint64_t fresh) {
        const uint64_t found = compare_and_swap_by_reference(at, size, expected, fresh);
        return std::exchange(expected, found) == found;
      },
      change);
  return true;
}

template <typename Change>
void change_shared(const void* object, size_t size, Change&& change) {
  if (size == 0) return;
  const uintptr_t at = address_of(object);
  const bool aligned = (at & (size - 1)) == 0;
  if (change_by_references(at, size, change)) return;
  Operand old(size), fresh(size);
  if (!refers()) publish_over_object(at, size);
  if (aligned && size == 1)
    change_word<uint8_t>(at, change);
  else if (aligned && size == 2)
    change_word<uint16_t>(at, change);
  else if (aligned && size == 4)
    change_word<uint32_t>(at, change);
  else if (aligned && size == 8)
    change_word<uint64_t>(at, change);
  else if (aligned && size == 16)
    change_wide(at, change);
  else
    change_by_lock(at, size, old, fresh, change);
  clear_hazards();
}

// Every entry begins with this. It keeps the program's errno, because to the program the operation is a load or a
// store. It makes the thread's earlier stores visible to other nodes before the atomic operation.
class Entry {
 public:
  Entry() : error_(errno) {
    begin_access();
    if (LineProtocol* const protocol = line_protocol()) protocol->fence();
  }
  ~Entry() { errno = error_; }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  int error_;
};

}  // namespace
}  // namespace multigrain::checks

using namespace multigrain::checks;

MG_ENTRY void __multigrain_atomic_load(size_t size, const void* object, void* value, int order,
                                       void (*real)(size_t, const void*, void*, int)) {
  const Entry entry;
  Operand loaded(size);
  if (is_shared(address_of(object))) {
    change_shared(object, size, [&](const std::byte* old, std::byte*) {
      std::memcpy(loaded.data(), old, size);
      return false;
    });
  } else {
    real(size, object, loaded.data(), order);
  }
  loaded.copy_to(value);
}

MG_ENTRY void __multigrain_atomic_store(size_t size, void* object, const void* value, int order,
                                        void (*real)(size_t, void*, const void*, int)) {
  const Entry entry;
  Operand stored(value, size);
  if (!is_shared(address_of(object))) return real(size, object, stored.data(), order);
  change_shared(object, size, [&](const std::byte*, std::byte* fresh) {
    std::memcpy(fresh, stored.data(), size);
    return true;
  });
}

MG_ENTRY void __multigrain_atomic_exchange(size_t size, void* object, const void* value, void* old_value, int order,
                                           void (*real)(size_t, void*, const void*, void*, int)) {
  const Entry entry;
  Operand stored(value, size), was(size);
  if (is_shared(address_of(object))) {
    change_shared(object, size, [&](const std::byte* old, std::byte* fresh) {
      std::memcpy(was.data(), old, size);
      std::memcpy(fresh, stored.data(), size);
      return true;
    });
  } else {
    real(size, object, stored.data(), was.data(), order);
  }
  was.copy_to(old_value);
}

MG_ENTRY bool __multigrain_atomic_compare_exchange(size_t size, void* object, void* expected, const void* desired,
                                                   int success, int failure,
                                                   bool (*real)(size_t, void*, void*, const void*, int, int)) {
  const Entry entry;
  Operand wanted(expected, size), stored(desired, size);
  bool equal = false;
  if (is_shared(address_of(object))) {
    Operand was(size);
    change_shared(object, size, [&](const std::byte* old, std::byte* fresh) {
      equal = std::memcmp(old, wanted.data(), size) == 0;
      std::memcpy(was.data(), old, size);
      std::memcpy(fresh, stored.data(), size);
      return equal;
    });
    if (!equal) std::memcpy(wanted.data(), was.data(), size);
  } else {
    equal = real(size, object, wanted.data(), stored.data(), success, failure);
  }
  if (!equal) wanted.copy_to(expected);
  return equal;
}
