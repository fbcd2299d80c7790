#include "emulation/tournament.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace multigrain {
namespace {

using Key = std::optional<uint64_t>;

std::optional<unsigned> least(const std::vector<Key>& keys) {
  std::optional<unsigned> found;
  for (unsigned i = 0; i < keys.size(); ++i)
    if (keys[i] && (!found || *keys[i] < *keys[*found])) found = i;
  return found;
}

TEST(TournamentTest, AgreesWithALookAtAllPlayers) {
  std::mt19937 random(1);
  for (const size_t players : {1, 2, 3, 6, 64, 65, 1000, 17408}) {
    std::vector<uint32_t> tree(Tournament::words(players));
    Tournament tournament(tree, players);
    std::vector<Key> keys(players);
    EXPECT_EQ(tournament.first(), std::nullopt);
    for (int step = 0; step < 2000; ++step) {
      // Few players and few keys, so that many are equal, and there are times when nobody has one.
      const auto player = static_cast<unsigned>(random() % players);
      keys[player] = random() % 2 == 0 ? Key() : Key(random() % 8);
      tournament.changed(player, [&](unsigned i) { return keys[i]; });
      ASSERT_EQ(tournament.first(), least(keys)) << players << " players, step " << step;
    }
  }
}

TEST(TournamentTest, OfEqualKeysTheFirstPlayerWins) {
  std::vector<uint32_t> tree(Tournament::words(5));
  Tournament tournament(tree, 5);
  std::vector<Key> keys(5);
  const auto set = [&](unsigned player, Key key) {
    keys[player] = key;
    tournament.changed(player, [&](unsigned i) { return keys[i]; });
  };
  set(4, 7);
  EXPECT_EQ(tournament.first(), 4u);
  set(2, 7);
  EXPECT_EQ(tournament.first(), 2u);
  set(3, 7);
  EXPECT_EQ(tournament.first(), 2u);
  set(2, std::nullopt);
  EXPECT_EQ(tournament.first(), 3u);
  set(3, 8);
  EXPECT_EQ(tournament.first(), 4u);
}

// The tree lies in memory that all nodes map, and is not set up: zeroes are a tournament without keys, also where only some
// of its inner nodes were ever written.
TEST(TournamentTest, AWinnerWithoutAKeyLeavesNoTrace) {
  std::vector<uint32_t> tree(Tournament::words(8));
  Tournament tournament(tree, 8);
  std::vector<Key> keys(8);
  const auto set = [&](unsigned player, Key key) {
    keys[player] = key;
    tournament.changed(player, [&](unsigned i) { return keys[i]; });
  };
  set(0, 1);
  set(5, 2);
  set(0, std::nullopt);
  EXPECT_EQ(tournament.first(), 5u);
}

}  // namespace
}  // namespace multigrain
