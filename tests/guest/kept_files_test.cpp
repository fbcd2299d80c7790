#include "guest/nodes/kept_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace multigrain::guest {
namespace {

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

TEST(KeptFiles, AFileIsKeptOnceAsLongAsAPartIsMapped) {
  KeptFiles files;
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int again = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int kept = files.use(fd, 8192);
  ASSERT_GE(kept, 0);
  EXPECT_NE(kept, fd);
  EXPECT_EQ(files.use(again, 4096), kept);
  close(fd);
  close(again);
  files.unuse(kept, 4096);
  files.unuse(kept, 4096);
  EXPECT_TRUE(is_open(kept));
  files.unuse(kept, 4096);
  EXPECT_FALSE(is_open(kept));
}

TEST(KeptFiles, OtherFilesAndOtherKindsOfAccessAreKeptApart) {
  KeptFiles files;
  const int memory = memfd_create("one", MFD_CLOEXEC);
  const int other = memfd_create("one", MFD_CLOEXEC);
  const int reader = open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDONLY | O_CLOEXEC);
  const int kept = files.use(memory, 4096);
  const int kept_other = files.use(other, 4096);
  const int kept_reader = files.use(reader, 4096);
  EXPECT_NE(kept, kept_other);
  EXPECT_NE(kept, kept_reader);
  EXPECT_EQ(fcntl(kept_reader, F_GETFL) & O_ACCMODE, O_RDONLY);
  for (const int fd : {kept, kept_other, kept_reader}) files.unuse(fd, 4096);
  for (const int fd : {memory, other, reader}) close(fd);
}

// Asks a child, since a process is never told of its own locks.
bool is_locked_by_this_process(const char* path) {
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path, O_RDWR);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

TEST(KeptFiles, LocksOfTheProcessStay) {
  char path[] = "/tmp/kept-files-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  ASSERT_EQ(fcntl(fd, F_SETLK, &lock), 0);
  KeptFiles files;
  const int kept = files.use(fd, 4096);
  EXPECT_TRUE(is_locked_by_this_process(path));
  files.unuse(kept, 4096);
  EXPECT_TRUE(is_locked_by_this_process(path));
  // It is used again, and given up once more.
  EXPECT_EQ(files.use(fd, 4096), kept);
  files.unuse(kept, 4096);
  EXPECT_TRUE(is_locked_by_this_process(path));
  EXPECT_TRUE(is_open(kept));
  // The next change of any mapping closes what has no lock any more.
  lock.l_type = F_UNLCK;
  ASSERT_EQ(fcntl(fd, F_SETLK, &lock), 0);
  const int memory = memfd_create("another", MFD_CLOEXEC);
  const int other = files.use(memory, 4096);
  EXPECT_FALSE(is_open(kept) && kept != other);
  files.unuse(other, 4096);
  close(memory);
  close(fd);
  unlink(path);
}

TEST(KeptFiles, NoDescriptor) {
  KeptFiles files;
  EXPECT_EQ(files.use(-1, 4096), -EBADF);
}

}  // namespace
}  // namespace multigrain::guest
