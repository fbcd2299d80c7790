// Dispatch: hands the messages in the queues to their handlers, without the lock. At most one thread at a time, which
// holds the source's token, does so for one source. So handlers may send, and messages of one source are handled one
// after the other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/peer.h"
#include "fabric/ucx/receiver.h"

namespace multigrain::ucx {

class Dispatcher {
 public:
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};

  explicit Dispatcher(Parts& parts) : parts_(parts) {}

  void set_handler(MessageType type, MessageHandler handler, void* context);
  unsigned poll();
  void fetch(const Message& message, uint32_t from, std::span<std::byte> bytes);

  // Returns whether the calling thread is in a handler.
  [[nodiscard]] static bool handling();
  // Returns whether a queue may hold messages.
  [[nodiscard]] bool has_messages() const { return pending_.load(std::memory_order_seq_cst) != 0; }
  // Returns when there will be messages that no thread is handling: 0 now, kNever only after another thread wakes this
  // one.
  [[nodiscard]] Nanoseconds next_work() const;

  void enqueue(unsigned source, Incoming* in) MG_REQUIRES(inside_ucx);
  // Gives back the memory of messages that have been handled.
  void recycle() MG_REQUIRES(inside_ucx) {
    if (done_.load(std::memory_order_relaxed) != nullptr) recycle_all();
  }

 private:
  struct Handler {
    std::atomic<MessageHandler> function{nullptr};
    void* context = nullptr;
  };

  void recycle_all() MG_REQUIRES(inside_ucx);
  unsigned drain(unsigned source, unsigned limit);
  unsigned handle_queue(unsigned source, unsigned limit, bool& more);
  void announce_handled(unsigned source);
  void handle(unsigned source, Incoming& in);

  Parts& parts_;
  alignas(64) std::atomic<uint64_t> pending_{0};  // a bit a source: its queue may hold messages
  std::atomic<Incoming*> done_{nullptr};          // handled messages, to be recycled under the lock
  std::atomic<unsigned> first_source_{0};
  std::array<Handler, 256> handlers_{};
};

}  // namespace multigrain::ucx
