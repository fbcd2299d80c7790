#include "base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

#include "base/open_descriptor.h"

namespace multigrain {
namespace {

int open_null() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

TEST(FileDescriptor, IsClosedAtTheEndAndErrnoStays) {
  const int fd = open_null();
  {
    const FileDescriptor owner(fd);
    EXPECT_TRUE(owner.is_open());
    EXPECT_EQ(owner.get(), fd);
    EXPECT_TRUE(is_open(fd));
    errno = ENOTTY;
  }
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_FALSE(is_open(fd));
  {
    const FileDescriptor failed(::open("/nonexistent", O_RDONLY | O_CLOEXEC));
    EXPECT_FALSE(failed.is_open());
    errno = ENOTTY;
  }
  EXPECT_EQ(errno, ENOTTY);
}

TEST(FileDescriptor, HasOneOwner) {
  const int first = open_null(), second = open_null();
  FileDescriptor owner(first);
  FileDescriptor next(std::move(owner));
  EXPECT_FALSE(owner.is_open());  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move): that is the question
  EXPECT_EQ(next.get(), first);
  next = FileDescriptor(second);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(next.release(), second);
  EXPECT_FALSE(next.is_open());
  EXPECT_TRUE(is_open(second));
  ::close(second);
}

TEST(FileDescriptor, IsClosedEarlyOnce) {
  FileDescriptor owner(open_null());
  const int fd = owner.get();
  owner.close();
  EXPECT_FALSE(is_open(fd));
  // Another file may have the number by now.
  const FileDescriptor next(open_null());
  ASSERT_EQ(next.get(), fd);
  owner.close();
  EXPECT_TRUE(is_open(fd));
}

}  // namespace
}  // namespace multigrain
