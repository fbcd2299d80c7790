// The memory of this library. None of it is malloc's: that may be shared memory of the program, or be overwritten by
// node 0's when the first processor of a node starts.
#pragma once

#include <cstddef>
#include <type_traits>

namespace multigrain::openmp {

// Ends the run with status 1, after the sentence: "multigrain: node 1: OpenMP: ...".
[[noreturn]] void end_run(const char* sentence);
// Does the same with a number at the end of the sentence.
[[noreturn]] void end_run(const char* sentence, unsigned long number);

// Memory that all nodes share, zero, under the run's page protocol: this library has no compiled checks, so a line
// protocol would not see its accesses. Null if none is left, or the alignment is no power of two.
void* try_allocate_shared(size_t bytes, size_t alignment);
// Ends the run if none is left. The memory begins and ends with a page, so nothing of the program is beside it.
void* allocate_shared(size_t bytes);
void free_shared(void* block);

template <typename T>
T* new_shared(size_t count = 1) {
  static_assert(std::is_trivially_destructible_v<T>);
  return static_cast<T*>(allocate_shared(sizeof(T) * count));
}

// Memory of this process alone, zero.
void* allocate_private(size_t bytes);
void free_private(void* block, size_t bytes);

}  // namespace multigrain::openmp
