// This is several nodes with synchronisation and a toy memory, in one process.
//
// The toy memory is what makes these tests see a release that is missing: every node has its own copy of every cell,
// and a write reaches the other copies only in a release of its node. Cells are atomics, so the toy itself is free of
// data races and ThreadSanitizer judges the rest.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "loopback_fabric.h"
#include "sync/sync.h"

namespace multigrain::testing {

class ToyMemory {
 public:
  static constexpr size_t kCells = 2048;
  explicit ToyMemory(unsigned nodes) {
    for (unsigned n = 0; n < nodes; ++n) nodes_.push_back(std::make_unique<Node>());
  }

  uint64_t read(unsigned node, size_t cell) { return nodes_[node]->value[cell].load(std::memory_order_relaxed); }
  void write(unsigned node, size_t cell, uint64_t value) {
    nodes_[node]->value[cell].store(value, std::memory_order_relaxed);
    nodes_[node]->dirty[cell].store(true, std::memory_order_release);
    nodes_[node]->any_dirty.store(true, std::memory_order_release);
  }
  // Each node has one guard, so a release waits for the releases of the node's other processors.
  void release(unsigned node) {
    Node& from = *nodes_[node];
    const std::lock_guard lock(from.guard);
    if (!from.any_dirty.exchange(false, std::memory_order_acq_rel)) return;
    for (size_t i = 0; i < kCells; ++i) {
      if (!from.dirty[i].load(std::memory_order_relaxed) || !from.dirty[i].exchange(false, std::memory_order_acquire))
        continue;
      const uint64_t value = from.value[i].load(std::memory_order_relaxed);
      for (auto& to : nodes_)
        if (to.get() != &from) to->value[i].store(value, std::memory_order_relaxed);
    }
  }

 private:
  struct Node {
    std::mutex guard;
    std::atomic<bool> any_dirty{false};
    std::array<std::atomic<uint64_t>, kCells> value{};
    std::array<std::atomic<bool>, kCells> dirty{};
  };
  std::vector<std::unique_ptr<Node>> nodes_;
};

class ToyHost final : public SyncHost {
 public:
  ToyHost(ToyMemory& memory, unsigned node, WaitPolicy policy) : memory_(memory), node_(node), policy_(policy) {}
  void release() override {
    releases_.fetch_add(1, std::memory_order_relaxed);
    memory_.release(node_);
    drain_store_buffer();
  }
  // The calling thread has written something that the node's other processors do not see before it drains its store
  // buffer.
  void write_own() {
    if (!std::exchange(t_unsettled, true)) unsettled_.fetch_add(1, std::memory_order_relaxed);
  }
  void drain_store_buffer() override {
    if (std::exchange(t_unsettled, false)) unsettled_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Returns how many threads have not settled.
  [[nodiscard]] unsigned unsettled() const { return unsettled_.load(std::memory_order_relaxed); }
  [[nodiscard]] const WaitPolicy& wait_policy() const override { return policy_; }
  void enter(SyncActivity) override { depth_.fetch_add(1, std::memory_order_relaxed); }
  void leave() override { depth_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t releases() const { return releases_.load(std::memory_order_relaxed); }
  [[nodiscard]] int depth() const { return depth_.load(std::memory_order_relaxed); }

 private:
  ToyMemory& memory_;
  unsigned node_;
  WaitPolicy policy_;
  std::atomic<uint64_t> releases_{0};
  std::atomic<int> depth_{0};
  std::atomic<unsigned> unsettled_{0};
  static inline thread_local bool t_unsettled = false;
};

class Machine {
 public:
  Machine(unsigned nodes, unsigned processors, SyncOptions options = {}, WaitPolicy policy = {2000})
      : Machine(loopback(nodes), processors, options, policy) {}
  // Makes the same machine over fabrics of another kind, one for each node.
  Machine(std::vector<std::unique_ptr<Fabric>> fabrics, unsigned processors, SyncOptions options = {},
          WaitPolicy policy = {2000})
      : memory(static_cast<unsigned>(fabrics.size())), fabric(std::move(fabrics)), processors_(processors) {
    const auto nodes = static_cast<unsigned>(fabric.size());
    for (unsigned n = 0; n < nodes; ++n) {
      host.push_back(std::make_unique<ToyHost>(memory, n, policy));
      sync.push_back(std::make_unique<Sync>(*host[n], *fabric[n], nodes, processors, options));
    }
    for (unsigned n = 0; n < nodes; ++n) {
      service_.emplace_back([this, n] {
        while (!stop_.load(std::memory_order_acquire)) fabric[n]->serve();
      });
    }
  }
  ~Machine() {
    stop_.store(true, std::memory_order_release);
    for (auto& f : fabric) f->wake_service();
    for (auto& thread : service_) thread.join();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Runs body(node, processor of the machine) on every processor and waits for all.
  void run(const std::function<void(unsigned, unsigned)>& body) {
    std::vector<std::thread> threads;
    for (unsigned n = 0; n < fabric.size(); ++n)
      for (unsigned i = 0; i < processors_; ++i) threads.emplace_back(body, n, n * processors_ + i);
    for (std::thread& thread : threads) thread.join();
  }
  // Works with loopback fabrics only.
  [[nodiscard]] uint64_t messages() const {
    uint64_t sum = 0;
    for (const auto& f : fabric) sum += dynamic_cast<const LoopbackFabric&>(*f).sent();
    return sum;
  }

  ToyMemory memory;
  std::vector<std::unique_ptr<Fabric>> fabric;
  std::vector<std::unique_ptr<ToyHost>> host;
  std::vector<std::unique_ptr<Sync>> sync;

 private:
  static std::vector<std::unique_ptr<Fabric>> loopback(unsigned nodes) {
    std::vector<std::unique_ptr<Fabric>> fabrics;
    for (auto& f : LoopbackFabric::machine(nodes)) fabrics.push_back(std::move(f));
    return fabrics;
  }

  unsigned processors_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> service_;
};

}  // namespace multigrain::testing
