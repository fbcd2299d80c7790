// The files of a checkpoint: what is written is read, and what is torn or of another run is refused.
#include "checkpoint/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/temporary_folder.h"

namespace multigrain::checkpoint {
namespace {

using testing::HasSubstr;

constexpr size_t kPage = 4096;

// Of two pages one cannot be compressed.
std::vector<std::byte> page_of(unsigned value) {
  std::vector<std::byte> page(kPage, std::byte(value));
  std::mt19937 random(value);
  if (value % 2 == 1)
    for (std::byte& byte : page) byte = std::byte(random());
  return page;
}

// The part that write_part() says it adds to.
Part before(const Part& part) {
  return {.number = part.number - 1, .bytes = 0, .checksum = 0};
}

class Files : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(folder_.path().empty()); }
  [[nodiscard]] std::string folder() const { return folder_.path(); }

  // It adds to the part with the number before.
  [[nodiscard]] Part write_part(uint64_t number, NodeId node, unsigned pages) const {
    auto writer = PartWriter::create(folder(), number, node, number - 1);
    EXPECT_TRUE(writer);
    writer->add_books(space(), small());
    for (unsigned i = 0; i < pages; ++i) {
      writer->add_page(PageId(i * 3), page_of(i));
      writer->add_absent(PageId(i * 3 + 1));
    }
    const auto part = writer->finish();
    EXPECT_TRUE(part);
    return *part;
  }
  [[nodiscard]] static SpaceImage space() {
    SpaceImage image;
    image.extents.push_back(
        {.first = PageId(0), .pages = 16, .placement = {.policy = HomePolicy::kFirstTouch}, .owner = 1});
    image.extents.push_back(
        {.first = PageId(16),
         .pages = 8,
         .placement = {.policy = HomePolicy::kNode, .node = NodeId(1), .grain = Grain::kLine, .block_size = 64},
         .owner = Extent::kNoOwner});
    image.runs.push_back({16, 5, 7, true, false});
    image.runs.push_back({21, 3, 7, false, true});
    return image;
  }
  [[nodiscard]] static SmallImage small() {
    SmallImage image;
    image.superblocks.push_back({.offset = 65536, .touched_bytes = 100, .used = 3, .kind = 2, .size_class = 4});
    image.bitmaps = {7, 0, 1};
    return image;
  }
  [[nodiscard]] static Head head(uint64_t number, std::vector<std::vector<Part>> chains) {
    Machine machine{
        .program = 11, .region_size = 1 << 30, .page_size = kPage, .nodes = 0, .line_size = 64, .protocol = {"mgs"}};
    machine.nodes = static_cast<uint32_t>(chains.size());
    return {.machine = machine, .number = number, .root = 0x2000, .chains = std::move(chains)};
  }
  void change_byte(const std::string& name, std::streamoff at) const {
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }

 private:
  TemporaryFolder folder_{"checkpoint-files-test"};
};

TEST_F(Files, AHeadIsReadAsItWasWritten) {
  ASSERT_TRUE(read_head(folder()));
  EXPECT_FALSE(*read_head(folder())) << "There is none yet.";
  const Head written = head(7, {{{5, 100, 1}, {7, 3, 9}}, {{7, 200, 2}}});
  ASSERT_TRUE(write_head(folder(), written));
  const auto read = read_head(folder());
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->machine, written.machine);
  EXPECT_EQ((*read)->number, 7u);
  EXPECT_EQ((*read)->root, 0x2000u);
  EXPECT_EQ((*read)->chains, written.chains);
}

TEST_F(Files, AHeadOfWhichAnyByteHasChangedIsRefused) {
  ASSERT_TRUE(write_head(folder(), head(7, {{{5, 100, 1}, {7, 3, 9}}, {{7, 200, 2}}})));
  const std::string name = folder() + "/checkpoint";
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(name));
  for (std::streamoff at = 0; at < size; ++at) {
    change_byte(name, at);
    EXPECT_FALSE(read_head(folder())) << at;
    change_byte(name, at);
  }
  EXPECT_TRUE(read_head(folder()));
  change_byte(name, 8);
  EXPECT_THAT(read_head(folder()).error().message, HasSubstr("version"));
}

