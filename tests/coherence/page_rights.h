// These are the rights of a node whose driver is explored. They do not change what memory allows: accesses do not
// fault, and the world looks at the rights itself.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string_view>

#include "memory/access_rights.h"

namespace multigrain::exploring_driver {

enum class Right : uint8_t { kNone, kRead, kWrite };

class PageRights : public AccessRights {
 public:
  void grant_read(PageId first, uint64_t count) override { set(first, count, Right::kRead); }
  void grant_write(PageId first, uint64_t count) override { set(first, count, Right::kWrite); }
  void upgrade(PageId first, uint64_t count) override { set(first, count, Right::kWrite); }
  void revoke_write(PageId first, uint64_t count) override { set(first, count, Right::kRead); }
  void revoke(PageId first, uint64_t count) override { set(first, count, Right::kNone); }
  [[nodiscard]] std::string_view name() const final { return "explored"; }
  [[nodiscard]] int fault_signal() const final { return 0; }
  [[nodiscard]] std::optional<Fault> decode(int, const siginfo_t*, const void*) const final { return {}; }

 protected:
  // Gives the node this right to the pages, in place of the one that it has.
  virtual void set(PageId first, uint64_t count, Right right) = 0;
};

}  // namespace multigrain::exploring_driver
