#include "base/own_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "base/open_descriptor.h"

namespace multigrain::own_descriptors {
namespace {

// Runs the body in a process of its own, because descriptors that are divided stay so. The status is 0 if all was as it
// should be, else the number of the line.
void in_a_process(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the line, modulo 256";
}

#define NEEDS(condition) \
  if (!(condition)) return __LINE__ & 255

TEST(OwnDescriptors, NothingIsDividedAtFirst) {
  EXPECT_EQ(lowest(), 0);
  const int fd = eventfd(0, EFD_CLOEXEC);
  EXPECT_EQ(keep(fd), fd);
  close(fd);
  errno = 0;
  EXPECT_EQ(keep(-1), -1);
}

TEST(OwnDescriptors, AProgramThatClosesAllDoesNotReachThem) {
  in_a_process([] {
    divide();
    NEEDS(lowest() > 0);
    const int given = eventfd(0, 0);
    const int kept = keep(given);
    NEEDS(kept >= lowest() && !is_open(given));
    NEEDS((fcntl(kept, F_GETFD) & FD_CLOEXEC) != 0);
    const rlimit limit = limit_of_program();
    NEEDS(limit.rlim_max == static_cast<rlim_t>(lowest()) && limit.rlim_cur <= limit.rlim_max);
    for (rlim_t fd = 3; fd < limit.rlim_max; ++fd) close(static_cast<int>(fd));
    NEEDS(is_open(kept));
    // The system itself gives the program no such number.
    NEEDS(dup2(0, lowest()) == -1 && errno == EBADF);
    const int another = keep(eventfd(0, 0));
    NEEDS(another >= lowest() && another != kept);
    return 0;
  });
}

TEST(OwnDescriptors, TheLimitIsTheProgramsToSetAndNoMore) {
  in_a_process([] {
    divide();
    const rlim_t hard = limit_of_program().rlim_max;
    NEEDS(set_limit_of_program({.rlim_cur = 64, .rlim_max = hard}) == 0);
    NEEDS(limit_of_program().rlim_cur == 64 && limit_of_program().rlim_max == hard);
    NEEDS(keep(eventfd(0, 0)) >= lowest());
    NEEDS(limit_of_program().rlim_cur == 64);
    NEEDS(set_limit_of_program({.rlim_cur = 65, .rlim_max = 64}) == EINVAL);
    NEEDS(set_limit_of_program({.rlim_cur = 64, .rlim_max = hard + 1}) == EPERM);
    NEEDS(set_limit_of_program({.rlim_cur = 64, .rlim_max = 128}) == 0);
    NEEDS(limit_of_program().rlim_max == 128);
    // The runtime has room nevertheless.
    NEEDS(keep(eventfd(0, 0)) >= lowest());
    return 0;
  });
}

TEST(OwnDescriptors, WhatIsExecutedHasTheLimitsFromBefore) {
  in_a_process([] {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    divide();
    {
      const LimitForExec as_before;
      rlimit now{};
      getrlimit(RLIMIT_NOFILE, &now);
      NEEDS(now.rlim_max == before.rlim_max);
    }
    NEEDS(keep(eventfd(0, 0)) >= lowest());
    const int kept = keep(eventfd(0, 0));
    give_up();
    NEEDS(lowest() == 0 && !is_open(kept));
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    NEEDS(now.rlim_max == before.rlim_max);
    return 0;
  });
}

}  // namespace
}  // namespace multigrain::own_descriptors
