// The pure part of a rendezvous (rendezvous.h): what the word says that all processors of the run share, and how it changes.
//
// Processors that come by one after the other agree whether all of them will take part. Each that is willing adds itself to
// the word, and then waits; one that has waited too long calls it off for all. So:
//
//  R1  The word says a round, and how many processors are willing to meet in it. A willing processor stays where it is until the
//      word says that all are willing, or another round.
//  R2  Once all are willing, the word stays until all of them have met. Before that a round is called off as a whole. So of the
//      processors that were willing in a round, all meet in it, or none.
#pragma once

#include <cstdint>
#include <optional>

namespace multigrain {

class RendezvousWord {
 public:
  constexpr explicit RendezvousWord(uint64_t word) : word_(word) {}
  [[nodiscard]] constexpr uint64_t round() const { return word_ >> kWillingBits; }
  [[nodiscard]] constexpr uint64_t willing() const { return word_ & ((uint64_t{1} << kWillingBits) - 1); }

  // Each of these returns what the word becomes, of a run of so many processors; nullopt if it must not change.

  // A processor is willing to meet in the round.
  [[nodiscard]] constexpr std::optional<uint64_t> add(uint64_t in_round, uint64_t all) const {
    if (round() != in_round || willing() == all) return std::nullopt;
    return word_ + 1;
  }
  // A processor calls the round off.
  [[nodiscard]] constexpr std::optional<uint64_t> call_off(uint64_t in_round, uint64_t all) const {
    if (round() != in_round || willing() == all) return std::nullopt;
    return next();
  }
  // All have met in the round.
  [[nodiscard]] constexpr std::optional<uint64_t> end(uint64_t in_round, uint64_t all) const {
    if (round() != in_round || willing() != all) return std::nullopt;
    return next();
  }

 private:
  static constexpr unsigned kWillingBits = 16;
  [[nodiscard]] constexpr uint64_t next() const { return (round() + 1) << kWillingBits; }

  uint64_t word_;
};

}  // namespace multigrain
