#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/temporary_folder.h"

namespace multigrain {
namespace {

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(OutputFile, IsReplacedAsAWholeAndNothingElseIsLeft) {
  const TemporaryFolder folder("output-file-test");
  const std::filesystem::path file = folder.path() / "results";
  ASSERT_TRUE(write_output_file(file, "first"));
  EXPECT_EQ(contents_of(file), "first");
  ASSERT_TRUE(write_output_file(file, "second"));
  EXPECT_EQ(contents_of(file), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(OutputFile, KeepsWhatItHadIfItCannotBeWritten) {
  const TemporaryFolder folder("output-file-test");
  const std::filesystem::path file = folder.path() / "results";
  ASSERT_TRUE(write_output_file(file, "first"));
  // What is written first has the place of a folder.
  std::filesystem::create_directory(file.string() + ".unfinished");
  const Status written = write_output_file(file, "second");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, testing::HasSubstr("cannot write " + file.string()));
  EXPECT_EQ(contents_of(file), "first");
}

TEST(OutputFile, DeviceIsWrittenAndStaysADevice) {
  EXPECT_TRUE(write_output_file("/dev/null", "text"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const Status written = write_output_file("/dev/full", "text");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, testing::HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace multigrain
