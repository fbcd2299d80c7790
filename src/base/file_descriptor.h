// The owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace multigrain {

// Owns a descriptor, or none: it is closed at the end of its owner's life, and errno stays as it was.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes what open() and its like return: nothing is owned if `fd` is negative.
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
  // -1 if none is owned.
  [[nodiscard]] int get() const { return fd_; }
  // The same, which from now on is the caller's to close.
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
