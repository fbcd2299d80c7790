// References by checks (instrument/references.h; docs/internals/placement.md): what compiled code, and the functions that access memory for it,
// call for pages in other nodes' memory.
#include "instrument/runtime/references.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/keep_errno.h"
#include "instrument/references.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "instrument/runtime/memory_access.h"

namespace multigrain {
namespace {

std::atomic<RemoteMemory*> remote_memory_of_process{nullptr};

// The table of a run in which no page is remote.
constexpr uint8_t kNothingIsRemote = 0;

}  // namespace

RemoteMemory* remote_memory() {
  return remote_memory_of_process.load(std::memory_order_acquire);
}

// The program's threads do not run yet, or the process has been forked: nobody reads half of it.
void set_remote_memory(RemoteMemory* memory, unsigned page_shift) {
  static_assert(sizeof(std::atomic<uint8_t>) == sizeof(uint8_t) && std::atomic<uint8_t>::is_always_lock_free);
  if (memory != nullptr)
    __multigrain_references = {reinterpret_cast<const uint8_t*>(memory->remote_pages().data()), page_shift};
  else
    __multigrain_references = {&kNothingIsRemote, MG_REFERENCES_NO_TABLE};
  remote_memory_of_process.store(memory, std::memory_order_release);
}

}  // namespace multigrain

mg_references __multigrain_references = {&multigrain::kNothingIsRemote, MG_REFERENCES_NO_TABLE};

namespace multigrain::checks {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

uint64_t page_number(uintptr_t address) {
  return (address - MG_FINE_VIEW_BASE) >> __multigrain_references.shift;
}

bool is_remote(uintptr_t address) {
  return is_shared(address) &&
         __atomic_load_n(&__multigrain_references.remote[page_number(address)], __ATOMIC_RELAXED) != 0;
}

uint64_t offset_in_page(uintptr_t address) {
  return (address - MG_FINE_VIEW_BASE) & ((uint64_t{1} << __multigrain_references.shift) - 1);
}

// Calls `part(address, bytes)` for each part of a range that lies in one page.
template <typename Part>
void for_each_part_of(uintptr_t address, size_t size, Part&& part) {
  const uint64_t page = uint64_t{1} << __multigrain_references.shift;
  while (size > 0) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(size, page - (address & (page - 1))));
    part(address, bytes);
    address += bytes, size -= bytes;
  }
}

template <typename T>
uint64_t compare_and_swap_here(uintptr_t address, uint64_t expected, uint64_t desired) {
  auto old = static_cast<T>(expected);
  __atomic_compare_exchange_n(reinterpret_cast<T*>(address), &old, static_cast<T>(desired), false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return old;
}

uint64_t compare_and_swap_here(uintptr_t address, size_t size, uint64_t expected, uint64_t desired) {
  switch (size) {
    case 1:
      return compare_and_swap_here<uint8_t>(address, expected, desired);
    case 2:
      return compare_and_swap_here<uint16_t>(address, expected, desired);
    case 4:
      return compare_and_swap_here<uint32_t>(address, expected, desired);
    default:
      return compare_and_swap_here<uint64_t>(address, expected, desired);
  }
}

}  // namespace

bool refers() {
  return remote_memory() != nullptr;
}

// Where nothing is allocated, the access is made as the program wrote it, and the program finds out by SIGSEGV.
void load_by_reference(uintptr_t address, size_t size, std::byte* value) {
  for_each_part_of(address, size, [&](uintptr_t at, size_t bytes) {
    RemoteMemory* const memory = is_remote(at) ? remote_memory() : nullptr;
    if (memory == nullptr || !memory->load(PageId(page_number(at)), offset_in_page(at), {value, bytes}))
      copy_once(value, reinterpret_cast<const std::byte*>(at), bytes);
    value += bytes;
  });
}

void store_by_reference(uintptr_t address, size_t size, const std::byte* value) {
  for_each_part_of(address, size, [&](uintptr_t at, size_t bytes) {
    RemoteMemory* const memory = is_remote(at) ? remote_memory() : nullptr;
    if (memory == nullptr || !memory->store(PageId(page_number(at)), offset_in_page(at), {value, bytes}))
      copy_once(reinterpret_cast<std::byte*>(at), value, bytes);
    value += bytes;
  });
}

uint64_t compare_and_swap_by_reference(uintptr_t address, size_t size, uint64_t expected, uint64_t desired) {
  RemoteMemory* const memory = is_remote(address) ? remote_memory() : nullptr;
  if (memory == nullptr) return compare_and_swap_here(address, size, expected, desired);
  const PageId page(page_number(address));
  const uint64_t offset = offset_in_page(address);
  const uint64_t first = offset % kWord;
  uint64_t seen = expected;
  // The rest of the word has to be known, of which other threads may change any part meanwhile.
  if (size < kWord && !memory->load(page, offset - first, std::as_writable_bytes(std::span(&seen, 1))))
    return compare_and_swap_here(address, size, expected, desired);
  while (true) {
    uint64_t found = 0;
    std::memcpy(&found, reinterpret_cast<const std::byte*>(&seen) + first, size);
    if (found != expected) return found;
    uint64_t wanted = seen;
    std::memcpy(reinterpret_cast<std::byte*>(&wanted) + first, &desired, size);
    uint64_t was = seen;
    if (!memory->compare_and_swap(page, offset - first, was, wanted))
      return compare_and_swap_here(address, size, expected, desired);
    if (was == seen) return expected;
    seen = was;
  }
}

}  // namespace multigrain::checks

// The trampoline of this name (__multigrain_...) saves all registers and calls this function.
extern "C" uint64_t multigrain_compare_and_swap_miss(void* address, uint64_t size, uint64_t expected,
                                                     uint64_t desired) {
  const multigrain::KeepErrno keep;
  return multigrain::checks::compare_and_swap_by_reference(multigrain::checks::address_of(address), size, expected,
                                                           desired);
}
