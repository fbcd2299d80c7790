// Which of the program's globals this node has written since they were copied here: what a program that keeps its
// results in globals loses. For mgrun --check.
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

  // What they are now is what later changes are measured against. While no program code runs here. Async-signal-safe.
  void remember();
  // One sentence for each variable that was changed and that no earlier call has named. Ordinary code.
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
