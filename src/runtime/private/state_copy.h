// Copies node 0's private writable state, the executable's globals and the private heap, to another node: what fork
// does for a PARMACS CREATE, between machines.
//
// The sender streams pieces of at most 64 KiB over the fabric and the receiver's handlers write them where they belong;
// pages of zeros are not sent. Between BEGIN and the acknowledgement no program code may run on the receiver: the
// runtime copies only onto nodes where no processor runs. On node 0 other processors may run; each variable arrives
// with a value that it had at some time during the copy, as with fork in a program with races.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/node_set.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"

namespace multigrain {

namespace message_type {
inline constexpr MessageType kStateBegin = 0x80;    // word: heap image bytes, executable fingerprint
inline constexpr MessageType kStateHeap = 0x81;     // word: offset in the heap image; payload: bytes
inline constexpr MessageType kStateGlobals = 0x82;  // word: address; payload: bytes
inline constexpr MessageType kStateZeros = 0x83;    // word: address and length of globals that are zero
inline constexpr MessageType kStateEnd = 0x84;      // word: pieces and payload bytes sent since BEGIN
inline constexpr MessageType kStateAck = 0x85;      // word: the same, as received
}  // namespace message_type

struct StateCopyTotals {
  uint64_t pieces = 0;
  uint64_t heap_bytes = 0;
  uint64_t global_bytes = 0;
};

// Each node has one. It registers its handlers on construction and must outlive the fabric's last message.
class StateCopy {
 public:
  // Finds the executable's globals and registers the handlers. Not async-signal-safe.
  StateCopy(Fabric& fabric, const WaitPolicy& policy);
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;

  // Called on node 0, not from a handler, by a thread that holds no lock: returns when the state is in place on `to`.
  // malloc of every other thread waits while the heap is read, so no thread may hold a runtime lock across malloc.
  // There is one call at a time (the caller holds its own lock; checked). Allocates nothing. Anything that makes no
  // sense to the receiver (another executable, a piece outside the globals or the heap, wrong totals) ends the run
  // there with a sentence.
  StateCopyTotals send_state(NodeId to);

 private:
  class Sender;

  void on_begin(const Message& message);
  void on_heap(const Message& message);
  void on_globals(const Message& message);
  void on_zeros(const Message& message);
  void on_end(const Message& message);
  void on_ack(const Message& message);
  void count(const Message& message);

  Fabric& fabric_;
  const WaitPolicy policy_;

  // The sender's state.
  static constexpr uint16_t kNobody = NodeSet::kCapacity;
  std::atomic<bool> sending_{false};
  std::atomic<uint16_t> receiver_{kNobody};  // the node that has a copy to acknowledge
  EventCount acknowledged_;
  std::array<std::atomic<uint64_t>, NodeSet::kCapacity> acks_{};  // ACKs that each node has sent

  // The receiver's state. Messages of one sender are handled one after the other, so it needs no lock.
  bool receiving_ = false;
  uint64_t pieces_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace multigrain
