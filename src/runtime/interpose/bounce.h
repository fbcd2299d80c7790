// Private copies of shared arguments of system calls.
//
// The kernel cannot take Multigrain's faults: a system call that is handed a shared buffer whose page this node does
// not have returns EFAULT, or worse, stops half-way. [Shasta], section 4.1, validates the range before the call; with
// processors of the node and other nodes running meanwhile that is not enough here. An invalidation between the
// validation and the call would lose what a read from a pipe or a socket had already consumed, or cut a write short;
// holding invalidations off during the call would deadlock when the data come from the node that waits for the
// invalidation. So the kernel only ever sees private memory, and the copy to or from the shared buffer is made in
// user mode, by ordinary loads and stores that fault like any others. The results, errno and partial transfers are
// the call's own.
//
// An argument that is not shared is passed on as it is: these classes then cost one comparison.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "runtime/interpose/syscalls.h"

namespace multigrain {

// A private buffer for the duration of a call. It is from a fixed pool, or mapped if it is larger or the pool is in
// use; it never comes from malloc, so this is async-signal-safe.
class Bounce {
 public:
  static constexpr size_t kPooled = size_t{256} << 10;

  Bounce() = default;
  ~Bounce() {
    if (bytes_ != nullptr) release();
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  // Called at most once. Returns nullptr with errno ENOMEM if there is no memory.
  std::byte* acquire(size_t size);
  // Ends the process with a sentence if there is no memory: for arguments so small that this means the machine is out.
  std::byte* acquire_or_die(size_t size);

 private:
  void release();

  std::byte* bytes_ = nullptr;
  size_t mapped_ = 0;  // 0: from the pool
};

// A string that the call reads.
class InString {
 public:
  explicit InString(const char* string) : string_(string) {
    if (in_shared_region(string)) [[unlikely]]
      copy();
  }
  operator const char*() const { return string_; }  // NOLINT: stands for the argument
 private:
  void copy();
  const char* string_;
  Bounce bounce_;
};

// A NULL-ended array of strings that the call reads, such as argv.
class InStrings {
 public:
  explicit InStrings(char* const* strings);
  operator char* const*() const { return strings_; }  // NOLINT: stands for the argument
 private:
  char* const* strings_;
  Bounce bounce_;
};

// Bytes that the call reads.
class InBytes {
 public:
  InBytes(const void* bytes, size_t size) : bytes_(bytes) {
    if (in_shared_region(bytes)) [[unlikely]]
      bytes_ = copy_from_shared(bounce_.acquire_or_die(size), bytes, size);
  }
  template <typename T>
  operator const T*() const {  // NOLINT: stands for the argument
    return static_cast<const T*>(bytes_);
  }

 private:
  const void* bytes_;
  Bounce bounce_;
};

// Bytes that the call may read and write. The bytes that it changed are stored at the end of the full expression of the
// call; nothing is stored otherwise, so a call that fails does not dirty the page.
class InOutBytes {
 public:
  InOutBytes(void* bytes, size_t size) : user_(bytes), used_(bytes), size_(size) {
    if (in_shared_region(bytes)) [[unlikely]]
      used_ = copy_from_shared(bounce_.acquire_or_die(size), bytes, size);
  }
  ~InOutBytes() {
    if (used_ != user_) [[unlikely]]
      store();
  }
  InOutBytes(const InOutBytes&) = delete;
  InOutBytes& operator=(const InOutBytes&) = delete;
  template <typename T>
  operator T*() const {  // NOLINT: stands for the argument
    return static_cast<T*>(used_);
  }

 private:
  void store() {
    const int saved = errno;
    if (differ_from_shared(user_, used_, size_)) copy_to_shared(user_, used_, size_);
    errno = saved;
  }
  void* user_;
  void* used_;
  size_t size_;
  Bounce bounce_;
};

// One object that the call reads.
template <typename T>
class In {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit In(const T* object) : object_(object) {
    if (in_shared_region(object)) [[unlikely]]
      object_ = static_cast<const T*>(copy_from_shared(copy_, object, sizeof(T)));
  }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  operator const T*() const { return object_; }  // NOLINT: stands for the argument
 private:
  const T* object_;
  alignas(T) std::byte copy_[sizeof(T)];
};

// One object that the call may read and write; it is stored as InOutBytes are.
template <typename T>
class InOut {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit InOut(T* object) : user_(object), used_(object) {
    if (in_shared_region(object)) [[unlikely]]
      used_ = static_cast<T*>(copy_from_shared(copy_, object, sizeof(T)));
  }
  ~InOut() {
    if (used_ != user_) [[unlikely]]
      store();
  }
  InOut(const InOut&) = delete;
  InOut& operator=(const InOut&) = delete;
  operator T*() const { return used_; }  // NOLINT: stands for the argument
 private:
  void store() {
    const int saved = errno;
    if (differ_from_shared(user_, copy_, sizeof(T))) copy_to_shared(user_, copy_, sizeof(T));
    errno = saved;
  }
  T* user_;
  T* used_;
  alignas(T) std::byte copy_[sizeof(T)];
};

}  // namespace multigrain
