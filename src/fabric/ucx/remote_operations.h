// Operations on other nodes' memory: puts, gets and atomics, and the table of operations under way.
//
// A put is complete when it is visible at the target: its endpoint has been flushed. UCX carries out the atomics, in
// its mode "cpu": the target's processors do them, so that the target's own atomic instructions agree with them.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/peer.h"

namespace multigrain::ucx {

class RemoteOperations;
class UcxLock;
struct Parts;

// A remote operation under way. Bits 1.. of `word` are its generation, which grows when the operation ends; bit 0 says
// that a thread sleeps until it ends.
struct Operation {
  std::atomic<uint32_t> word{0};
  uint32_t parts = 0;  // requests that UCX has yet to complete
  uint16_t next_free = 0;
  uint16_t awaits_node = 0;  // a scattered put as a message awaits the answer of this node (1 + its number)
  RemoteOperations* operations = nullptr;
};

class RemoteOperations {
 public:
  explicit RemoteOperations(Parts& parts);

  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes);
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes);
  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes);
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes);
  uint64_t load_own(SegmentId segment, uint64_t offset);
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value);
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend);
  Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old);
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected, uint64_t desired);

  [[nodiscard]] bool is_complete(Completion completion) const;
  void wait(Completion completion);

  // Takes a free operation, which has one part; end_part() ends it.
  Completion begin(UcxLock& lock, Operation*& operation) MG_REQUIRES(inside_ucx);
  void end_part(Operation& operation) MG_REQUIRES(inside_ucx);
  // Returns the operation of a completion that another node names, if it is under way and awaits that node; or null.
  Operation* awaiting(unsigned node, uint64_t completion) MG_REQUIRES(inside_ucx);
  // Ends the operations that await a node that has failed. UCX ends all other operations to that node with an error.
  void peer_failed(unsigned node) MG_REQUIRES(inside_ucx);
  // Runs `requests(peer, parameters, take)`, which passes each of UCX's requests that make up the operation to `take`.
  // The caller does not hold the lock. (start_requests.h)
  template <typename Requests>
  Completion start_requests(NodeId node, Requests&& requests);

 private:
  static constexpr unsigned kOperations = 1024;

  template <typename Start>
  Completion start_operation(NodeId node, SegmentId segment, uint64_t offset, uint64_t length, Start&& start);
  template <typename Start>
  void carry_out(Start&& start);
  bool wait_polling(Completion completion);
  void wait_asleep(Completion completion);
  uint64_t atomic(NodeId at, SegmentId segment, uint64_t offset, ucp_atomic_op_t what, uint64_t operand,
                  uint64_t result);

  Parts& parts_;
  std::array<Operation, kOperations> operations_;
  uint16_t free_ MG_GUARDED_BY(inside_ucx) = 0;  // 1 + index; 0: none
  uint64_t discarded_ = 0;                       // old values of words that were put; never read
};

}  // namespace multigrain::ucx
