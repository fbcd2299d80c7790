#include "guest/nodes/kept_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
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

TEST(KeptFiles, NoDescriptor) {
  KeptFiles files;
  EXPECT_EQ(files.use(-1, 4096), -EBADF);
}

}  // namespace
}  // namespace multigrain::guest
