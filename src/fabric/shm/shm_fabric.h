// The fabric for nodes that are processes of one machine: they map the same memory, so a remote operation is a copy or
// an atomic instruction, and a message is a record in a ring (ring.h) plus a bit in a doorbell (doorbell.h).
//
// By this fabric one machine stands in for a cluster (virtual clustering, [MGS] section 4; [GeNIMA]). A ModelledFabric
// around it charges what a network would cost.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mapped_array.h"
#include "base/mapped_object.h"
#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/shm/attention.h"
#include "fabric/shm/job_memory.h"
#include "fabric/shm/overflow.h"
#include "fabric/shm/peer_mappings.h"
#include "fabric/shm/ring.h"

namespace multigrain {

class ShmFabric final : public Fabric, public MappedObject {
 public:
  // The exit status of a node that stops because another node died.
  static constexpr int kAbortedStatus = 3;

  // Joins the job as node `self`. `job_fd` is mapped and may be closed afterwards. `frames_fds` has the frames memfd of
  // each node (they must stay open) or is empty: then the node can access only frames that it exports itself.
  // `region_size` is the number of bytes of each node's frames. Errors: the descriptor is not a job memory; node `self`
  // is not in it or has attached already; descriptors do not fit.
  static Result<std::unique_ptr<ShmFabric>> attach(int job_fd, NodeId self, const std::vector<int>& frames_fds,
                                                   uint64_t region_size);
  // Does the same with a mapping that exists, which the fabric takes over (or borrows: JobMemory::borrow). Several
  // nodes may attach in one process.
  static Result<std::unique_ptr<ShmFabric>> attach(JobMemory job, NodeId self, const std::vector<int>& frames_fds,
                                                   uint64_t region_size);
  ~ShmFabric() override;

  // From now on this node's accesses to its own segment go to `base` rather than through a mapping; for kFrames, `base`
  // is the alias of the frames. The caller does this before other threads use the fabric. `base` must map the same
  // memory that the other nodes see.
  void export_segment(SegmentId segment, std::byte* base, uint64_t length);

  [[nodiscard]] const JobMemory& job() const { return job_; }

  // Empties the page tables of what is mapped of other nodes' frames and tables (PeerMappings::unmap_pages()).
  void unmap_pages_of_peers() const;
  // Returns this node's kWords segment.
  [[nodiscard]] std::span<std::byte> words() const;

  // From now on send()'s `not_before` delays nothing and is handed to the handler as Message::arrival, in virtual time.
  void carry_arrivals() { carries_arrivals_ = true; }

  // Ends this process if the launcher has announced that a node died. serve() and poll() check that by themselves.
  void check_aborted() const;

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }

  // Puts and gets are copies (copy_words.h): another node may see part of a put while it runs. Operations are complete
  // when the call that starts them returns.
  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override;
  std::byte* memory_of(NodeId to, SegmentId segment, uint64_t offset, uint64_t length) override;
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
  void begin_computing() override;
  void end_computing() override;
  void serve() override;
  void mark_own_work(bool is_left) override;
  // A processor that polls because it waits does no own work.
  [[nodiscard]] bool is_attended() const override {
    return bell_->is_attended() && (bell_->pollers.load(std::memory_order_seq_cst) & Doorbell::kCount) == 0;
  }
  void linger(uint64_t most_ticks) override { linger_ticks_ = most_ticks; }
  void wake_service() override;

  // For a fabric around this one that has a thread handle messages one by one, in the order of their arrivals
  // (carry_arrivals()). No other thread polls or serves then. begin_polling(), called once for good, keeps senders from
  // waking anybody.
  struct Arrived {
    unsigned source = 0;
    Nanoseconds arrival = 0;
  };
  // Returns the first of the messages that are here, or nullopt if there is none.
  std::optional<Arrived> first_arrived();
  // Handles the oldest message from this source, of which there is one.
  void handle_one(unsigned source);
  // Sends what full rings have held back, as far as there is room now. Returns the nodes to which something was held back
  // before.
  NodeSet flush();
  // Returns whether something is still held back.
  [[nodiscard]] bool holds_back() const { return overflowing_.load(std::memory_order_relaxed) != 0; }

 private:
  struct alignas(64) Outgoing {
    SpinLock lock;
    RingProducer ring MG_GUARDED_BY(lock);
    OverflowQueue overflow MG_GUARDED_BY(lock);
  };
  struct alignas(64) Incoming {
    std::atomic<uint32_t> token{0};   // 1: a thread drains this ring
    std::atomic<uint32_t> drains{0};  // how often messages were found; changed by the thread that drains
    std::atomic<Nanoseconds> due{0};  // when the message at the head will be due; 0: it is due
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
  [[nodiscard]] SourceGroups overflowing() { return {overflowing_, overflowing_groups_, nodes_}; }
  unsigned drain(unsigned source, unsigned limit);
  void handle(unsigned source, const Record& record, RingConsumer& ring);
  // Returns when there will be work that no thread does: 0 now, kNever only after a doorbell rings.
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};
  [[nodiscard]] Nanoseconds next_work();
  [[nodiscard]] bool lingers() const;
  // Whether other threads than the service thread, which polls, do so.
  [[nodiscard]] bool others_poll() const {
    return (bell_->pollers.load(std::memory_order_relaxed) & Doorbell::kCount) > 1;
  }
  [[nodiscard]] uint64_t drains() const;
  // Calls visit(source) for the sources whose rings may hold messages (SourceGroups::for_each_from). has_own_work() says
  // whether this node has marked own work.
  template <typename Visit>
  void for_each_waiting(unsigned first, Visit&& visit) const {
    bell_->sources(nodes_).for_each_from(first, own_work_, visit);
  }
  [[nodiscard]] bool has_own_work() const { return (bell_->pending.load(std::memory_order_seq_cst) & own_work_) != 0; }
  // The service thread has found nothing to do, and `seen` is what it has read of Doorbell::wakes before. Sleeps.
  void sleep_until_woken(uint32_t seen);

  JobMemory job_;
  NodeId self_;
  unsigned nodes_;
  Doorbell* bell_;
  const uint64_t own_work_;  // Doorbell::own_work
  std::array<LocalExport, static_cast<size_t>(SegmentId::kCount)> exported_{};
  uint64_t frames_length_ = 0;  // the same for every node
  PeerMappings mappings_;
  PeerMappings line_mappings_;
  PeerMappings page_mappings_;
  OverflowPool pool_;
  std::atomic<uint64_t> overflowing_{
      0};  // a bit a destination, or the summary of them: its overflow queue is not empty
  GroupWords overflowing_groups_{};
  uint64_t linger_ticks_ = 0;
  // Of the service thread: when it handled the last messages (ticks), and whether it has woken a thread of this node with
  // them, which needs the core.
  uint64_t served_at_ = 0;
  bool has_woken_ = false;
  std::atomic<bool> stop_serving_{false};  // wake_service() was called
  std::atomic<unsigned> first_source_{0};  // first source of the next poll, so that no source starves
  bool precise_timers_ = false;            // the service thread has set its timer slack
  // Of the service thread: when it may leave messages to processors; how often it has found messages, and it and others had at
  // its last sleep.
  Attention attention_;
  uint64_t own_drains_ = 0;
  uint64_t own_before_ = 0;
  uint64_t others_before_ = 0;
  bool carries_arrivals_ = false;
  std::array<Handler, 256> handlers_{};
  // Of each node.
  MappedArray<Outgoing> outgoing_;
  MappedArray<Incoming> incoming_;
};

}  // namespace multigrain
