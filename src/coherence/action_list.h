// A transition of a protocol returns its actions in such a list, in order. Transitions run in fault handlers, so the
// list has a fixed capacity and never allocates.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "base/error.h"

namespace multigrain {

// `capacity` is the length of the protocol's longest transition. More actions than that are a broken invariant.
template <typename Action, size_t capacity>
class ActionList {
 public:
  // Leaves the items uninitialised, because they are kilobytes of which most transitions use a tenth.
  ActionList() {}  // NOLINT(modernize-use-equals-default): a defaulted one would be deleted
  ActionList(const ActionList&)
    requires std::is_trivially_copyable_v<Action>
  = default;
  ActionList& operator=(const ActionList&)
    requires std::is_trivially_copyable_v<Action>
  = default;
  ~ActionList()
    requires std::is_trivially_destructible_v<Action>
  = default;
  ~ActionList() { clear(); }
  void clear() {
    std::destroy_n(items_.data(), size_);
    size_ = 0;
  }
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
