// A node's losses (coherence/window_places.h).
#include "coherence/window_places.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <set>
#include <span>

namespace multigrain {
namespace {

class WindowPlacesTest : public testing::Test {
 protected:
  void SetUp() override {
    memory_ = mmap(nullptr, words::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override { munmap(memory_, words::kBytes); }
  [[nodiscard]] std::span<std::byte> segment() const { return {static_cast<std::byte*>(memory_), words::kBytes}; }

  void* memory_ = nullptr;
};

TEST_F(WindowPlacesTest, ForgettingReplacesLossesThatSaySomethingIsRemembered) {
  WindowPlaces places(NodeId(3), segment());
  std::atomic<uint64_t>& losses = places.losses();
  uint64_t at_word = 0;
  std::set<uint64_t> before;
  for (unsigned i = 0; i < 10; ++i) {
    before.insert(losses.load());
    losses.fetch_or(MG_FINE_REMEMBERED);
    places.forget();
    EXPECT_EQ(losses.load() & 3, 0u);
    EXPECT_EQ(before.count(losses.load()), 0u);
  }
  // It is where requesters look, and no place of a window.
  std::memcpy(&at_word, segment().data() + words::kLosses, sizeof at_word);
  EXPECT_EQ(at_word, losses.load());
  EXPECT_GE(places.take(), reinterpret_cast<uint64_t*>(segment().data() + words::kLosses) + 1);
}

TEST_F(WindowPlacesTest, ForgettingLeavesLossesThatSayNothingIs) {
  WindowPlaces places(NodeId(0), segment());
  places.forget();
  EXPECT_EQ(places.losses().load(), 0u);
  places.losses().store(MG_FINE_REMEMBERED);
  places.forget();
  const uint64_t losses = places.losses().load();
  places.forget();
  EXPECT_EQ(places.losses().load(), losses);
}

TEST(NewLosses, AreNeverTheSame) {
  std::set<uint64_t> all = {0};  // what they are at first
  for (uint16_t by = 0; by < MG_FINE_MAX_NODES; ++by)
    for (unsigned i = 0; i < 10; ++i) {
      const uint64_t losses = new_losses(NodeId(by));
      EXPECT_EQ(losses & 3, 0u);
      // Nodes do not know of each other's.
      EXPECT_EQ(losses >> 48, by + 1u);
      EXPECT_TRUE(all.insert(losses).second);
    }
}

}  // namespace
}  // namespace multigrain
