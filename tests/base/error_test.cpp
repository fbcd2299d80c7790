#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace multigrain {
namespace {

TEST(ErrorTest, CarriesItsSentence) {
  const Result<int> result = fail("page {} of {}", 3, "region");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "page 3 of region");
  const Status status = fail_errno(ENOMEM, "cannot map frames");
  EXPECT_EQ(status.error().message, "cannot map frames: Cannot allocate memory");
}

TEST(ErrorDeathTest, PanicNamesTheNodeAndTheNumbers) {
  EXPECT_DEATH(
      {
        set_panic_node(7);
        panic("bad page", 18446744073709551614u, 0);
      },
      "^multigrain: node 7: bad page 18446744073709551614 0\n");
}

TEST(ErrorDeathTest, CheckNamesTheConditionThatBroke) {
  const int pages = 3;
  MG_CHECK(pages == 3);
  EXPECT_DEATH(MG_CHECK(pages == 4, 5), "invariant broken: pages == 4 \\(.*error_test.cpp\\) 5\n");
}

TEST(ErrorDeathTest, DieExitsWithItsStatus) {
  EXPECT_EXIT(die(2, "no such node", 9), ::testing::ExitedWithCode(2), "multigrain: node 0: no such node 9\n");
}

TEST(ErrorDeathTest, ALongSentenceIsCutNotOverrun) {
  const std::string sentence(2000, 'x');
  EXPECT_EXIT(die(3, sentence.c_str(), 1, 2), ::testing::ExitedWithCode(3), "node 0: x{400}");
}

}  // namespace
}  // namespace multigrain
