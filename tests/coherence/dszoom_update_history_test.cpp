#include <gtest/gtest.h>

#include "coherence/dszoom/update_history.h"

namespace multigrain::dszoom {
namespace {

constexpr uint64_t kZone = 4096;

class Updates : public ::testing::Test {
 protected:
  Updates() {
    auto history = UpdateHistory::create(1 << 20, 4);
    EXPECT_TRUE(history);
    if (history) history_ = std::move(*history);
  }

  // The thread loads the line, and stores to it if `updates`. Returns whether the load brought the right to store.
  bool visit(uint64_t thread, uint64_t line, bool updates) {
    if (history_.loads(thread, line)) return true;
    history_.came_for_reading(thread, line);
    if (updates) history_.was_upgraded(thread, line);
    return false;
  }

  UpdateHistory history_;
};

TEST_F(Updates, NothingIsLikelyAtFirst) {
  EXPECT_FALSE(history_.is_updated(7));
  EXPECT_FALSE(history_.loads(0, 7));
}

TEST_F(Updates, ATwoThirdsMajorityOfAZoneTellsOfItsOtherLines) {
  for (uint64_t line = 0; line < 12; ++line) visit(0, line, true);
  EXPECT_TRUE(history_.is_updated(kZone - 1));  // of four lines it is known
  EXPECT_FALSE(history_.is_updated(kZone));
  for (uint64_t line = kZone; line < kZone + 60; ++line) EXPECT_FALSE(visit(0, line, line % 2 == 0)) << line;
}

TEST_F(Updates, LinesThatAreOnlyReadAreForgottenAndCountAgainstTheirZone) {
  for (uint64_t line = 0; line < 12; ++line) visit(0, line, true);
  ASSERT_TRUE(history_.is_updated(100));
  // Only the loads in doubt show that the zone is used differently now, and each when eight lines have come behind it.
  uint64_t for_reading = 0;
  for (uint64_t line = 0; history_.is_updated(line) && line < kZone; ++line)
    for_reading += visit(0, line, false) ? 0 : 1;
  EXPECT_FALSE(history_.is_updated(100));
  EXPECT_LE(for_reading, 24u);
}

TEST_F(Updates, AStoreLongAfterTheLoadIsNoUpdate) {
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t line = 0; line < 20; ++line) EXPECT_FALSE(visit(0, line, false));
    // The last eight of them are remembered, and not the ones before.
    for (uint64_t line = 0; line < 12; ++line) history_.was_upgraded(0, line);
  }
  EXPECT_FALSE(history_.is_updated(0));
}

TEST_F(Updates, AThreadAnswersForItsOwnLoads) {
  for (uint64_t line = 0; line < 40; ++line) {
    history_.came_for_reading(0, line);
    history_.was_upgraded(1, line);
  }
  EXPECT_FALSE(history_.is_updated(0));
}

TEST_F(Updates, NowAndThenALineOfAZoneThatIsUpdatedComesForReading) {
  for (uint64_t line = 0; line < 12; ++line) visit(0, line, true);
  unsigned alone = 0;
  for (uint64_t line = 0; line < 160; ++line) alone += visit(0, line, true) ? 0 : 1;
  EXPECT_EQ(alone, 10u);
  EXPECT_TRUE(history_.is_updated(0));
}

}  // namespace
}  // namespace multigrain::dszoom
