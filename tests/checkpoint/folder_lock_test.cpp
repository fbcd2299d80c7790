// One run at a time writes to a folder of checkpoints. Record locks are a process's, so the others here are processes.
#include "checkpoint/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/temporary_folder.h"

namespace multigrain::checkpoint {
namespace {

using testing::HasSubstr;
using Holder = FolderLock::Holder;

class Lock : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(folder_.path().empty()); }
  [[nodiscard]] std::string folder() const { return folder_.path(); }

  // Another process, which takes the lock and holds it until it is killed.
  class Other {
   public:
    Other(const std::string& folder, Holder holder, bool reads) {
      int ends[2];
      if (pipe(ends) != 0) std::abort();
      pid_ = fork();
      if (pid_ == 0) {
        const auto lock = reads ? FolderLock::take_to_read(folder, holder) : FolderLock::take(folder, holder);
        const char has_it = lock && lock->excludes_others() ? 'y' : 'n';
        if (write(ends[1], &has_it, 1) != 1) _exit(1);
        while (true) pause();
      }
      char answer = '?';
      EXPECT_EQ(read(ends[0], &answer, 1), 1);
      has_it_ = answer == 'y';
      close(ends[0]);
      close(ends[1]);
    }
    ~Other() { end(); }
    Other(const Other&) = delete;
    Other& operator=(const Other&) = delete;
    void end() {
      if (pid_ <= 0) return;
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
    [[nodiscard]] bool has_it() const { return has_it_; }
    [[nodiscard]] pid_t pid() const { return pid_; }

   private:
    pid_t pid_;
    bool has_it_ = false;
  };

 private:
  TemporaryFolder folder_{"folder-lock-test"};
};

TEST_F(Lock, IsOneProcesssUntilItEnds) {
  Other other(folder(), Holder::mgrun(), false);
  ASSERT_TRUE(other.has_it());
  const auto refused = FolderLock::take(folder(), Holder::mgrun());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("another run writes its checkpoints to '" + folder() + "'"));
  EXPECT_THAT(refused.error().message, HasSubstr("(process " + std::to_string(other.pid()) + ")"));
  other.end();
  const auto taken = FolderLock::take(folder(), Holder::mgrun());
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->excludes_others());
  EXPECT_FALSE(Other(folder(), Holder::mgrun(), false).has_it());
}

TEST_F(Lock, IsLetGo) {
  {
    const auto taken = FolderLock::take(folder(), Holder::node(NodeId(3)));
    ASSERT_TRUE(taken);
  }
  EXPECT_TRUE(Other(folder(), Holder::node(NodeId(3)), false).has_it());
}

TEST_F(Lock, OfMgrunAndOfEachNodeAreDifferentOnes) {
  const Other mgrun(folder(), Holder::mgrun(), false);
  const Other node(folder(), Holder::node(NodeId(1)), false);
  EXPECT_TRUE(mgrun.has_it());
  EXPECT_TRUE(node.has_it());
  EXPECT_TRUE(FolderLock::take(folder(), Holder::node(NodeId(0))));
  EXPECT_FALSE(FolderLock::take(folder(), Holder::node(NodeId(1))));
}

TEST_F(Lock, OfReadersExcludesWritersAlone) {
  ASSERT_TRUE(FolderLock::take(folder(), Holder::node(NodeId(0)))) << "The file is there now.";
  Other reader(folder(), Holder::node(NodeId(0)), true);
  EXPECT_TRUE(reader.has_it());
  EXPECT_TRUE(FolderLock::take_to_read(folder(), Holder::node(NodeId(0))));
  EXPECT_FALSE(FolderLock::take(folder(), Holder::node(NodeId(0))));
  reader.end();
  const Other writer(folder(), Holder::node(NodeId(0)), false);
  EXPECT_TRUE(writer.has_it());
  EXPECT_FALSE(FolderLock::take_to_read(folder(), Holder::node(NodeId(0))));
}

TEST_F(Lock, MakesNothingWhereItIsToRead) {
  const auto lock = FolderLock::take_to_read(folder(), Holder::node(NodeId(0)));
  ASSERT_TRUE(lock);
  EXPECT_FALSE(lock->excludes_others());
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

}  // namespace
}  // namespace multigrain::checkpoint
