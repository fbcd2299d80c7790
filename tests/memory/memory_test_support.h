// The memory tests share this.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>

namespace multigrain {

// Returns the bytes of physical memory in this process's mappings.
inline uint64_t resident_set_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

// Returns whether a system call may read the byte. The kernel takes no fault of ours, so this asks for rights without
// raising a signal.
inline bool kernel_can_read(const void* address) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  // This is a bare system call, because a sanitizer takes write() for an access of the program.
  const long written = syscall(SYS_write, ends[1], address, 1);
  close(ends[0]);
  close(ends[1]);
  return written == 1;
}

// Returns whether a system call may write the byte; if so, it is zero afterwards.
inline bool kernel_can_write(void* address) {
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  const long got = syscall(SYS_read, zeros, address, 1);
  close(zeros);
  return got == 1;
}

}  // namespace multigrain