TEST_F(Files, AHeadOfAnyOtherLengthIsRefused) {
  ASSERT_TRUE(write_head(folder(), head(7, {{{5, 100, 1}, {7, 3, 9}}, {{7, 200, 2}}})));
  const std::string name = folder() + "/checkpoint";
  for (auto size = std::filesystem::file_size(name); size-- > 0;) {
    std::filesystem::resize_file(name, size);
    EXPECT_FALSE(read_head(folder())) << size;
  }
}

TEST_F(Files, APartIsReadAsItWasWritten) {
  const Part part = write_part(3, NodeId(1), 400);
  EXPECT_LT(part.bytes, 400 * kPage * 3 / 4) << "Half of the pages need hardly any room.";
  const Part previous = before(part);
  auto reader = PartReader::open(folder(), NodeId(1), part, &previous);
  ASSERT_TRUE(reader) << reader.error().message;
  SpaceImage read_space;
  SmallImage read_small;
  ASSERT_TRUE(reader->read_books(read_space, read_small));
  EXPECT_EQ(read_space.extents, space().extents);
  ASSERT_EQ(read_space.runs.size(), 2u);
  EXPECT_EQ(read_space.runs[1].first, 21u);
  EXPECT_EQ(read_space.runs[1].kind, 7u);
  EXPECT_FALSE(read_space.runs[1].is_allocated);
  EXPECT_TRUE(read_space.runs[1].is_dirty);
  ASSERT_EQ(read_small.superblocks.size(), 1u);
  EXPECT_EQ(read_small.superblocks[0].used, 3u);
  EXPECT_EQ(read_small.bitmaps, small().bitmaps);
  for (unsigned i = 0; i < 400; ++i) {
    auto page = reader->next_page(kPage);
    ASSERT_TRUE(page && *page);
    EXPECT_EQ((*page)->page, PageId(i * 3));
    EXPECT_TRUE(std::ranges::equal((*page)->bytes, page_of(i))) << i;
    page = reader->next_page(kPage);
    ASSERT_TRUE(page && *page);
    EXPECT_EQ((*page)->page, PageId(i * 3 + 1));
    EXPECT_TRUE((*page)->bytes.empty());
  }
  const auto end = reader->next_page(kPage);
  ASSERT_TRUE(end);
  EXPECT_FALSE(*end);
}

TEST_F(Files, ADamagedPartIsRefused) {
  const Part part = write_part(3, NodeId(0), 3);
  const std::string name = part_name(folder(), 3, NodeId(0));
  const Part previous = before(part);
  const auto open = [&] { return PartReader::open(folder(), NodeId(0), part, &previous); };
  for (std::streamoff at = 0; at < static_cast<std::streamoff>(part.bytes); at += at < 64 ? 1 : 97) {
    change_byte(name, at);
    const auto opened = open();
    ASSERT_FALSE(opened) << at;
    EXPECT_THAT(opened.error().message, HasSubstr("damaged"));
    change_byte(name, at);
  }
  EXPECT_TRUE(open());
  std::filesystem::resize_file(name, part.bytes - 1);
  EXPECT_THAT(open().error().message, HasSubstr("truncated"));
  std::filesystem::rename(name, part_name(folder(), 4, NodeId(0)));
  EXPECT_FALSE(open()) << "It is not there.";
}

TEST_F(Files, APartUnderAnotherNameIsRefused) {
  const Part part = write_part(3, NodeId(0), 3);
  std::filesystem::copy_file(part_name(folder(), 3, NodeId(0)), part_name(folder(), 4, NodeId(0)));
  const Part previous = before(part);
  Part other = part;
  other.number = 4;
  const auto opened = PartReader::open(folder(), NodeId(0), other, &part);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("another part"));
  EXPECT_TRUE(PartReader::open(folder(), NodeId(0), part, &previous));
  EXPECT_FALSE(PartReader::open(folder(), NodeId(0), part, &other)) << "It adds to another one.";
  EXPECT_FALSE(PartReader::open(folder(), NodeId(0), part, nullptr)) << "It begins no chain.";
}

