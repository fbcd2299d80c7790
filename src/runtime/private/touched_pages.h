// Tells memory that a program has used from memory that it has only reserved.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace multigrain {

inline bool all_zero(const std::byte* bytes, size_t length) {
  return length == 0 || (bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, length - 1) == 0);
}

// Tells which pages of this process were ever touched, from /proc/self/pagemap. Reading an untouched page of the heap
// would tell as well (it is zero) but costs a fault and page tables for address space that the program only reserved.
class TouchedPages {
 public:
  static constexpr size_t kPage = 4096;

  TouchedPages() : fd_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  ~TouchedPages() {
    if (fd_ >= 0) ::close(fd_);
  }
  TouchedPages(const TouchedPages&) = delete;
  TouchedPages& operator=(const TouchedPages&) = delete;

  // Returns false if the page holds nothing but zeros because it was never touched. The caller asks about pages in
  // ascending order.
  bool touched(uintptr_t page) {
    const uint64_t index = page / kPage;
    if (index - first_ >= count_) {
      first_ = index;
      const ssize_t got =
          fd_ < 0 ? 0 : ::pread(fd_, entries_.data(), sizeof entries_, static_cast<off_t>(index * sizeof(uint64_t)));
      count_ = got > 0 ? static_cast<size_t>(got) / sizeof(uint64_t) : 0;
      if (count_ == 0) return true;  // unknown (no /proc): the caller looks at the bytes
    }
    constexpr uint64_t kPresentOrSwapped = uint64_t{3} << 62;
    return (entries_[index - first_] & kPresentOrSwapped) != 0;
  }

 private:
  int fd_;
  uint64_t first_ = 0;
  size_t count_ = 0;
  std::array<uint64_t, 1024> entries_;
};

}  // namespace multigrain
