// What users are told of races: each pair of places once, and at the end how often.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "races/reports.h"

namespace multigrain::races {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NumberedPlaces final : public Places {
 public:
  std::string instruction(uint64_t address) override { return fmt::format("line {}", address); }
  std::string call(uint64_t address) override { return fmt::format("call {}", address); }
  std::string block(uint64_t) override { return "byte 1 of a block"; }
  std::string made(uint64_t) override { return {}; }
};

class Told : public testing::Test {
 protected:
  NumberedPlaces places;
  Reports reports{places, 0x1000};
  SectionTable sections{2, 1 << 12};

  static Access access(uint16_t node, uint64_t pc, bool is_write, uint64_t address = 64) {
    return {.address = address, .pc = pc, .section = {node, 1}, .bytes = 4, .processor = node, .is_write = is_write};
  }
  std::string add(const Access& a, const Access& b) { return reports.add(a, b, sections); }
};

TEST_F(Told, NothingIfThereIsNone) {
  EXPECT_EQ(reports.finish(0), "");
  EXPECT_FALSE(reports.any());
}

TEST_F(Told, BothPlaces) {
  EXPECT_THAT(add(access(0, 10, false), access(1, 20, true)),
              AllOf(HasSubstr("data race at 0x1040, byte 1 of a block"),
                    HasSubstr("a read of 4 bytes by processor 0 on node 0: line 10"),
                    HasSubstr("a write of 4 bytes by processor 1 on node 1: line 20")));
  EXPECT_TRUE(reports.any());
}

TEST_F(Told, APairOnceInWhicheverOrder) {
  EXPECT_NE(add(access(0, 10, false), access(1, 20, true)), "");
  EXPECT_EQ(add(access(1, 20, true), access(0, 10, false)), "");
  EXPECT_EQ(add(access(0, 10, false, 128), access(1, 20, true, 128)), "");
  EXPECT_THAT(reports.finish(0), HasSubstr("3 data races between 1 pair of places"));
}

TEST_F(Told, AtTheEndWhatWasSeenInDiffsOnly) {
  EXPECT_EQ(add(access(0, 0, true), access(1, 0, true)), "");
  EXPECT_THAT(reports.finish(0), AllOf(HasSubstr("a write of 4 bytes by node 0, at a place that was not seen"),
                                       HasSubstr("1 data race between 1 pair of places")));
}

TEST_F(Told, NotWhatWasSeenBetter) {
  EXPECT_EQ(add(access(0, 0, true), access(1, 20, true)), "");
  EXPECT_EQ(add(access(0, 0, true, 1 << 20), access(1, 20, true, 1 << 20)), "");
  EXPECT_NE(add(access(0, 10, true), access(1, 20, true)), "");
  EXPECT_THAT(reports.finish(0), Not(HasSubstr("not seen")));
}

TEST_F(Told, NoMorePairsThanThereIsRoomFor) {
  for (uint64_t pc = 1; pc <= Reports::kMostPairs; ++pc) EXPECT_NE(add(access(0, pc, true), access(1, pc, true)), "");
  EXPECT_EQ(add(access(0, 1000, true), access(1, 1000, true)), "");
  EXPECT_THAT(reports.finish(0), HasSubstr("1 data race more was found between other places"));
}

TEST_F(Told, ThatAccessesWereForgotten) {
  EXPECT_THAT(reports.finish(17), HasSubstr("17 accesses"));
}

}  // namespace
}  // namespace multigrain::races
