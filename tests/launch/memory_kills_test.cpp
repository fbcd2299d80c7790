// These tests give files that look like those in which the kernel says that it has killed a process for want of memory.
#include "launch/memory_kills.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace multigrain {
namespace {

namespace fs = std::filesystem;

class MemoryKillsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "memory-kills-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  [[nodiscard]] std::optional<uint64_t> count() const { return count_memory_kills(root_.string()); }

  fs::path root_;
};

TEST_F(MemoryKillsTest, OfAGroupOfVersion2) {
  write("proc/self/cgroup", "0::/user.slice/job 7\n");
  write("sys/fs/cgroup/user.slice/job 7/memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n");
  write("proc/vmstat", "oom_kill 9\n");
  EXPECT_EQ(count(), 2u);
}

TEST_F(MemoryKillsTest, OfAGroupOfVersion1) {
  write("proc/self/cgroup", "12:cpu,cpuacct:/a\n9:memory:/a/b\n0::/c\n");
  write("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  EXPECT_EQ(count(), 4u);
}

TEST_F(MemoryKillsTest, OfAGroupThatIsCalledOtherwiseOutsideOfTheContainer) {
  write("proc/self/cgroup", "9:memory:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 1\n");
  EXPECT_EQ(count(), 1u);
}

TEST_F(MemoryKillsTest, OfTheMachine) {
  write("proc/self/cgroup", "0::/\n");
  write("proc/vmstat", "nr_free_pages 5\noom_kill 9\nother 1\n");
  EXPECT_EQ(count(), 9u);
}

TEST_F(MemoryKillsTest, OfAKernelThatDoesNotSay) {
  EXPECT_EQ(count(), std::nullopt);
  write("proc/self/cgroup", "nonsense\n::\n9:memory:/x\n");
  write("sys/fs/cgroup/memory/x/memory.oom_control", "oom_kill many\n");
  EXPECT_EQ(count(), std::nullopt);
}

}  // namespace
}  // namespace multigrain
