// The parts of a node, checkpoint after checkpoint: they have what has changed, and together all that there is.
#include "checkpoint/node_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder.h"

namespace multigrain::checkpoint {
namespace {

constexpr size_t kPage = 4096;
constexpr NodeId kNode{1};

using Memory = std::map<uint64_t, std::vector<std::byte>>;

class Parts : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(folder_.path().empty()); }
  [[nodiscard]] std::string folder() const { return folder_.path(); }

  Result<NodeParts::Written> write(NodeParts& parts, uint64_t number) const {
    if (const Status begun = parts.begin(number, {}, {}); !begun) return tl::unexpected(begun.error());
    for (const auto& [page, bytes] : memory_) parts.add(PageId(page), bytes);
    return parts.finish();
  }

  // Writes a checkpoint and keeps its chain, as node 0 does.
  NodeParts::Written write_and_keep(NodeParts& parts, uint64_t number) {
    const auto written = write(parts, number);
    EXPECT_TRUE(written);
    if (written->before == 0) chain_.clear();
    EXPECT_EQ(written->before, chain_.empty() ? 0 : chain_.back().number);
    chain_.push_back(written->part);
    parts.end(true);
    return *written;
  }

  // What the chain says that memory is.
  [[nodiscard]] Memory in_files() const {
    Memory memory;
    for (size_t i = 0; i < chain_.size(); ++i) {
      auto reader = PartReader::open(folder(), kNode, chain_[i], i == 0 ? nullptr : &chain_[i - 1]);
      if (!reader) {
        ADD_FAILURE() << reader.error().message;
        return {};
      }
      SpaceImage space;
      SmallImage small;
      EXPECT_TRUE(reader->read_books(space, small));
      while (true) {
        const auto page = reader->next_page(kPage);
        if (!page || !*page) {
          EXPECT_TRUE(page);
          break;
        }
        if ((*page)->bytes.empty())
          EXPECT_EQ(memory.erase((*page)->page.value), 1u) << "What was not there is not said to be absent.";
        else
          memory[(*page)->page.value].assign((*page)->bytes.begin(), (*page)->bytes.end());
      }
    }
    return memory;
  }

  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  void change(uint64_t page) {
    std::vector<std::byte>& bytes = memory_[page];
    bytes.resize(kPage);
    for (std::byte& byte : bytes) byte = std::byte(random_());
  }

  Memory memory_;
  std::vector<Part> chain_;
  std::mt19937 random_{7};

 private:
  TemporaryFolder folder_{"node-parts-test"};
};

TEST_F(Parts, HaveWhatHasChanged) {
  NodeParts parts(folder(), kNode, {});
  for (uint64_t page = 0; page < 200; ++page) change(page * 2);
  const uint64_t whole = write_and_keep(parts, 1).part.bytes;
  EXPECT_GT(whole, 200 * kPage);
  change(17);
  change(40);
  memory_.erase(0);
  memory_.erase(398);
  const NodeParts::Written next = write_and_keep(parts, 2);
  EXPECT_EQ(next.before, 1u);
  EXPECT_LT(next.part.bytes, 3 * kPage);
  EXPECT_GT(next.part.bytes, 2 * kPage);
  EXPECT_EQ(in_files(), memory_);
  EXPECT_LT(write_and_keep(parts, 3).part.bytes, kPage) << "Nothing has changed.";
  EXPECT_EQ(in_files(), memory_);
}

TEST_F(Parts, TogetherAreTheMemoryWhateverChanges) {
  NodeParts parts(folder(), kNode, {});
  size_t chains = 0;
  size_t longest = 0;
  for (uint64_t number = 1; number <= 150; ++number) {
    // Some times much changes, and other times little, so that chains end by their length and by what they hold.
    const unsigned changes = number % 50 < 10 ? 30 : 1;
    for (unsigned i = 0; i < changes; ++i) change(random_() % 60);
    for (unsigned i = 0; i < changes / 2; ++i) memory_.erase(random_() % 60);
    if (write_and_keep(parts, number).before == 0) ++chains;
    longest = std::max(longest, chain_.size());
    ASSERT_EQ(in_files(), memory_) << number;
    ASSERT_EQ(files().size(), chain_.size());
  }
  EXPECT_GT(chains, 5u);
  EXPECT_EQ(longest, NodeParts::kMostParts);
}

TEST_F(Parts, OfACheckpointThatIsNotThereGo) {
  // An earlier run's parts stay until there is another checkpoint.
  NodeParts earlier(folder(), kNode, {});
  change(1);
  write_and_keep(earlier, 4);
  change(2);
  write_and_keep(earlier, 5);
  const Memory memory = memory_;
  const std::vector<std::string> before = files();
  EXPECT_THAT(before, testing::ElementsAre("memory-4-1", "memory-5-1"));
  NodeParts parts(folder(), kNode, chain_);
  change(3);
  ASSERT_TRUE(write(parts, 6));
  parts.end(false);
  EXPECT_EQ(files(), before);
  EXPECT_EQ(in_files(), memory);
  EXPECT_EQ(write_and_keep(parts, 6).before, 0u) << "A run begins with a chain of its own.";
  EXPECT_THAT(files(), testing::ElementsAre("memory-6-1"));
  EXPECT_EQ(in_files(), memory_);
  change(3);
  ASSERT_TRUE(write(parts, 7));
  parts.end(false);
  EXPECT_THAT(files(), testing::ElementsAre("memory-6-1"));
  // What has changed since the last checkpoint that is there counts, and not since the last that was tried.
  write_and_keep(parts, 7);
  EXPECT_EQ(in_files(), memory_);
}

TEST_F(Parts, AddToTheChainWhereABeginningHasNoRoom) {
  NodeParts parts(folder(), kNode, {});
  for (uint64_t page = 0; page < 100; ++page) change(page);
  uint64_t number = 0;
  do {
    for (uint64_t page = 0; page < 10; ++page) change(page);
    write_and_keep(parts, ++number);
  } while (chain_.size() < 12);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = 50 * kPage;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto whole = write(parts, number + 1);
  parts.end(false);
  change(5);
  const auto added = write(parts, number + 1);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_FALSE(whole);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(added->before, number);
  chain_.push_back(added->part);
  parts.end(true);
  EXPECT_EQ(in_files(), memory_);
  EXPECT_EQ(write_and_keep(parts, number + 2).before, 0u) << "There is room again.";
}

}  // namespace
}  // namespace multigrain::checkpoint
