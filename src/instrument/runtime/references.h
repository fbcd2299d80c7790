// Where pages may be in other nodes' memory, the runtime's accesses for the program are references of these functions, wherever the
// page is: an access that finds a page here is made here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace multigrain::checks {

// Returns whether pages may be in other nodes' memory in this run.
bool refers();
// These load and store any range, shared or private.
void load_by_reference(uintptr_t address, size_t size, std::byte* value);
void store_by_reference(uintptr_t address, size_t size, const std::byte* value);
// If the object of 1, 2, 4 or 8 bytes at `address`, which is naturally aligned, equals `expected`, `desired` replaces it. Returns
// what it was.
uint64_t compare_and_swap_by_reference(uintptr_t address, size_t size, uint64_t expected, uint64_t desired);

}  // namespace multigrain::checks
