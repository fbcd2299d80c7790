// The pages on which one fault acts: the page of the fault, and pages behind it that take the same right. If they are consecutive, they
// are fetched by one operation and get their rights by one call.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "coherence/hlrc/states.h"

namespace multigrain::hlrc {

// The pages, with what the transition of each has asked for. The driver holds their locks.
class FaultRun {
 public:
  static constexpr uint32_t kMostPages = 65;  // the page of the fault, and 64 behind it

  [[nodiscard]] PageId page(uint32_t i) const { return pages_[i]; }
  [[nodiscard]] uint32_t size() const { return size_; }
  [[nodiscard]] bool is_consecutive() const { return is_consecutive_; }
  // The pages from the first one on that get a right.
  [[nodiscard]] uint32_t granted() const { return granted_; }
  // The right that they get; nullopt if the page of the fault gets none.
  [[nodiscard]] std::optional<Verb> grant() const { return grant_; }
  // Returns whether the actions of page `i` contain this one, which is kLogFetch, kFetch, kMakeTwin or kQueue.
  [[nodiscard]] bool has(uint32_t i, Verb verb) const { return (parts_[i] & bit(verb)) != 0; }

  // Adds the next page. Returns false, and adds nothing, if the actions give it another right than the pages before it,
  // or none, though pages before it get one.
  bool add(PageId page, const Actions& actions) {
    const std::optional<Verb> grant = right_in(actions);
    if (size_ == kMostPages || granted_ != size_ || (size_ != 0 && grant != grant_)) return false;
    grant_ = grant;
    append(page, actions);
    granted_ = size_;
    return true;
  }
  // Adds a last page, which is fetched and gets no right.
  bool add_without_right(PageId page, const Actions& actions) {
    if (size_ == kMostPages || granted_ != size_) return false;
    append(page, actions);
    return true;
  }

 private:
  static constexpr uint8_t bit(Verb verb) { return static_cast<uint8_t>(1u << static_cast<unsigned>(verb)); }
  static_assert(static_cast<unsigned>(Verb::kLogFetch) < 4 && static_cast<unsigned>(Verb::kFetch) < 4 &&
                static_cast<unsigned>(Verb::kMakeTwin) < 4 && static_cast<unsigned>(Verb::kQueue) < 4);

  static std::optional<Verb> right_in(const Actions& actions) {
    for (const Verb verb : {Verb::kGrantRead, Verb::kGrantWrite, Verb::kUpgrade})
      if (actions.contains(verb)) return verb;
    return std::nullopt;
  }
  void append(PageId page, const Actions& actions) {
    uint8_t parts = 0;
    for (const Verb verb : {Verb::kLogFetch, Verb::kFetch, Verb::kMakeTwin, Verb::kQueue})
      if (actions.contains(verb)) parts |= bit(verb);
    is_consecutive_ = size_ == 0 || (is_consecutive_ && page.value == pages_[size_ - 1].value + 1);
    pages_[size_] = page;
    parts_[size_++] = parts;
  }

  bool is_consecutive_ = true;
  uint32_t size_ = 0;
  uint32_t granted_ = 0;
  std::optional<Verb> grant_;
  std::array<PageId, kMostPages> pages_;
  std::array<uint8_t, kMostPages> parts_;
};

}  // namespace multigrain::hlrc
