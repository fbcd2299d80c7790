// A tournament finds the least of many keys when one of them changes at a time, in a time that grows with the logarithm of
// their number.
//
// It is a binary tree over the players. An inner node has the winner of its subtree: the player with the least key, and of
// equal ones the one with the lowest number, among those that have a key. The tree is in the caller's memory, which all
// nodes may map, and has only numbers of players; their keys stay where they are. Memory that is all zero is a tournament in
// which no player has a key.
//
// Invariant: between calls, each inner node has the winner of its subtree, if changed() was called for each player after its
// key has changed. The caller's lock guards both.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"

namespace multigrain {

class Tournament {
 public:
  // Returns how many words a tournament of so many players, at least one, has.
  static constexpr size_t words(size_t players) { return std::bit_ceil(players); }

  Tournament() = default;
  // `tree` has words(players) words.
  Tournament(std::span<uint32_t> tree, size_t players) : tree_(tree), players_(players) {
    MG_CHECK(tree.size() >= words(players), tree.size(), players);
  }

  // The player's key has changed. `key_of(player)` returns a player's key, or nullopt if it has none.
  template <typename KeyOf>
  void changed(unsigned player, KeyOf&& key_of) {
    MG_CHECK(player < players_, player);
    const size_t leaves = words(players_);
    for (size_t node = (leaves + player) / 2; node != 0; node /= 2) {
      const uint32_t winner = better(entrant(2 * node, leaves, key_of), entrant(2 * node + 1, leaves, key_of), key_of);
      const uint32_t before = tree_[node];
      tree_[node] = winner;
      // What is above has not changed if the winner is the same player with the same key.
      if (winner == before && winner != player + 1) return;
    }
    if (leaves == 1) tree_[0] = key_of(player) ? 1 : 0;
  }

  // Returns the player that wins; nullopt if none has a key.
  [[nodiscard]] std::optional<unsigned> first() const {
    const uint32_t winner = tree_[players_ == 1 ? 0 : 1];
    return winner == 0 ? std::nullopt : std::optional<unsigned>(winner - 1);
  }

 private:
  // Returns who comes from a node of the tree, a leaf or an inner one: the number of the player and one, or 0.
  template <typename KeyOf>
  [[nodiscard]] uint32_t entrant(size_t node, size_t leaves, KeyOf&& key_of) const {
    if (node < leaves) return tree_[node];
    const auto player = static_cast<uint32_t>(node - leaves);
    return player < players_ && key_of(player) ? player + 1 : 0;
  }
  template <typename KeyOf>
  [[nodiscard]] static uint32_t better(uint32_t left, uint32_t right, KeyOf&& key_of) {
    if (left == 0 || right == 0) return left | right;
    return *key_of(right - 1) < *key_of(left - 1) ? right : left;
  }

  std::span<uint32_t> tree_;  // node 1 is the root, and the children of node i are 2i and 2i + 1; one player has word 0
  size_t players_ = 0;
};

}  // namespace multigrain
