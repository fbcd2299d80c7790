// The actions that one transition of a protocol returns, in order.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/error.h"

namespace multigrain {

// Bounded: `capacity` is what the protocol's longest transition returns. More than that is a broken invariant.
template <typename Action, size_t capacity>
class ActionList {
 public:
  // Leaves the items as they are: kilobytes that most transitions use a tenth of.
  ActionList() {}  // NOLINT(modernize-use-equals-default): a defaulted one would be deleted
  void clear() { size_ = 0; }
  void push(const Action& action) {
    MG_CHECK(size_ < capacity);
    std::construct_at(&items_[size_], action);
    ++size_;
  }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool contains(const Action& action) const {
    for (const Action& each : *this)
      if (each == action) return true;
    return false;
  }
  [[nodiscard]] const Action& operator[](size_t i) const { return items_[i]; }
  [[nodiscard]] const Action* begin() const { return items_.data(); }
  [[nodiscard]] const Action* end() const { return items_.data() + size_; }

 private:
  union {
    std::array<Action, capacity> items_;
  };
  size_t size_ = 0;
};

}  // namespace multigrain