// A part whose checksum is right may still be wrong, if what wrote it was.
TEST_F(Files, APartThatMakesNoSenseIsRefused) {
  auto writer = PartWriter::create(folder(), 1, NodeId(0), 0);
  ASSERT_TRUE(writer);
  writer->add_books(space(), small());
  const std::vector<std::byte> bytes = page_of(1);
  writer->add_page(PageId(1), std::span(bytes).first(kPage / 2));
  const auto part = writer->finish();
  ASSERT_TRUE(part);
  auto reader = PartReader::open(folder(), NodeId(0), *part, nullptr);
  ASSERT_TRUE(reader);
  SpaceImage read_space;
  SmallImage read_small;
  ASSERT_TRUE(reader->read_books(read_space, read_small));
  const auto page = reader->next_page(kPage);
  ASSERT_FALSE(page);
  EXPECT_THAT(page.error().message, HasSubstr("makes no sense at byte"));
}

TEST_F(Files, AHeadThatMakesNoSenseIsRefused) {
  for (const auto& chains : std::vector<std::vector<std::vector<Part>>>{
           {{{7, 100, 1}}, {}}, {{{7, 100, 1}}, {{5, 100, 1}}}, {{}, {{7, 100, 1}}}}) {
    ASSERT_TRUE(write_head(folder(), head(7, chains)));
    EXPECT_FALSE(read_head(folder()));
  }
}

TEST_F(Files, AnotherRunIsDescribed) {
  const Machine here = head(1, {{{1, 1, 1}}, {{1, 2, 2}}}).machine;
  EXPECT_FALSE(difference(here, here));
  Machine other = here;
  other.program = 12;
  EXPECT_THAT(*difference(other, here), HasSubstr("another program"));
  other = here;
  other.nodes = 5;
  EXPECT_THAT(*difference(other, here), HasSubstr("--nodes 5, and this one has 2"));
  other = here;
  other.protocol = {"hlrc"};
  EXPECT_THAT(*difference(other, here), HasSubstr("--protocol hlrc, and this one has mgs"));
}

TEST_F(Files, ThePartsThatAreToGoAreRemoved) {
  for (const uint64_t number : {uint64_t{1}, uint64_t{2}, uint64_t{12}})
    for (const uint16_t node : {uint16_t{0}, uint16_t{1}, uint16_t{11}})
      static_cast<void>(write_part(number, NodeId(node), 1));
  for (const char* mine : {"/memory-of-mine-1", "/memory-1-1-mine", "/memory-1", "/memory--1", "/memory-1-"})
    std::ofstream(folder() + mine) << "kept";
  remove_parts(folder(), [](uint64_t number, unsigned node) { return number != 12 && node == 1; });
  for (const uint64_t number : {uint64_t{1}, uint64_t{2}, uint64_t{12}})
    for (const uint16_t node : {uint16_t{0}, uint16_t{1}, uint16_t{11}})
      EXPECT_EQ(std::filesystem::exists(part_name(folder(), number, NodeId(node))), node != 1 || number == 12)
          << number << " " << node;
  for (const char* mine : {"/memory-of-mine-1", "/memory-1-1-mine", "/memory-1", "/memory--1", "/memory-1-"})
    EXPECT_TRUE(std::filesystem::exists(folder() + mine)) << mine;
}

// This is also what a full disk does, but for the reason.
TEST_F(Files, APartThatDoesNotFitIsAnErrorAndGone) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small_limit = before;
  small_limit.rlim_cur = 100'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small_limit), 0);
  auto writer = PartWriter::create(folder(), 1, NodeId(0), 0);
  ASSERT_TRUE(writer);
  writer->add_books({}, {});
  for (unsigned i = 1; i < 1200; i += 2) writer->add_page(PageId(i), page_of(i));
  const auto part = writer->finish();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(part);
  EXPECT_THAT(part.error().message, HasSubstr("File too large"));
  EXPECT_FALSE(std::filesystem::exists(part_name(folder(), 1, NodeId(0))));
}

}  // namespace
}  // namespace multigrain::checkpoint
