// The wrappers of library functions (wrapped_functions.def) make private copies of arguments that may be shared. A
// library has no checks, so it gets private memory, and its changes there are stored to the original afterwards. An
// argument that is private is passed as it is. A copy lives as long as its object, which is a local of the wrapper, so
// there is no limit on the number of copies.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "instrument/abi.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/memory_access.h"

namespace multigrain::checks {

inline bool is_shared(const void* pointer) {
  return is_shared(address_of(pointer));
}
inline bool touches_shared(const void* begin, size_t size) {
  const uintptr_t end = address_of(begin) + size;
  return touches_shared(address_of(begin), end < address_of(begin) ? UINTPTR_MAX : end);
}

template <typename T>
T load_shared(const T* from) {
  T value;
  __multigrain_load(from, sizeof value, &value);
  return value;
}
template <typename T>
void store_shared(T* to, const std::type_identity_t<T>& value) {
  __multigrain_store(to, sizeof value, &value);
}

// A string that the library reads, or its first `limit` characters at most. NULL stays NULL.
template <typename Char>
class BasicText {
 public:
  explicit BasicText(const Char* s, size_t limit = SIZE_MAX) : original_(s), data_(s), limit_(limit) {
    if (is_shared(s)) [[unlikely]]
      copy();
  }
  BasicText(const BasicText&) = delete;
  BasicText& operator=(const BasicText&) = delete;

  [[nodiscard]] const Char* data() const { return data_; }
  operator const Char*() const { return data_; }  // NOLINT: stands for the argument
  // Returns the length, or the limit if the string is longer.
  [[nodiscard]] size_t size() const {
    if (data_ != original_) return copy_.size();
    const Char* const end = limit_ == SIZE_MAX ? nullptr : find_end(data_, limit_);
    if (limit_ == SIZE_MAX) return std::char_traits<Char>::length(data_);
    return end != nullptr ? static_cast<size_t>(end - data_) : limit_;
  }
  // Returns the pointer into the original that corresponds to a pointer into the copy.
  [[nodiscard]] Char* original(const Char* at) const {
    return at == nullptr ? nullptr : const_cast<Char*>(original_) + (at - data_);
  }

 private:
  static const Char* find_end(const Char* s, size_t limit) {
    for (size_t i = 0; i < limit; ++i)
      if (s[i] == Char()) return s + i;
    return nullptr;
  }
  void copy() {
    // Each step loads to the end of a line at most: behind that there may be no memory if the string ends before.
    constexpr size_t kStep = (size_t{1} << MG_FINE_MIN_LINE_SHIFT) / sizeof(Char);
    begin_access();
    for (size_t at = 0; at < limit_;) {
      const size_t part = std::min(kStep - (address_of(original_ + at) / sizeof(Char)) % kStep, limit_ - at);
      Char buffer[kStep];
      load(address_of(original_ + at), part * sizeof(Char), reinterpret_cast<std::byte*>(buffer));
      const Char* const end = std::char_traits<Char>::find(buffer, part, Char());
      copy_.append(buffer, end != nullptr ? static_cast<size_t>(end - buffer) : part);
      if (end != nullptr) break;
      at += part;
    }
    data_ = copy_.c_str();
  }

  const Char* original_;
  const Char* data_;
  size_t limit_;
  std::basic_string<Char> copy_;
};
using Text = BasicText<char>;
using WideText = BasicText<wchar_t>;

// A block of private bytes. If there is no memory for it, the run ends: the wrapped function has no way to report that.
class PrivateBytes {
 public:
  std::byte* allocate(size_t size) {
    if (size <= sizeof small_) return small_;
    large_.reset(new (std::nothrow) std::byte[size]);
    if (large_ == nullptr)
      die(1, "a library function's argument in shared memory: no private memory for a copy, bytes:", size);
    return large_.get();
  }

 private:
  alignas(16) std::byte small_[128];
  std::unique_ptr<std::byte[]> large_;
};

// Bytes that the library reads.
class InBytes {
 public:
  InBytes(const void* from, size_t size) : original_(from), data_(from) {
    if (size == 0 || !touches_shared(from, size)) [[likely]]
      return;
    std::byte* const copy = copy_.allocate(size);
    begin_access();
    load(address_of(from), size, copy);
    data_ = copy;
  }
  InBytes(const InBytes&) = delete;
  InBytes& operator=(const InBytes&) = delete;
  template <typename T>
  operator const T*() const {  // NOLINT: stands for the argument
    return static_cast<const T*>(data_);
  }
  // Returns the pointer into the original that corresponds to a pointer into the copy.
  [[nodiscard]] void* original(const void* at) const {
    if (at == nullptr) return nullptr;
    return static_cast<char*>(const_cast<void*>(original_)) +
           (static_cast<const char*>(at) - static_cast<const char*>(data_));
  }

 private:
  const void* original_;
  const void* data_;
  PrivateBytes copy_;
};

// Bytes that the library may read and write. The destructor stores only the bytes that the library has changed, so that
// stores of other processors to the bytes beside them are kept.
class InOutBytes {
 public:
  InOutBytes(void* bytes, size_t size) : user_(bytes), used_(bytes), size_(size) {
    if (size == 0 || !touches_shared(bytes, size)) [[likely]]
      return;
    std::byte* const copy = copy_.allocate(size);
    begin_access();
    load(address_of(bytes), size, copy);
    before_bytes_ = before_.allocate(size);
    std::memcpy(before_bytes_, copy, size);
    used_ = copy;
  }
  InOutBytes(const InOutBytes&) = delete;
  InOutBytes& operator=(const InOutBytes&) = delete;
  ~InOutBytes() {
    if (used_ != user_) [[unlikely]]
      store_changes();
  }
  template <typename T>
  operator T*() const {  // NOLINT: stands for the argument
    return static_cast<T*>(used_);
  }
  [[nodiscard]] void* original(const void* at) const {
    if (at == nullptr) return nullptr;
    return static_cast<char*>(user_) + (static_cast<const char*>(at) - static_cast<const char*>(used_));
  }

 private:
  void store_changes();

  void* user_;
  void* used_;
  size_t size_;
  PrivateBytes copy_, before_;
  std::byte* before_bytes_ = nullptr;
};

// Makes a copy of one object that the library may read and write. NULL is allowed.
template <typename T>
InOutBytes in_out(T* object) {
  return {object, object != nullptr ? sizeof(T) : 0};
}
// Makes a copy of one object that the library reads. NULL is allowed.
template <typename T>
InBytes in(const T* object) {
  return {object, object != nullptr ? sizeof(T) : 0};
}

}  // namespace multigrain::checks
