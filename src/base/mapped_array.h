// An array whose length is known when it is made, in memory of its own, which does not come from malloc (mapped_object.h).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace multigrain {

template <typename T>
class MappedArray {
 public:
  static_assert(alignof(T) <= 4096);

  // Makes the elements as T{}. Throws std::bad_alloc.
  explicit MappedArray(size_t count) : count_(count) {
    if (count == 0) return;
    void* const memory =
        mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    elements_ = static_cast<T*>(memory);
    std::uninitialized_value_construct_n(elements_, count);
  }
  ~MappedArray() {
    std::destroy_n(elements_, count_);
    if (elements_ != nullptr) munmap(elements_, count_ * sizeof(T));
  }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  [[nodiscard]] T& operator[](size_t i) { return elements_[i]; }
  [[nodiscard]] const T& operator[](size_t i) const { return elements_[i]; }

 private:
  T* elements_ = nullptr;
  size_t count_;
};

}  // namespace multigrain
