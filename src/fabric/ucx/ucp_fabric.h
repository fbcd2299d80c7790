// The ucx fabric's inside, in the module multigrain-ucx.so.
//
// Threads and the lock. One UCP context and one worker a node. Every call into UCX is made under `lock_`, by whichever
// thread needs it (UCS_THREAD_MODE_SERIALIZED): UCX's own multi-threaded mode would take a lock of its own in every
// call, several times in some, and its lock spins without end where ours sleeps, which on few cores is the difference
// between a wait and a lost time slice. A thread that only wants progress tries the lock and passes on if it is taken:
// its holder makes the progress. UCX's asynchronous thread (it accepts connections) excludes itself by UCX's own means.
//
// Callbacks of UCX run under the lock. They never run a handler: they put the message into its source's queue, in the
// order of the numbers, and poll() hands the queues to handlers without the lock, one thread a source (its token). So
// handlers may send.
//
// Three things are looked after, by different people:
//   progress   of UCX: by every thread that watches: that polls, or waits for a remote operation. While one does, UCX's
//              descriptor is muted, so that the service thread does not get up for every arrival. The last to stop
//              watching arms UCX and unmutes the descriptor ("listening"). These are four system calls, and an armed
//              UCX makes its peers' shared-memory transports send signals: more than a message costs there. So in a
//              burst of waits the last to stop watching leaves it muted, and the service thread looks by itself every
//              kLinger until the burst is over ("looking").
//   messages   in the queues: by threads that attend (fabric.h). Whoever puts a message into a queue and sees that
//   nobody
//              attends wakes the service thread by its event descriptor.
//   credits    a queue of messages that a handler sent while the window was full goes out, under the lock, in the very
//              progress that brings the credit.
//   trains     of small messages that a thread sent in a batch: kept in the peer, under the lock. A message is in one
//              only while the thread that sent it is in its batch (t_batch), and at the end of that the thread sends
//              all trains that it finds, its own messages among them if nobody did so before. Batches are: a few dozen
//              handlers (which wait for no message; at most for a get, of a slice too long to be carried, which UCX
//              there answers by itself), a read ahead, a few pages of a release. Whoever is about to wait for room
//              sends the train first, a message that cannot ride goes behind it, and one from a thread in no batch
//              takes it along. So nothing is kept for longer than its own batch lasts, whatever other threads do, and
//              a thread that waits, in the fault handler or elsewhere, has none.
//
// Nothing is forgotten. Operations below are sequentially consistent, `lock_` orders the rest.
//  (1) An arrival that UCX has not been asked about. Consider the last unwatch() that brought watching_ to 0 (U1). It
//      then saw looking_ set (U2), or set it and woke the service thread, or saw to it that listening_ is set.
//      listening_ is set after ucp_worker_arm() has succeeded, so UCX's descriptor is or becomes readable, and is
//      cleared only by a watcher that has counted itself, and who has U1 still to come.
//      If U2 saw looking_ set: only the service thread clears it (V1), under the lock, and then reads watching_ (V2).
//      V1 comes after U2, so V2 sees 0, and the service thread listens before it sleeps; or it sees a later watcher,
//      who has U1 still to come. While looking_ is set the service thread never sleeps for longer than kLinger, but
//      for the sleep in which it was set first, which the wake-up that goes with it ends.
//      When the service thread gets up it makes progress, and arms again before it sleeps unless somebody watches.
//  (2) A message in a queue: this is the argument of shm/doorbell.h with pending_, attendance_ and waking_ in the
//  places
//      of pending, the count and kWaking. S1 and S2 are enqueue(); S3 is wake_if_unattended(), which everybody calls
//      who made progress and does not go on to drain; the event descriptor keeps a wake-up until it is read, which is
//      V1.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/spin_lock.h"
#include "fabric/mapped_object.h"
#include "fabric/ucx/block_pool.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

class UcpFabric final : public UcxFabric, public MappedObject {
 public:
  static Result<std::unique_ptr<UcxFabric>> open(const UcxOptions& options);
  ~UcpFabric() override;

