// A set of sources (or of destinations) that threads of several processes change by atomics: the pending bits of a doorbell.
//
// On a machine of up to 64 nodes it is one word, with a bit for each source. On a larger one each 64 sources have a word of
// their own, a *group*, and the first word is the *summary*: a bit for each group. Who looks for sources reads the summary,
// and only the groups that it names, so an empty set is one word that is 0, whatever the machine. Bits of the summary above
// the groups belong to the user of the set.
//
// All operations are sequentially consistent. On a large machine
//
//   insert(s)   I1 sets the source's bit in its group; I2 sets the group's bit in the summary, unless it sees that it is set
//   erase(s)    E1 clears the source's bit; if the group is empty then: E2 clears the group's bit in the summary; E3 reads
//               the group, and if it is not empty, E4 sets the group's bit again; E5 reads the group, and if that is empty
//               by now, begins again at E2
//
// (G1) Whenever a group is not empty, its bit in the summary is set, or some thread is between I1 and I2, or between E2
//      and the end of its erase().
//      Proof: take the last time that the group's bit in the summary was cleared, by E2 of a thread T, after a source's bit
//      was set by I1 of a thread X which has not been cleared since; if there is none, then X's I2 has seen the bit set or
//      set it, or is still to come. If I1 comes before T's E3, T finds the group not empty there, and sets the bit (E4), or
//      is between. If I1 comes after E3, then X's I2 comes after E2, so X does not see the bit as it was before E2: it sets
//      it, or sees that it was set since, and no later E2 has cleared it.
// (G2) A group's bit that is set while the group is empty belongs to a thread that is between two of these steps: E4 is
//      followed by E5, and the erase() that empties a group clears the bit after that.
// (G3) So a thread that finds the summary without the group's bit while a source's bit is set can leave the source to
//      another one, which is in the middle of insert() or erase(), if that one looks at the group, or at whoever looks at
//      the summary, when it is done. doorbell.h says that it does (S3 comes after I2, and P6 after E4).
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/node_set.h"

namespace multigrain {

// The words of the groups; zero at first. The summary is elsewhere.
using GroupWords = std::array<std::atomic<uint64_t>, NodeSet::kCapacity / 64>;

class SourceGroups {
 public:
  static constexpr unsigned kPerGroup = 64;

  // Of a machine of so many nodes. Both outlive this object, which is only a view of them.
  SourceGroups(std::atomic<uint64_t>& summary, GroupWords& groups, unsigned nodes)
      : summary_(summary), groups_(nodes <= kPerGroup ? nullptr : groups.data()) {}

  [[nodiscard]] bool contains(unsigned source) const {
    return (word_of(source).load(std::memory_order_seq_cst) & bit(source)) != 0;
  }
  void insert(unsigned source) const {
    word_of(source).fetch_or(bit(source), std::memory_order_seq_cst);
    if (groups_ == nullptr) return;
    const uint64_t group = group_bit(source);
    if ((summary_.load(std::memory_order_seq_cst) & group) == 0) summary_.fetch_or(group, std::memory_order_seq_cst);
  }
  void erase(unsigned source) const {
    const uint64_t before = word_of(source).fetch_and(~bit(source), std::memory_order_seq_cst);
    if (groups_ == nullptr || (before & ~bit(source)) != 0) return;
    const uint64_t group = group_bit(source);
    do {
      summary_.fetch_and(~group, std::memory_order_seq_cst);
      if (word_of(source).load(std::memory_order_seq_cst) == 0) return;
      summary_.fetch_or(group, std::memory_order_seq_cst);
    } while (word_of(source).load(std::memory_order_seq_cst) == 0);
  }
  // Returns whether the source's bit is set, or, on a large machine, that of any source of its group.
  [[nodiscard]] bool has_any_of_group(unsigned source) const {
    const uint64_t word = word_of(source).load(std::memory_order_seq_cst);
    return groups_ == nullptr ? (word & bit(source)) != 0 : word != 0;
  }

  // Calls visit(source) for the sources whose bits are found set, from `first` on and then from 0 on, until it returns
  // false. Each group's word is read once. Bits of `ignored`, which is of a machine of one word, are left out.
  template <typename Visit>
  void for_each_from(unsigned first, uint64_t ignored, Visit&& visit) const {
    const uint64_t summary = summary_.load(std::memory_order_seq_cst);
    if (groups_ == nullptr) {
      for_each_of(summary & ~ignored, first % kPerGroup, 0, visit);
      return;
    }
    constexpr uint64_t kGroups = (uint64_t{1} << std::tuple_size_v<GroupWords>)-1;
    const unsigned first_group = first / kPerGroup % std::tuple_size_v<GroupWords>;
    // The group of `first` comes first, from there on, and its other sources come last.
    bool goes_on = for_each_of_group(summary, first_group, ~uint64_t{0} << (first % kPerGroup), visit);
    const uint64_t above = kGroups << first_group & kGroups & ~(uint64_t{1} << first_group);
    for (const uint64_t part : {above, kGroups & ~above & ~(uint64_t{1} << first_group)})
      for (uint64_t rest = summary & part; rest != 0 && goes_on; rest &= rest - 1)
        goes_on = for_each_of_group(summary, static_cast<unsigned>(std::countr_zero(rest)), ~uint64_t{0}, visit);
    if (goes_on) for_each_of_group(summary, first_group, ~(~uint64_t{0} << (first % kPerGroup)), visit);
  }

 private:
  static constexpr uint64_t bit(unsigned source) { return uint64_t{1} << (source % kPerGroup); }
  static constexpr uint64_t group_bit(unsigned source) { return uint64_t{1} << (source / kPerGroup); }
  [[nodiscard]] std::atomic<uint64_t>& word_of(unsigned source) const {
    return groups_ == nullptr ? summary_ : groups_[source / kPerGroup];
  }
  template <typename Visit>
  static bool for_each_of(uint64_t bits, unsigned first, unsigned base, Visit&& visit) {
    for (uint64_t rest = std::rotr(bits, static_cast<int>(first)); rest != 0; rest &= rest - 1)
      if (!visit(base + (first + static_cast<unsigned>(std::countr_zero(rest))) % kPerGroup)) return false;
    return true;
  }
  template <typename Visit>
  bool for_each_of_group(uint64_t summary, unsigned group, uint64_t mask, Visit&& visit) const {
    if ((summary >> group & 1) == 0) return true;
    return for_each_of(groups_[group].load(std::memory_order_seq_cst) & mask, 0, group * kPerGroup, visit);
  }

  std::atomic<uint64_t>& summary_;
  std::atomic<uint64_t>* groups_;  // nullptr: the summary has the sources' bits
};

}  // namespace multigrain
