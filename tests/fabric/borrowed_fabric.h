// A fabric that somebody else owns, for tests of fabrics that own what they wrap.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::testing {

// SimFabrics belong to their network, and a ModelledFabric owns what it wraps.
class Borrowed final : public Fabric {
 public:
  explicit Borrowed(Fabric& fabric) : fabric_(fabric) {}
  NodeId self() const override { return fabric_.self(); }
  unsigned nodes() const override { return fabric_.nodes(); }
  void put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override { fabric_.put(to, s, o, b); }
  void get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override { fabric_.get(from, s, o, b); }
  Completion start_put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override {
    return fabric_.start_put(to, s, o, b);
  }
  Completion start_get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override {
    return fabric_.start_get(from, s, o, b);
  }
  bool is_complete(Completion c) override { return fabric_.is_complete(c); }
  void wait(Completion c) override { fabric_.wait(c); }
  uint64_t fetch_and_set(NodeId at, SegmentId s, uint64_t o, uint64_t v) override {
    return fabric_.fetch_and_set(at, s, o, v);
  }
  uint64_t fetch_add(NodeId at, SegmentId s, uint64_t o, uint64_t v) override { return fabric_.fetch_add(at, s, o, v); }
  uint64_t compare_and_swap(NodeId at, SegmentId s, uint64_t o, uint64_t e, uint64_t d) override {
    return fabric_.compare_and_swap(at, s, o, e, d);
  }
  void set_handler(MessageType t, MessageHandler h, void* c) override { fabric_.set_handler(t, h, c); }
  void send(NodeId to, const MessageHeader& h, std::span<const std::byte> p, RemoteSlice s, SendContext c,
            Nanoseconds n) override {
    fabric_.send(to, h, p, s, c, n);
  }
  unsigned poll() override { return fabric_.poll(); }
  void attend() override { fabric_.attend(); }
  void leave() override { fabric_.leave(); }
  void serve() override { fabric_.serve(); }
  void wake_service() override { fabric_.wake_service(); }

 private:
  Fabric& fabric_;
};

}  // namespace multigrain::testing
