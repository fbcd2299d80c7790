#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "guest/nodes/local_files.h"

namespace multigrain::guest {
namespace {

class LocalFoldersTest : public testing::Test {
 protected:
  LocalFoldersTest() {
    char name[] = "/tmp/multigrain-folders-XXXXXX";
    folder_ = mkdtemp(name);
    std::filesystem::create_directories(folder_ + "/in/sub");
    std::filesystem::create_directory_symlink(folder_ + "/in", folder_ + "/link");
    for (const char* file : {"/in/a", "/in/sub/b", "/out"}) std::ofstream(folder_ + file) << file;
    std::filesystem::create_symlink("../out", folder_ + "/in/leads-out");
    std::filesystem::create_symlink("/proc/self/exe", folder_ + "/in/leads-to-proc");
    std::filesystem::create_symlink("sub/b", folder_ + "/in/leads-in");
  }
  ~LocalFoldersTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(LocalFoldersTest, NamesAndRealPathsAreBothFound) {
  LocalFolders folders;
  ASSERT_TRUE(folders.begin({folder_ + "/link"}, true));
  const auto by_name = folders.place_of_name(folder_ + "/link/sub/b");
  const auto by_real = folders.place_of_name(folder_ + "/in//sub/b");
  ASSERT_TRUE(by_name && by_real);
  EXPECT_EQ(by_name->path, "sub/b");
  EXPECT_EQ(by_real->path, "sub/b");
  EXPECT_TRUE(folders.place_of_real(folder_ + "/in/a"));
  EXPECT_FALSE(folders.place_of_real(folder_ + "/link/a"));
  for (const char* other : {"", "/in", "/in/", "/inside/a", "/out", "/i"})
    EXPECT_FALSE(folders.place_of_name(folder_ + other)) << other;
}

TEST_F(LocalFoldersTest, NothingOutsideIsOpened) {
  LocalFolders folders;
  ASSERT_TRUE(folders.begin({folder_ + "/in"}, true));
  for (const char* inside : {"a", "sub/b", "leads-in", "sub/../a"}) {
    const int fd = folders.open_beneath(0, inside, O_RDONLY);
    EXPECT_GE(fd, 0) << inside;
    close(fd);
  }
  for (const char* outside : {"leads-out", "../out", "sub/../../out", "/etc/passwd"})
    EXPECT_EQ(folders.open_beneath(0, outside, O_RDONLY), -EXDEV) << outside;
  EXPECT_LT(folders.open_beneath(0, "leads-to-proc", O_RDONLY), 0);
  EXPECT_EQ(folders.open_beneath(0, "nothing", O_RDONLY), -ENOENT);
}

TEST_F(LocalFoldersTest, TheRootHasNoFilesAboutOneSystem) {
  LocalFolders folders;
  ASSERT_TRUE(folders.begin({"/"}, true));
  EXPECT_EQ(folders.place_of_real("/etc/passwd")->path, "etc/passwd");
  EXPECT_TRUE(folders.place_of_real("/process"));
  for (const char* own : {"/", "/proc", "/proc/self/maps", "/sys/kernel", "/dev/null"})
    EXPECT_FALSE(folders.place_of_real(own)) << own;
}

TEST_F(LocalFoldersTest, OnlyTheHomeRefusesWhatIsNoFolder) {
  for (const std::string& name : {folder_ + "/nothing", folder_ + "/out", std::string("/proc/self")}) {
    EXPECT_FALSE(LocalFolders().begin({name}, true)) << name;
    LocalFolders folders;
    EXPECT_TRUE(folders.begin({name}, false)) << name;
  }
  LocalFolders folders;
  ASSERT_TRUE(folders.begin({folder_ + "/nothing"}, false));
  EXPECT_EQ(folders.open_beneath(0, "a", O_RDONLY), -ENOENT);
}

}  // namespace
}  // namespace multigrain::guest
