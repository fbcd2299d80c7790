// Which block a report names for an address (report/origins.h).
#include "report/origins.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace multigrain {
namespace {

class Blocks : public testing::Test {
 protected:
  // The node has allocated a block, or freed it.
  void made(unsigned node, uint64_t block, uint64_t size) {
    Origin& origin = new_origin(node, block);
    origin.size = size;
    origin.made = 0x400000 + now_;
    origin.when = now_;
  }
  void freed(unsigned node, uint64_t block) {
    for (Origin& origin : status_[node]->origin)
      if (origin.key == block) {
        origin.freed = 0x500000;
        origin.when = ++now_;
        return;
      }
    Origin& origin = new_origin(node, block);
    origin.freed = 0x500000;
    origin.when = now_;
  }
  [[nodiscard]] std::optional<KnownOrigin> block_at(uint64_t address) const {
    const std::array<const NodeStatus*, 2> nodes{status_[0].get(), status_[1].get()};
    return find_block(nodes, address);
  }
  [[nodiscard]] uint64_t key_at(uint64_t address) const {
    const auto block = block_at(address);
    return block ? block->key : 0;
  }

 private:
  Origin& new_origin(unsigned node, uint64_t key) {
    ++now_;
    for (Origin& origin : status_[node]->origin)
      if (origin.key == 0) {
        origin.key = key;
        return origin;
      }
    ADD_FAILURE() << "there is no room";
    return status_[node]->origin[0];
  }

  uint64_t now_ = 0;
  std::array<std::unique_ptr<NodeStatus>, 2> status_{std::make_unique<NodeStatus>(), std::make_unique<NodeStatus>()};
};

TEST_F(Blocks, AnAddressInsideIsTheBlocks) {
  made(0, 0x1000, 64);
  made(1, 0x2000, 4096);
  EXPECT_EQ(key_at(0x1000), 0x1000u);
  EXPECT_EQ(key_at(0x103f), 0x1000u);
  EXPECT_EQ(key_at(0x2fff), 0x2000u);
  EXPECT_FALSE(block_at(0xfff));
}

TEST_F(Blocks, BehindAllBlocksItIsTheNearest) {
  made(0, 0x1000, 64);
  EXPECT_EQ(key_at(0x1040), 0x1000u);
}

// Small blocks, then a large one in their memory: an address behind the small ones' end, and one in what was a small one.
TEST_F(Blocks, ABlockInUseComesBeforeThoseThatWereFreedInItsMemory) {
  made(0, 0x1100, 64);
  freed(1, 0x1100);
  made(1, 0x1000, 4096);
  EXPECT_EQ(key_at(0x1800), 0x1000u);
  EXPECT_EQ(key_at(0x1110), 0x1000u);
  EXPECT_EQ(block_at(0x1110)->freed, 0u);
}

TEST_F(Blocks, OfFreedBlocksItIsTheLatest) {
  made(0, 0x1000, 4096);
  freed(0, 0x1000);
  made(0, 0x1100, 64);
  freed(1, 0x1100);
  EXPECT_EQ(key_at(0x1110), 0x1100u);
  EXPECT_NE(block_at(0x1110)->freed, 0u);
  EXPECT_EQ(key_at(0x1200), 0x1000u);
}

}  // namespace
}  // namespace multigrain
