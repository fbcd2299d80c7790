// The ucx fabric, in the module multigrain-ucx.so: it implements the contract of fabric.h by forwarding each operation
// to the part that carries it out (parts.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/mapped_object.h"
#include "fabric/ucx/parts.h"
#include "fabric/ucx/ucx_fabric.h"

namespace multigrain::ucx {

class UcpFabric final : public UcxFabric, public MappedObject {
 public:
  static Result<std::unique_ptr<UcxFabric>> open(const UcxOptions& options);
  ~UcpFabric() override;

  void export_segment(SegmentId segment, std::byte* base, uint64_t length) override {
    parts_.segments.export_segment(segment, base, length);
  }
  Status connect(Wireup& wireup) override;
  void stop() override;
  [[nodiscard]] std::string description() const override { return parts_.endpoints.description(); }
  bool progress() override { return parts_.polling.progress(); }

  [[nodiscard]] NodeId self() const override { return NodeId(parts_.context.self); }
  [[nodiscard]] unsigned nodes() const override { return parts_.context.nodes; }

  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    parts_.operations.put(to, segment, offset, bytes);
  }
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    parts_.operations.get(from, segment, offset, bytes);
  }
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    return parts_.operations.start_put(to, segment, offset, bytes);
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return parts_.operations.start_get(from, segment, offset, bytes);
  }
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override {
    return parts_.scattered_puts.start(to, segment, offset, pieces);
  }
  [[nodiscard]] bool is_complete(Completion completion) override { return parts_.operations.is_complete(completion); }
  void wait(Completion completion) override { parts_.operations.wait(completion); }
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId segment) override {
    const Segments::Export& own = parts_.segments.exported()[index(segment)];
    return {own.base, own.length};
  }
  uint64_t load_own(SegmentId segment, uint64_t offset) override { return parts_.operations.load_own(segment, offset); }
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    return parts_.operations.fetch_and_set(at, segment, offset, value);
  }
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) override {
    return parts_.operations.fetch_add(at, segment, offset, addend);
  }
  Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) override {
    return parts_.operations.start_fetch_add(at, segment, offset, addend, old);
  }
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override {
    return parts_.operations.compare_and_swap(at, segment, offset, expected, desired);
  }

  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    parts_.dispatcher.set_handler(type, handler, context);
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override {
    parts_.sender.send(to, header, payload, slice, context, not_before);
  }
  void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) override {
    parts_.dispatcher.fetch(message, from, bytes);
  }
  unsigned poll() override { return parts_.dispatcher.poll(); }
  void begin_batch() override { parts_.coalescing.begin_batch(); }
  void end_batch() override { parts_.coalescing.end_batch(); }

  void begin_polling() override { parts_.polling.begin_polling(); }
  void end_polling() override { parts_.polling.end_polling(); }
  void serve() override { parts_.polling.serve(); }
  void wake_service() override { parts_.polling.wake_service(); }

 private:
  explicit UcpFabric(const UcxOptions& options);
  Status start();
  void close_ucx() MG_REQUIRES(inside_ucx);

  Parts parts_;
  bool gate_installed_ = false;
};

}  // namespace multigrain::ucx
