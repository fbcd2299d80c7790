// These tests check what a processor notes about its locks, and about where things came from.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "status/node_status.h"

namespace multigrain {
namespace {

const void* site(uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

class HeldLocks : public testing::Test {
 protected:
  HeldLocks() { become_processor(*status_); }
  ~HeldLocks() override { t_processor_status = nullptr; }
  std::unique_ptr<ProcessorStatus> status_ = std::make_unique<ProcessorStatus>();
};

TEST_F(HeldLocks, AreLetGoInAnyOrder) {
  note_taken(11, site(1));
  note_taken(12, site(2));
  note_taken(13, site(3));
  EXPECT_TRUE(note_let_go(12));
  EXPECT_EQ(taken_at(11), 1u);
  EXPECT_EQ(taken_at(12), 0u);
  EXPECT_EQ(taken_at(13), 3u);
  EXPECT_FALSE(note_let_go(12));
  EXPECT_TRUE(note_let_go(11));
  EXPECT_TRUE(note_let_go(13));
  EXPECT_EQ(status_->held.load(), 0u);
  EXPECT_FALSE(note_let_go(13));
}

TEST_F(HeldLocks, BeyondTheRoomAreCountedAndNeverCalledForeign) {
  constexpr uint64_t kLocks = ProcessorStatus::kMaxHeld + 5;
  for (uint64_t lock = 1; lock <= kLocks; ++lock) note_taken(lock, site(lock));
  // The locks of which something is known come first, so that the table has holes.
  for (uint64_t lock = 1; lock <= kLocks; ++lock) {
    EXPECT_TRUE(note_let_go(lock)) << lock;
    EXPECT_EQ(taken_at(lock), 0u);
  }
  EXPECT_EQ(status_->held.load(), 0u);
  for (uint64_t lock = 1; lock <= kLocks; ++lock) note_taken(lock, site(lock));
  for (uint64_t lock = kLocks; lock >= 1; --lock) EXPECT_TRUE(note_let_go(lock)) << lock;
  EXPECT_EQ(status_->held.load(), 0u);
  EXPECT_FALSE(note_let_go(1));
}

TEST_F(HeldLocks, OfAThreadThatIsNoProcessorAreNotNoted) {
  std::thread([] {
    note_taken(1, site(1));
    EXPECT_EQ(taken_at(1), 0u);
    EXPECT_TRUE(note_let_go(1));
  }).join();
  EXPECT_EQ(status_->held.load(), 0u);
}

TEST_F(HeldLocks, KnowTheirStack) {
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  EXPECT_LE(status_->stack_low.load(), here);
  EXPECT_GT(status_->stack_high.load(), here);
}

TEST_F(HeldLocks, SleepsAreOddWhileTheyLast) {
  Nanoseconds since = 0;
  {
    const SleepScope asleep(since);
    EXPECT_EQ(status_->sleeps.load() % 2, 1u);
    EXPECT_EQ(status_->since.load(), since);
  }
  const Nanoseconds first = since;
  const SleepScope again(since);
  EXPECT_EQ(since, first);
  EXPECT_EQ(status_->sleeps.load(), 3u);
}

TEST(NodeStatusMemory, IsSharedWithItsLauncher) {
  const auto fd = create_node_status();
  ASSERT_TRUE(fd);
  const auto mine = map_node_status(*fd);
  ASSERT_TRUE(mine);
  setenv(kStatusVariable, std::to_string(dup(*fd)).c_str(), 1);
  ASSERT_TRUE(open_node_status());
  note_made(0x2000, 64, site(7));
  note_freed(0x2000, 8);
  const Origin* found = nullptr;
  for (const Origin& origin : (*mine)->origin)
    if (origin.key.load() == 0x2000) found = &origin;
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->size.load(), 64u);
  EXPECT_EQ(found->made.load(), 7u);
  EXPECT_EQ(note_freed(0x2000, 9), 8u);
  EXPECT_EQ((*mine)->pid, static_cast<uint32_t>(getpid()));
  forget_node_status();
  unmap_node_status(*mine);
  close(*fd);
}

TEST(NodeStatusMemory, ThatIsNoneIsRefused) {
  setenv(kStatusVariable, "0", 1);
  EXPECT_FALSE(open_node_status());
  setenv(kStatusVariable, "x", 1);
  EXPECT_FALSE(open_node_status());
  unsetenv(kStatusVariable);
}

}  // namespace
}  // namespace multigrain
