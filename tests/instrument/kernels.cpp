// These are kernels (kernels.h) in C++: exceptions, virtual functions, the standard library's containers and
// algorithms.
#include "kernels.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Containers get their memory here, from the beginning of the kernel's own.
struct Arena {
  unsigned char* at;
  unsigned char* end;
};
thread_local Arena* arena;

template <typename T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U>&) {}  // NOLINT: implicit, as containers expect
  T* allocate(size_t count) {
    unsigned char* const block = arena->at;
    if (count * sizeof(T) > static_cast<size_t>(arena->end - block)) throw std::bad_alloc();
    arena->at += (count * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(block);
  }
  void deallocate(T*, size_t) {}
  bool operator==(const Allocator&) const { return true; }
};

class WithArena {
 public:
  explicit WithArena(unsigned char* memory) : arena_{memory, memory + KERNEL_BYTES / 2} { arena = &arena_; }
  ~WithArena() { arena = nullptr; }

 private:
  Arena arena_;
};

uint32_t mixed(uint32_t x) {
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  return x ^ x >> 12;
}

// Results go to the upper half. What containers leave in the lower half has pointers in it.
void forget_lower(unsigned char* memory) {
  std::fill(memory, memory + KERNEL_BYTES / 2, 0);
}

struct Unlucky : std::runtime_error {
  explicit Unlucky(int where) : std::runtime_error("unlucky"), place(where) {}
  int place;
};
[[gnu::noinline]] void step(int64_t* a, int i) {
  a[i] += i;
  if (a[i] % 7 == 0) throw Unlucky(i);
  a[i + 1] ^= a[i];
}
void exceptions(unsigned char* memory) {
  auto* const a = reinterpret_cast<int64_t*>(memory);
  for (int i = 0; i < 1000; ++i) {
    try {
      step(a, i);
      a[i] += 2;
    } catch (const Unlucky& unlucky) {
      a[unlucky.place + 1] -= unlucky.place;
    }
  }
}

struct Shape {
  virtual ~Shape() = default;
  virtual int64_t area() const = 0;
  int64_t scale = 2;
};
struct Square : Shape {
  explicit Square(int64_t s) : side(s) {}
  int64_t area() const override { return side * side * scale; }
  int64_t side;
};
struct Strip : Shape {
  Strip(int32_t l, int16_t w) : length(l), width(w) {}
  int64_t area() const override { return length * width + scale; }
  int32_t length;
  int16_t width;
};
void virtual_functions(unsigned char* memory) {
  auto* const out = reinterpret_cast<int64_t*>(memory + KERNEL_BYTES / 2);
  Shape* shapes[200];
  unsigned char* at = memory;
  for (int i = 0; i < 200; ++i) {
    if (i % 2)
      shapes[i] = new (at) Square(i);
    else
      shapes[i] = new (at) Strip(i, static_cast<int16_t>(i));
    at += 64;
  }
  for (int i = 0; i < 200; ++i) {
    shapes[i]->scale += i;
    out[i] = shapes[i]->area();
  }
  for (Shape* shape : shapes) shape->~Shape();
  forget_lower(memory);
}

void vectors_sorted(unsigned char* memory) {
  {
    const WithArena with(memory);
    std::vector<uint32_t, Allocator<uint32_t>> numbers;
    for (uint32_t i = 0; i < 1500; ++i) numbers.push_back(mixed(i));
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(numbers.begin() + 100, numbers.begin() + 200);
    std::reverse(numbers.begin(), numbers.end());
    auto* const out = reinterpret_cast<uint32_t*>(memory + KERNEL_BYTES / 2);
    std::copy(numbers.begin(), numbers.end(), out);
    out[1500] = std::accumulate(numbers.begin(), numbers.end(), 0u);
  }
  forget_lower(memory);
}

void maps_and_strings(unsigned char* memory) {
  using String = std::basic_string<char, std::char_traits<char>, Allocator<char>>;
  {
    const WithArena with(memory);
    std::map<uint32_t, String, std::less<>, Allocator<std::pair<const uint32_t, String>>> names;
    for (uint32_t i = 0; i < 150; ++i) names[mixed(i) % 200] += "a name that is longer than sixteen characters";
    for (uint32_t i = 0; i < 60; ++i) names.erase(mixed(i * 3) % 200);
    for (uint32_t i = 0; i < 30; ++i) names.erase(names.begin());
    auto* const out = reinterpret_cast<uint32_t*>(memory + KERNEL_BYTES / 2);
    size_t at = 0;
    for (auto last = names.rbegin(); last != names.rend(); ++last) out[at++] = last->first;
    for (const auto& [number, name] : names) {
      out[at++] = number;
      out[at++] = static_cast<uint32_t>(name.size()) + static_cast<unsigned char>(name[name.size() / 2]);
    }
  }
  forget_lower(memory);
}

void lists(unsigned char* memory) {
  {
    const WithArena with(memory);
    std::list<uint32_t, Allocator<uint32_t>> numbers, others;
    for (uint32_t i = 0; i < 300; ++i) (i % 3 != 0 ? numbers : others).push_back(mixed(i));
    numbers.splice(std::next(numbers.begin(), 20), others);
    numbers.reverse();
    numbers.remove_if([](uint32_t number) { return number % 5 == 0; });
    numbers.sort();
    std::copy(numbers.begin(), numbers.end(), reinterpret_cast<uint32_t*>(memory + KERNEL_BYTES / 2));
  }
  forget_lower(memory);
}

void atomics(unsigned char* memory) {
  auto* const a = reinterpret_cast<std::atomic<uint64_t>*>(memory);
  auto* const d = reinterpret_cast<std::atomic<double>*>(memory + KERNEL_BYTES / 2);
  for (int i = 0; i < 1000; ++i) d[i].store(i, std::memory_order_relaxed);
  for (int i = 1; i < 1000; ++i) {
    a[i].fetch_add(a[i - 1].load(std::memory_order_acquire), std::memory_order_relaxed);
    uint64_t expected = a[i];
    while (!a[i].compare_exchange_weak(expected, expected * 3 + 1, std::memory_order_release)) {
    }
    double old = d[i].load();
    while (!d[i].compare_exchange_weak(old, old + d[i - 1].load())) {
    }
  }
}

// The processor has no lock for a type of this size, so std::atomic calls the compiler's library.
struct Range {
  uint64_t begin, end, step;
};
void large_atomics(unsigned char* memory) {
  auto* const ranges = reinterpret_cast<std::atomic<Range>*>(memory);
  for (uint64_t i = 0; i < 500; ++i) ranges[i].store({i, 2 * i, 1});
  for (uint64_t i = 1; i < 500; ++i) {
    Range expected = ranges[i - 1];
    Range old = ranges[i].exchange(expected, std::memory_order_acq_rel);
    if (ranges[i].compare_exchange_strong(expected, {old.end, old.begin, i})) old.step = 7;
    ranges[i - 1] = old;
  }
}

}  // namespace

extern "C" const kernel cxx_kernels[] = {{"exceptions", exceptions},
                                         {"virtual_functions", virtual_functions},
                                         {"vectors_sorted", vectors_sorted},
                                         {"maps_and_strings", maps_and_strings},
                                         {"lists", lists},
                                         {"atomics", atomics},
                                         {"large_atomics", large_atomics},
                                         {nullptr, nullptr}};
