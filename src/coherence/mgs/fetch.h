// The pages that a thread reads by itself at one time (Driver::fetch), and what came of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/config.h"
#include "coherence/mgs/page_words.h"
#include "fabric/fabric.h"

namespace multigrain::mgs {

class Fetch {
 public:
  // There is room for the page of a fault, and for those that are read ahead of it.
  static constexpr uint32_t kMostPages = 1 + Config::kMaxPrefetch;

  // Leaves the parts uninitialised, because most faults use one of them.
  Fetch() {}  // NOLINT(modernize-use-equals-default): a defaulted one would be deleted

  // The page has entered Phase::kFetching.
  void add(PageId page, NodeId home) {
    MG_CHECK(size_ < kMostPages);
    std::construct_at(&parts_[size_], Part{.page = page, .home = home, .word = 0, .added = {}});
    ++size_;
  }
  [[nodiscard]] uint32_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

  struct Part {
    PageId page;
    NodeId home;
    uint64_t word;     // the home's word as this node found it, when `added` is complete
    Completion added;  // the atomic by which this node adds its bit

    [[nodiscard]] bool is_open() const { return PageWord(word, home).is_open(); }
  };
  [[nodiscard]] Part& operator[](uint32_t i) { return parts_[i]; }
  [[nodiscard]] const Part& operator[](uint32_t i) const { return parts_[i]; }
  // Returns where the run of `first` ends: consecutive pages of one home, with words that are alike.
  [[nodiscard]] uint32_t end_of_run(uint32_t first) const {
    uint32_t end = first + 1;
    while (end < size_ && parts_[end].page.value == parts_[end - 1].page.value + 1 &&
           parts_[end].home == parts_[first].home && parts_[end].is_open() == parts_[first].is_open())
      ++end;
    return end;
  }

 private:
  uint32_t size_ = 0;
  union {
    std::array<Part, kMostPages> parts_;
  };
};

}  // namespace multigrain::mgs
