// This is a base for objects of the runtime that live as long as it does: their memory comes from mmap, not from
// malloc.
//
// The program's malloc heap is copied from node 0 to the other nodes at spawn, so an object of the runtime in it would
// be overwritten with node 0's object.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace multigrain {

struct MappedObject {
  static void* operator new(size_t size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
  }
  static void operator delete(void* memory, size_t size) { munmap(memory, size); }
};

}  // namespace multigrain
