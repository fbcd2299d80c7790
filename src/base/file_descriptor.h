// This owns a file descriptor, so that no way out of a function leaves the descriptor open.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace multigrain {

// Owns a descriptor, or none. It is closed at the end of its owner's life, and errno stays as it was.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes the result of open() and similar calls: no descriptor is owned if `fd` is negative.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  // Returns -1 if no descriptor is owned.
  [[nodiscard]] int get() const { return fd_; }
  // Returns the same. From now on the caller has to close it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void close() {
    if (fd_ < 0) return;
    const int saved = errno;
    ::close(release());
    errno = saved;
  }

 private:
  int fd_ = -1;
};

}  // namespace multigrain
