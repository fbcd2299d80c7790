// The tests of drivers stand on this: several nodes in one process, with real faults.
//
// Each node has its own region, at its own addresses, its own access rights and its own shm fabric. A fault goes to the
// driver of the node whose view was touched. The test adds what else its nodes have, and makes their drivers.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coherence/protocol.h"
#include "fabric/forwarding_fabric.h"
#include "fabric/shm/shm_fabric.h"
#include "node_places.h"

namespace multigrain::driver_nodes {

// Gives `run` consecutive pages to one node, the next `run` pages to the next node, and so on.
class RunsOfHomes : public HomeDirectory {
 public:
  RunsOfHomes(unsigned nodes, unsigned run) : nodes_(nodes), run_(run) {}
  std::optional<NodeId> home_of(PageId page) override {
    return NodeId(static_cast<uint16_t>(page.value / run_ % nodes_));
  }
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }

 private:
  const unsigned nodes_, run_;
};

// Counts the memory operations of another fabric. It sends no messages, because the protocols that use it have no
// handlers.
class OneSided final : public ForwardingFabric {
 public:
  explicit OneSided(Fabric& inner) : ForwardingFabric(inner) {}
  void put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override {
    inner().put(count(to), s, o, b);
  }
  void get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override { inner().get(count(from), s, o, b); }
  Completion start_put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override {
    return inner().start_put(count(to), s, o, b);
  }
  Completion start_get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override {
    return inner().start_get(count(from), s, o, b);
  }
  Completion start_put_pieces(NodeId to, SegmentId s, uint64_t o, std::span<const Piece> pieces) override {
    return inner().start_put_pieces(count(to), s, o, pieces);
  }
  uint64_t fetch_and_set(NodeId at, SegmentId s, uint64_t o, uint64_t v) override {
    return inner().fetch_and_set(count(at), s, o, v);
  }
  Completion start_fetch_and_set(NodeId at, SegmentId s, uint64_t o, uint64_t v, uint64_t& old) override {
    return inner().start_fetch_and_set(count(at), s, o, v, old);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId s, uint64_t o,
                             std::span<std::byte> b) override {
    return inner().start_get_after(earlier, count(from), s, o, b);
  }
  uint64_t fetch_add(NodeId at, SegmentId s, uint64_t o, uint64_t v) override {
    return inner().fetch_add(count(at), s, o, v);
  }
  uint64_t compare_and_swap(NodeId at, SegmentId s, uint64_t o, uint64_t e, uint64_t d) override {
    return inner().compare_and_swap(count(at), s, o, e, d);
  }
  void set_handler(MessageType, MessageHandler, void*) override { panic("a one-sided protocol has a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("a one-sided protocol sends a message");
  }
  unsigned poll() override { return 0; }
  void begin_polling() override {}
  void end_polling() override {}
  void serve() override { panic("a one-sided protocol needs a service thread"); }
  void wake_service() override {}

  // Returns the number of operations on other nodes' memory.
  [[nodiscard]] uint64_t remote() const { return remote_.load(); }

 private:
  NodeId count(NodeId node) {
    if (node != self()) remote_.fetch_add(1, std::memory_order_relaxed);
    return node;
  }
  std::atomic<uint64_t> remote_{0};
};

// Every node has this. A test's nodes derive from it, and have a member `driver`, declared last, that points to the
// object whose on_fault() takes the faults.
struct NodeMemory {
  std::optional<Region> region;
  std::unique_ptr<AccessRights> rights;
  std::unique_ptr<ShmFabric> memory;
};

// Only one such machine may exist at a time, because it installs the process's signal handlers.
template <typename Node>
class DriverNodes {
 public:
  // Makes the nodes with their memory, and without drivers. The drivers must be there before a processor touches a
  // view.
  DriverNodes(unsigned nodes, AccessMechanism access, size_t page_size, uint64_t region_size) : page_size_(page_size) {
    auto job_fd = create_job_memory(
        {.nodes = nodes, .processors_per_node = 1, .page_size = page_size, .region_size = region_size});
    EXPECT_TRUE(job_fd) << job_fd.error().message;
    std::vector<int> frames;
    for (unsigned n = 0; n < nodes; ++n) {
      auto node = std::make_unique<Node>();
      auto region = Region::create(region_size, page_size, -1, node_memory::region_of_node(n));
      EXPECT_TRUE(region) << region.error().message;
      node->region.emplace(std::move(*region));
      frames.push_back(node->region->frames_fd());
      nodes_.push_back(std::move(node));
    }
    for (unsigned n = 0; n < nodes; ++n) {
      Node& node = *nodes_[n];
      auto fabric = ShmFabric::attach(*job_fd, NodeId(static_cast<uint16_t>(n)), frames, region_size);
      EXPECT_TRUE(fabric) << fabric.error().message;
      node.memory = std::move(*fabric);
      node.memory->export_segment(SegmentId::kFrames, node.region->alias(PageId(0)), region_size);
      auto rights = choose(access, *node.region);
      EXPECT_TRUE(rights) << rights.error().message;
      node.rights = std::move(*rights);
    }
    close(*job_fd);
    current_ = this;
    struct sigaction action = {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  }
  ~DriverNodes() {
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
    current_ = nullptr;
  }
  DriverNodes(const DriverNodes&) = delete;
  DriverNodes& operator=(const DriverNodes&) = delete;

  [[nodiscard]] unsigned nodes() const { return static_cast<unsigned>(nodes_.size()); }
  [[nodiscard]] Node& node(unsigned n) const { return *nodes_[n]; }

  // These access a 64-bit word as node n sees it. They are relaxed: within a node that is what ordinary accesses of a
  // program without races amount to. The thread sanitizer holds locks across stronger accesses, which breaks when the
  // access faults.
  void write(unsigned n, uint64_t page, uint64_t index, uint64_t value) {
    at(n, page, index).store(value, std::memory_order_relaxed);
  }
  uint64_t read(unsigned n, uint64_t page, uint64_t index) {
    return at(n, page, index).load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t words_per_page() const { return page_size_ / sizeof(uint64_t); }

 private:
  static void on_signal(int signal, siginfo_t* info, void* context) {
    for (const auto& node : current_->nodes_) {
      if (const auto fault = node->rights->decode(signal, info, context)) {
        if (node->driver->on_fault(fault->page, fault->is_write)) return;
      }
    }
    ::signal(signal, SIG_DFL);
  }

  std::atomic<uint64_t>& at(unsigned n, uint64_t page, uint64_t index) {
    return reinterpret_cast<std::atomic<uint64_t>*>(nodes_[n]->region->view(PageId(page)))[index];
  }

  static inline DriverNodes* current_ = nullptr;
  const size_t page_size_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace multigrain::driver_nodes
