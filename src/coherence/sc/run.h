// Pages next to each other to which the same happens: each has its own transition, under its own lock, and what these
// ask for alike is done once, with one message, one system call, one copy.
//
// The locks of a run's pages are taken in ascending order, and held until their actions are done. So every page sees what it
// would if it were alone: a transition and its actions, and nothing in between. What others see of two pages of
// a run is what they would see if one page's turn came right after the other's.
#pragma once

#include <array>
#include <cstdint>

#include "coherence/sc/driver.h"

namespace multigrain::sc {

class Driver::Run {
 public:
  // `message`: the one that is being handled, about these pages; or none.
  Run(Driver& driver, const Message* message) : driver_(driver), message_(message) {}
  ~Run() { finish(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Where the next page's transition puts its actions; empty.
  [[nodiscard]] Actions& next();
  // That page, which is locked, and which the run unlocks: at once if nothing is asked for. In ascending order. What the pages
  // before it have asked for is done now if it is something else.
  void add(PageId page, Record& record);
  // What is asked for is done, and the pages are unlocked.
  void finish();

 private:
  Driver& driver_;
  const Message* const message_;
  std::array<Actions, 2> lists_;  // of the pages so far, and of the next one
  unsigned current_ = 0;
  PageId first_{0};
  uint32_t count_ = 0;
  // Of the pages so far, before their actions.
  Right right_ = Right::kNone;
  bool is_prefetched_ = false;
  bool for_reader_ = false;
};

}  // namespace multigrain::sc
