// A machine's scenario gives these homes of pages, which never change: a number of a node for each page.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coherence/protocol.h"

namespace multigrain::exploring_driver {

class FixedHomes final : public HomeDirectory {
 public:
  // `homes` must outlive this object.
  explicit FixedHomes(const std::vector<unsigned>& homes) : homes_(homes) {}
  std::optional<NodeId> home_of(PageId page) override {
    if (page.value >= homes_.size()) return std::nullopt;
    return NodeId(static_cast<uint16_t>(homes_[page.value]));
  }
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }

 private:
  const std::vector<unsigned>& homes_;
};

}  // namespace multigrain::exploring_driver
