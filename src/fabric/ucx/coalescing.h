// Coalescing: small messages that are sent at about the same time travel as one, because over TCP an active message
// costs a system call, whatever its size.
//
// A peer has at most one coalescing buffer, under the lock. A message is in the buffer only while the thread that sent
// it is in its batch (Fabric::begin_batch). At the end of the batch the thread sends all buffers that it finds, which
// hold its own messages unless another thread has sent them before. A batch is a few dozen handlers (a handler waits
// for no message; at most it waits for the get of a slice that is too long to be carried, which UCX at the other node
// answers by itself), a prefetch, or a few pages of a release. A thread that is about to wait for credits sends the
// buffer first. A message that cannot be coalesced goes behind the buffer, and a message from a thread in no batch
// takes the buffer along. So no message is kept for longer than its own batch lasts, whatever other threads do, and a
// thread that waits, in the fault handler or elsewhere, keeps none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/sender.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

struct CoalescingBuffer : SendBlock {
  WireCoalesced wire;
  uint32_t bytes;
  std::array<std::byte, kMaxCoalescedBytes> data;
};

class Coalescing {
 public:
  explicit Coalescing(Parts& parts) : parts_(parts) {}

  void begin_batch();
  void end_batch();
  // Returns whether the calling thread is in a batch of this fabric.
  [[nodiscard]] bool in_batch() const;

  // While it exists, the calling thread is in no batch of this fabric, and the messages that it has sent are on their
  // way.
  class Suspended {
   public:
    explicit Suspended(Parts& parts);
    ~Suspended();
    Suspended(const Suspended&) = delete;
    Suspended& operator=(const Suspended&) = delete;

   private:
    const Coalescing* coalescing_ = nullptr;  // null: there was no batch
    unsigned depth_ = 0;
  };

  // Puts a small message, for which there are credits, into the peer's buffer, and sends the buffer if the thread is in
  // no batch.
  void append(unsigned to, const MessageHeader& header, std::span<const std::byte> payload) MG_REQUIRES(inside_ucx);
  void flush(unsigned to) MG_REQUIRES(inside_ucx);
  void flush_all() MG_REQUIRES(inside_ucx);

 private:
  void send_buffer(unsigned to) MG_REQUIRES(inside_ucx);

  Parts& parts_;
  std::atomic<uint64_t> filled_{0};  // a bit a peer: it has a buffer; written under the lock
};

}  // namespace multigrain::ucx
