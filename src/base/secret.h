// A secret is a value that stays within its process: in pages of its own that no core file holds and that are not
// swapped out, as far as the limit of locked memory allows. It is zeroed when it goes.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <new>

namespace multigrain {

template <typename T>
class Secret {
 public:
  Secret() {
    void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, sizeof(T), MADV_DONTDUMP);
    mlock(memory, sizeof(T));  // some systems allow no locked memory; the rest holds there too
    value_ = new (memory) T{};
  }
  ~Secret() {
    std::destroy_at(value_);
    explicit_bzero(value_, sizeof(T));
    munmap(value_, sizeof(T));
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_; }
  const T* operator->() const { return value_; }

 private:
  T* value_;
};

}  // namespace multigrain
