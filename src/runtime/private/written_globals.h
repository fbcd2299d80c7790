// Finds out which of the program's globals this node has written since they were copied here, for mgrun --check: a
// program that keeps its results in globals loses them.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace multigrain {

class WrittenGlobals {
 public:
  // Reserves room for a copy of program_globals().
  static Result<WrittenGlobals> create(NodeId node);
  WrittenGlobals(WrittenGlobals&& other) noexcept;
  WrittenGlobals& operator=(WrittenGlobals&&) = delete;
  ~WrittenGlobals();

  // From now on changes are measured against what the globals are now. Called while no program code runs on this node.
  // Async-signal-safe.
  void remember();
  // Returns one sentence for each variable that was changed and that no earlier call has named. For ordinary code.
  std::vector<std::string> news();

 private:
  WrittenGlobals(NodeId node, std::byte* copy, size_t size) : node_(node), copy_(copy), size_(size) {}

  const NodeId node_;
  std::byte* copy_;  // the globals' ranges, one behind the other
  const size_t size_;
  bool remembers_ = false;
  std::set<std::string> named_;
};

}  // namespace multigrain
