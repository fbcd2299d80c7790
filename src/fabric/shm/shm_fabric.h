// The fabric for nodes that are processes of one machine: they map the same memory, so a remote operation is a copy or
// an atomic instruction, and a message is a record in a ring (ring.h) plus a bit in a doorbell (doorbell.h).
//
// This is how one machine stands in for a cluster (virtual clustering, [MGS] section 4; [GeNIMA]). Wrap
// it in a ModelledFabric to charge what a network would cost.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_object.h"
#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/shm/job_memory.h"
#include "fabric/shm/overflow.h"
#include "fabric/shm/peer_mappings.h"
#include "fabric/shm/ring.h"

namespace multigrain {

class ShmFabric final : public Fabric, public MappedObject {
 public:
  // The exit status of a node that stops because another one died.
  static constexpr int kAbortedStatus = 3;

  // Joins the job as node `self`. `job_fd` is mapped and may be closed afterwards. `frames_fds` has the frames memfd of
  // each node (they must stay open) or is empty: then no frames but those exported here can be accessed.
  // `region_size`: how many bytes of the frames there are. Errors: not a job memory; `self` not in it or attached
  // already; descriptors that do not fit.
  static Result<std::unique_ptr<ShmFabric>> attach(int job_fd, NodeId self, const std::vector<int>& frames_fds,
                                                   uint64_t region_size);
  // The same on a mapping that exists, which the fabric takes over (or borrows: JobMemory::borrow). Several nodes may
  // attach in one process.
  static Result<std::unique_ptr<ShmFabric>> attach(JobMemory job, NodeId self, const std::vector<int>& frames_fds,
                                                   uint64_t region_size);
  ~ShmFabric() override;

  // Accesses by this node to its own segment go to `base` from now on, rather than through a mapping: for kFrames, the
  // alias of the frames. Before other threads use the fabric. `base` must map the same memory that the others see.
  void export_segment(SegmentId segment, std::byte* base, uint64_t length);

  [[nodiscard]] const JobMemory& job() const { return job_; }
  // This node's kWords segment.
  [[nodiscard]] std::span<std::byte> words() const;

  // From now on send()'s `not_before` delays nothing and is handed to the handler as Message::arrival, in virtual time.
  void carry_arrivals() { carries_arrivals_ = true; }

  // Ends this process (die) if the launcher has announced that a node died. serve() and poll() look by themselves.
  void check_aborted() const;

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }

  // put and get are copies (copy_words.h): another node may see a put in part while it runs. Completions are always
  // complete.
  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override;
  [[nodiscard]] bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId segment) override {
    const LocalExport& own = exported_[static_cast<size_t>(segment)];
    return {own.base, own.length};
  }
  uint64_t load_own(SegmentId segment, uint64_t offset) override;
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override;
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) override;
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override;

  void set_handler(MessageType type, MessageHandler handler, void* context) override;
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override;
  unsigned poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return &bell_->pending; }

  void begin_polling() override;
  void end_polling() override;
  void serve() override;
  void wake_service() override;

 private:
  struct alignas(64) Outgoing {
    SpinLock lock;
    RingProducer ring MG_GUARDED_BY(lock);
    OverflowQueue overflow MG_GUARDED_BY(lock);
  };
  struct alignas(64) Incoming {
    std::atomic<uint32_t> token{0};   // 1: some thread drains this ring
    std::atomic<Nanoseconds> due{0};  // if the message at the head is not due yet: when it will be; else 0
    RingConsumer ring;
  };
  struct Handler {
    std::atomic<MessageHandler> function{nullptr};
    void* context = nullptr;
  };
  struct LocalExport {
    std::byte* base = nullptr;
    uint64_t length = 0;
  };

  ShmFabric(JobMemory job, NodeId self);
  Status open_mappings(const std::vector<int>& frames_fds, uint64_t region_size);

  [[nodiscard]] uint64_t segment_length(NodeId node, SegmentId segment) const;
  void check_range(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) const;
  std::byte* at(NodeId node, SegmentId segment, uint64_t offset, uint64_t& run);
  std::atomic_ref<uint64_t> word(NodeId node, SegmentId segment, uint64_t offset);

  [[nodiscard]] bool try_send(NodeId to, const Record& record, std::span<const std::byte> payload, bool keep);
  void flush_overflow();
  unsigned drain(unsigned source, unsigned limit);
  void handle(unsigned source, const Record& record, RingConsumer& ring);
  // When there will be work that no thread does: 0 now, kNever only after a doorbell rings.
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};
  [[nodiscard]] Nanoseconds next_work();

  JobMemory job_;
  NodeId self_;
  unsigned nodes_;
  Doorbell* bell_;
  std::array<LocalExport, static_cast<size_t>(SegmentId::kCount)> exported_{};
  uint64_t frames_length_ = 0;  // of every node
  PeerMappings mappings_;
  PeerMappings line_mappings_;
  OverflowPool pool_;
  std::atomic<uint64_t> overflowing_{0};   // a bit a destination whose overflow queue is not empty
  std::atomic<bool> stop_serving_{false};  // wake_service() was called
  std::atomic<unsigned> first_source_{0};  // where the next poll begins, so that no source starves
  bool precise_timers_ = false;            // of the service thread
  bool carries_arrivals_ = false;
  std::array<Handler, 256> handlers_{};
  std::array<Outgoing, NodeSet::kCapacity> outgoing_;
  std::array<Incoming, NodeSet::kCapacity> incoming_;
};

}  // namespace multigrain
