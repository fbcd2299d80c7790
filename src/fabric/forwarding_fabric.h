// A fabric that wraps another and forwards every operation to it: a model of a network, or a test, derives from it and
// overrides only the operations that it changes.
//
// A derived class does not see an operation that is forwarded: a model that charges for operations must override each
// one that reaches another node, or that operation is free. An operation that calls other operations calls those of the
// inner fabric: inner.fetch() calls inner.get(), not the wrapper's.
#pragma once

#include <memory>
#include <utility>

#include "fabric/fabric.h"

namespace multigrain {

class ForwardingFabric : public Fabric {
 public:
  // `inner` belongs to the caller and outlives this object.
  explicit ForwardingFabric(Fabric& inner) : inner_(&inner) {}
  explicit ForwardingFabric(std::unique_ptr<Fabric> inner) : inner_(inner.get()), owned_(std::move(inner)) {}

  [[nodiscard]] NodeId self() const override { return inner_->self(); }
  [[nodiscard]] unsigned nodes() const override { return inner_->nodes(); }
  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    inner_->put(to, segment, offset, bytes);
  }
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    inner_->get(from, segment, offset, bytes);
  }
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    return inner_->start_put(to, segment, offset, bytes);
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return inner_->start_get(from, segment, offset, bytes);
  }
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override {
    return inner_->start_put_pieces(to, segment, offset, pieces);
  }
  [[nodiscard]] bool is_complete(Completion completion) override { return inner_->is_complete(completion); }
  void wait(Completion completion) override { inner_->wait(completion); }
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                 uint64_t& old) override {
    return inner_->start_fetch_and_set(at, segment, offset, value, old);
  }
  Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) override {
    return inner_->start_fetch_add(at, segment, offset, addend, old);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    return inner_->start_get_after(earlier, from, segment, offset, bytes);
  }
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId segment) override { return inner_->own_segment(segment); }
  uint64_t load_own(SegmentId segment, uint64_t offset) override { return inner_->load_own(segment, offset); }
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    return inner_->fetch_and_set(at, segment, offset, value);
  }
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) override {
    return inner_->fetch_add(at, segment, offset, addend);
  }
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override {
    return inner_->compare_and_swap(at, segment, offset, expected, desired);
  }
  void stamp(NodeId at, SegmentId segment, uint64_t offset) override { inner_->stamp(at, segment, offset); }
  void go_on_after(NodeId at, SegmentId segment, uint64_t offset) override { inner_->go_on_after(at, segment, offset); }
  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    inner_->set_handler(type, handler, context);
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override {
    inner_->send(to, header, payload, slice, context, not_before);
  }
  void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) override {
    inner_->fetch_part(message, from, bytes);
  }
  unsigned poll() override { return inner_->poll(); }
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return inner_->pending_messages(); }
  void begin_batch() override { inner_->begin_batch(); }
  void end_batch() override { inner_->end_batch(); }
  void begin_polling() override { inner_->begin_polling(); }
  void end_polling() override { inner_->end_polling(); }
  void begin_computing() override { inner_->begin_computing(); }
  void end_computing() override { inner_->end_computing(); }
  void serve() override { inner_->serve(); }
  void mark_own_work(bool is_left) override { inner_->mark_own_work(is_left); }
  [[nodiscard]] bool is_attended() const override { return inner_->is_attended(); }
  void linger(uint64_t most_ticks) override { inner_->linger(most_ticks); }
  void wake_service() override { inner_->wake_service(); }

 protected:
  [[nodiscard]] Fabric& inner() const { return *inner_; }

 private:
  Fabric* inner_;
  std::unique_ptr<Fabric> owned_;  // null: the caller owns the inner fabric
};

}  // namespace multigrain