  void export_segment(SegmentId segment, std::byte* base, uint64_t length) override;
  Status connect(Wireup& wireup) override;
  void stop() override;
  [[nodiscard]] std::string description() const override;
  bool progress() override;

  [[nodiscard]] NodeId self() const override { return NodeId(context_.self); }
  [[nodiscard]] unsigned nodes() const override { return context_.nodes; }

  // A put is complete when it can be seen on the target: its endpoint has been flushed. Atomics are UCX's, in its mode
  // "cpu": carried out by the target's processors, so that the target's own atomic instructions agree with them.
  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  // Where the network can put (it has a lane for that), each piece is a put, and one flush follows them all. Where it
  // cannot, UCX would send each as a message with an answer of its own, which the target's progress carries out: there
  // all of them are one such message, and have one answer.
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override;
  [[nodiscard]] bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId segment) override {
    const Export& own = exported_[static_cast<size_t>(segment)];
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
  void fetch(const Message& message, std::span<std::byte> bytes) override;
  unsigned poll() override;
  void begin_batch() override;
  void end_batch() override;

  void attend() override;
  void leave() override;
  void serve() override;
  void wake_service() override;

 private:
  // A message that has arrived. Its data follows, or is still in UCX's buffer (`held`).
  struct Incoming {
    UcpFabric* fabric;
    Incoming* next;
    WireMessage wire;
    Nanoseconds due;  // 0: at once
    std::byte* data;
    void* held;  // to be released with ucp_am_data_release; or null
  };
  // A message that is being sent, or waits for room in the window. What is copied of its data follows.
  struct Outgoing {
    UcpFabric* fabric;
    Outgoing* next;
    WireMessage wire;
    Nanoseconds not_before;
    const std::byte* data;
    uint64_t data_bytes;
  };
  // A train that is being put together, or sent.
  struct Train {
    UcpFabric* fabric;
    WireTrain wire;
    uint32_t bytes;
    std::array<std::byte, kMaxTrainBytes> data;
  };
  // Pieces that are being sent. Their table and bytes follow.
  struct PiecesOut {
    UcpFabric* fabric;
    WirePieces wire;
  };
  struct ControlOut {
    UcpFabric* fabric;
    WireControl wire;
    std::array<std::byte, 0> data;
  };

  struct alignas(64) Peer {
    // Under lock_, once connected.
    ucp_ep_h endpoint = nullptr;
    uint64_t key = 0;  // that this node must send
    uint64_t next_sequence = 0;
    uint64_t sent = 0;   // cost of what was sent
    uint64_t acked = 0;  // cost of that which the peer is known to have handled
    Outgoing* overflow_first = nullptr;
    Outgoing* overflow_last = nullptr;
    Train* train = nullptr;
    uint64_t expected = 0;      // the sequence number that is next for the queue
    Incoming* early = nullptr;  // what overtook it, by number
    uint64_t arrived = 0;       // cost
    bool heard = false;         // something came since the last look
    bool ever_heard = false;    // a heartbeat has come
    bool said_hello = false;
    bool answered_hello = false;
    bool welcomed = false;
    bool can_put = false;  // the network does puts without the peer's help
    bool ready = false;
    Nanoseconds last_heard = 0;
    std::atomic<bool> lost{false};
    LossReason loss = LossReason::kBroken;
    bool loss_from_node_0 = false;

    // The queue.
    alignas(64) SpinLock queue_lock;
    Incoming* first = nullptr;
    Incoming* last = nullptr;
    std::atomic<uint32_t> token{0};
    std::atomic<Nanoseconds> due{0};
    std::atomic<uint64_t> handled{0};  // cost; written by the holder of the token
    std::atomic<uint64_t> told{0};     // that the peer has been told is handled; written under lock_

    // The peer's memory.
    std::array<uint64_t, static_cast<size_t>(SegmentId::kCount)> base{};
    ucp_rkey_h words_key = nullptr;
    std::atomic<ucp_rkey_h>* chunk_keys = nullptr;  // by chunk; null: not asked for yet; kAsked
  };

  struct Handler {
    std::atomic<MessageHandler> function{nullptr};
    void* context = nullptr;
  };
  struct Export {
    std::byte* base = nullptr;
    uint64_t length = 0;
  };
  // A remote operation under way. Bits 1.. of `word`: its generation, which grows when it ends; bit 0: somebody sleeps.
  struct Operation {
    std::atomic<uint32_t> word{0};
    uint32_t parts = 0;  // that UCX has still to complete
    uint16_t next_free = 0;
    uint16_t deposits_at = 0;  // pieces sent as a message: 1 + the node that has to say when they are there
    UcpFabric* fabric = nullptr;
  };
  static constexpr unsigned kOperations = 1024;

  class Inside;
  class Watch;
  class AsyncThread;

  explicit UcpFabric(const UcxOptions& options);
  Status start();
  Result<std::vector<Card>> meet(Wireup& wireup);
  Status make_endpoint(unsigned n, const Card& card);  // under the lock
  Status say_hello(const std::vector<Card>& cards);
  [[nodiscard]] std::vector<std::string> lanes_of(const Peer& peer) const;
  Status map_words();

  void enter_library() const {
    if (options_.enter_library != nullptr) options_.enter_library();
  }
  void leave_library() const {
    if (options_.leave_library != nullptr) options_.leave_library();
  }

  // Memory.
  void check_range(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) const;
  [[nodiscard]] std::byte* own(SegmentId segment, uint64_t offset) const;
  // The number of the chunk with `offset` of kFrames or kLines, among all.
  [[nodiscard]] uint64_t chunk_of(SegmentId segment, uint64_t offset) const {
    return offset / kChunkBytes + (segment == SegmentId::kLines ? frame_chunks_ : 0);
  }
  ucp_rkey_h remote_key(unsigned node, SegmentId segment, uint64_t offset);
  void answer_remote_key_request(unsigned source, const WireControl& request);
  void accept_remote_key(unsigned source, const WireControl& wire, const void* data);
  Result<ucp_mem_h> map_memory(std::byte* base, uint64_t length);
  [[nodiscard]] static uint64_t in_one_chunk(SegmentId segment, uint64_t offset, uint64_t length);
  bool get_keys(NodeId node, SegmentId segment, uint64_t offset, uint64_t length);
  Completion begin_operation(Inside& inside, Operation*& operation);  // under the lock
  template <typename Requests>
  Completion start_requests(NodeId node, Requests&& requests);
  template <typename Start>
  Completion start_operation(NodeId node, SegmentId segment, uint64_t offset, uint64_t length, Start&& start);
  Completion send_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces, uint32_t count,
                         uint64_t data_bytes);
  void receive_pieces(std::span<const std::byte> header, std::span<const std::byte> data);
  void end_deposit(unsigned source, uint64_t id);  // under the lock
  void end_part(Operation& operation);             // under the lock
  template <typename Start>
  void carry_out(Start&& start);
  bool wait_polling(Completion completion);
  void wait_asleep(Completion completion);
  void* start_atomic(Peer& peer, ucp_rkey_h key, SegmentId segment, uint64_t offset, ucp_atomic_op_t what,
                     const void* operand, uint64_t* result, ucp_request_param_t& parameters);
  uint64_t atomic(NodeId at, SegmentId segment, uint64_t offset, ucp_atomic_op_t what, uint64_t operand,
                  uint64_t result);
  [[nodiscard]] std::atomic_ref<uint64_t> own_word(SegmentId segment, uint64_t offset) const;
  void check_word(NodeId at, SegmentId segment, uint64_t offset) const;

  // Messages; those marked * under the lock.
  [[nodiscard]] bool try_send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload,
                              RemoteSlice slice, Nanoseconds not_before, bool keep);
  void transmit(unsigned to, Outgoing* out);  // *
  [[nodiscard]] bool in_batch() const;
  void board(unsigned to, const MessageHeader& header, std::span<const std::byte> payload);  // *
  void send_train(unsigned to);                                                              // *
  void send_trains();                                                                        // *
  static void tell_handled(Peer& peer, uint64_t& field);                                     // *
  void flush_overflow(unsigned to);                                                          // *
  void send_control(unsigned to, ControlKind kind, uint64_t a = 0, uint64_t b = 0,
                    std::span<const std::byte> = {});             // *
  void acknowledge(unsigned source, uint64_t handled);            // *
  void accept(unsigned source, Incoming* in);                     // *
  void enqueue(unsigned source, Incoming* in);                    // *
  void recycle();                                                 // *
  void lose(unsigned node, LossReason reason, bool from_node_0);  // *
  void report_losses();
  static ucs_status_t on_message(void* self, const void* header, size_t header_length, void* data, size_t length,
                                 const ucp_am_recv_param_t* param);
  static ucs_status_t on_train(void* self, const void* header, size_t header_length, void* data, size_t length,
                               const ucp_am_recv_param_t* param);
  static ucs_status_t on_pieces(void* self, const void* header, size_t header_length, void* data, size_t length,
                                const ucp_am_recv_param_t* param);
  static ucs_status_t on_control(void* self, const void* header, size_t header_length, void* data, size_t length,
                                 const ucp_am_recv_param_t* param);
  ucs_status_t receive(std::span<const std::byte> header, void* data, size_t length, uint64_t attributes);
  Incoming* admit(const WireMessage& wire, size_t length, size_t copied);
  void receive_train(std::span<const std::byte> header, std::span<const std::byte> data);
  void receive_control(std::span<const std::byte> header, const void* data, size_t length);
  void refuse(const char* reason);
  unsigned drain(unsigned source, unsigned limit);
  void handle(unsigned source, Incoming& in);

  // Looking after.
  void watch();
  void unwatch();
  void listen(bool on);  // *
  void wake_if_unattended();
  bool try_listen(Inside& inside);  // *
  void wake();
  Nanoseconds prepare_to_sleep();
  void tend();
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};
  [[nodiscard]] Nanoseconds next_work();

  UcxOptions options_;
  WireContext context_;
  ucp_context_h ucp_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  AsyncThread* async_ = nullptr;
  int ucx_fd_ = -1;
  int event_fd_ = -1;
  int epoll_fd_ = -1;

  alignas(64) SpinLock lock_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> listening_{false};  // UCX's descriptor wakes the service thread; written under lock_
  bool connected_ = false;
  bool gated_ = false;
  unsigned controls_under_way_ = 0;
  BlockPool pool_;
  std::array<Operation, kOperations> operations_;
  uint16_t free_operation_ = 0;      // 1 + index; 0: none
  std::atomic<uint64_t> losses_{0};  // a bit a node: lost and not yet reported
  std::atomic<uint64_t> trains_{0};  // a bit a node: it has a train; written under lock_
  std::array<Export, static_cast<size_t>(SegmentId::kCount)> exported_{};
  ucp_mem_h words_memory_ = nullptr;
  // Chunks of the frames, then those of the line table.
  std::atomic<ucp_mem_h>* chunk_memory_ = nullptr;
  uint64_t frame_chunks_ = 0;
  uint64_t chunks_ = 0;
  unsigned refused_ = 0;
  uint64_t discarded_ = 0;  // what UCX found where single words were put; never read

  alignas(64) std::atomic<uint64_t> pending_{0};  // a bit a source: its queue may hold messages
  std::atomic<Incoming*> done_{nullptr};          // handled, to be recycled under the lock
  alignas(64) std::atomic<uint32_t> attendance_{0};
  std::atomic<uint32_t> watching_{0};
  std::atomic<bool> waking_{false};
  std::atomic<bool> looking_{false};  // the service thread looks every kLinger
  std::atomic<Nanoseconds> last_unwatch_{0};
  std::atomic<bool> stop_serving_{false};
  std::atomic<unsigned> first_source_{0};
  Nanoseconds next_tick_ = 0;       // of the service thread
  Nanoseconds next_heartbeat_ = 0;  // of the service thread
  bool precise_timers_ = false;
  std::array<Handler, 256> handlers_{};
  std::array<Peer, NodeSet::kCapacity> peers_;
};

}  // namespace multigrain::ucx
