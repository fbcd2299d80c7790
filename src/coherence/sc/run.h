// A run consists of pages next to each other for which the same must be done. Each has its own transition, under its
// own lock; the actions that these ask for alike are carried out once, with one message, one system call, one copy.
//
// The locks of a run's pages are taken in ascending order, and held until their actions are done. So every page goes
// through what it would go through alone: a transition and its actions, and nothing in between. Other threads and nodes
// see two pages of a run as if one page's event came right after the other's.
#pragma once

#include <array>
#include <cstdint>

#include "coherence/sc/driver.h"

namespace multigrain::sc {

class Driver::Run {
 public:
  // `message` is the message about these pages that is being handled, or nullptr.
  Run(Driver& driver, const Message* message) : driver_(driver), message_(message) {}
  ~Run() { finish(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Returns an empty list, into which the next page's transition puts its actions.
  [[nodiscard]] Actions& next();
  // Adds that page. It is locked, and the run unlocks it: at once if its transition asked for nothing. Pages must be
  // added in ascending order. If its actions are not those of the pages before it, their actions are carried out now.
  void add(PageId page, Record& record);
  // Carries out the actions, and unlocks the pages.
  void finish();

 private:
  Driver& driver_;
  const Message* const message_;
  std::array<Actions, 2> lists_;  // those of the pages so far, and of the next page
  unsigned current_ = 0;
  PageId first_{0};
  uint32_t count_ = 0;
  // All pages so far were in this state before their actions.
  Right right_ = Right::kNone;
  bool is_prefetched_ = false;
  bool for_reader_ = false;
};

}  // namespace multigrain::sc
