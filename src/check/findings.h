// What a run with --check has found, told as it is found: each finding is one report on standard error, in the words of the
// node that found it, with lines where the program has debug information. Node 0 counts the findings of all nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "fabric/fabric.h"
#include "races/module.h"
#include "status/node_status.h"

namespace multigrain::check {

class Findings {
 public:
  // Beyond so many a node only counts.
  static constexpr uint64_t kMostTold = 100;

  // `type` is the message that tells node 0 of a finding of another node. `module` names places.
  Findings(Fabric& fabric, MessageType type, const races::Module& module);

  // Tells the user, and counts. `text` is one or several lines without the program's name at their head. For ordinary code.
  void add(std::string_view text);
  // Counts what the user has been told already.
  void count();

  // Name places. For ordinary code.
  std::string line_of(uint64_t site);  // "work at a.c:7"
  std::string block_of(
      uint64_t address);  // "byte 16 of a block of 4096 bytes at 0x..., allocated by node 0 at a.c:7", or nothing
  // "lock 3", with where it was created if this node did that.
  std::string lock_name(uint64_t lock);

  // Returns whether any node has found something; on node 0, once the other nodes' reports are in.
  [[nodiscard]] bool any() const { return found_.load() != 0; }
  // On node 0, at the end: says how many findings there were, and of how many pairs of locks there was no room to note the
  // order.
  void finish(uint64_t lost_orders);

 private:
  races::Places& places() MG_REQUIRES(lock_);

  Fabric& fabric_;
  const MessageType type_;
  const races::Module& module_;
  Mutex lock_;
  std::unique_ptr<races::Places> places_ MG_GUARDED_BY(lock_);
  uint64_t told_ MG_GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> found_{0};
};

}  // namespace multigrain::check
