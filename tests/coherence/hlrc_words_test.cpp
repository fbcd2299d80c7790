// Where the entries of HLRC's fetch logs are in a node's words.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coherence/hlrc/words.h"

namespace multigrain::words {
namespace {

constexpr unsigned kMachines[] = {1, 2, 3, 16, 63, 64, 65, 256, 1000, 1024};

TEST(FetchLogWords, EveryEntryOfEveryRingHasAWordOfItsOwn) {
  for (const unsigned nodes : kMachines) {
    const uint64_t count = fetch_log_count(nodes);
    std::vector<bool> taken(kFetchWords.bytes / sizeof(uint64_t));
    for (uint64_t node = 0; node < nodes; ++node) {
      for (uint64_t entry = 0; entry < count; ++entry) {
        const uint64_t word = fetch_log_word(nodes, node, entry);
        ASSERT_GE(word, kFetchWords.begin);
        ASSERT_LT(word, kFetchWords.end());
        ASSERT_EQ(word % sizeof(uint64_t), 0u);
        const uint64_t index = (word - kFetchWords.begin) / sizeof(uint64_t);
        ASSERT_FALSE(taken[index]) << nodes << " nodes: entry " << entry << " of node " << node;
        taken[index] = true;
        const FetchLogPlace place = fetch_log_place(nodes, word);
        ASSERT_EQ(place.node, node);
        ASSERT_EQ(place.entry, entry);
      }
    }
  }
}

TEST(FetchLogWords, ARingGoesRound) {
  for (const unsigned nodes : kMachines)
    for (const uint64_t position : {uint64_t{0}, uint64_t{7}, uint64_t{8}, uint64_t{1023}})
      EXPECT_EQ(fetch_log_word(nodes, nodes - 1, position + 5 * fetch_log_count(nodes)),
                fetch_log_word(nodes, nodes - 1, position));
}

// A home looks at the next entry of every node's ring, and each page of shared memory that is looked at is one that the host must have.
TEST(FetchLogWords, TheFirstEntriesOfAllRingsTakeALineEach) {
  for (const unsigned nodes : kMachines) {
    uint64_t behind = 0;
    for (uint64_t node = 0; node < nodes; ++node)
      for (uint64_t entry = 0; entry < 8; ++entry)
        behind = std::max(behind, fetch_log_word(nodes, node, entry) + sizeof(uint64_t));
    EXPECT_EQ(behind - kFetchLog, nodes * uint64_t{64});
  }
  EXPECT_EQ(kFetchLog % 64, 0u) << "a line of nodes' entries is one of the hardware's";
}

}  // namespace
}  // namespace multigrain::words
