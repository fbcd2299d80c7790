// This is several nodes whose threads use futexes, in one process. The guest's memory is this process's.
#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "sync/futex/futexes.h"

namespace multigrain::testing {

// A thread of the guest gives this to a call. Words below `kUnmapped` do not exist.
class FutexCaller : public Futexes::Caller {
 public:
  static constexpr uint64_t kUnmapped = 1 << 16;

  bool load(uint64_t address, uint32_t& value) override {
    if (address < kUnmapped) return false;
    value = word(address).load();
    return true;
  }
  bool modify(uint64_t address, uint32_t operation, uint32_t& before) override {
    if (address < kUnmapped) return false;
    std::atomic<uint32_t>& at = word(address);
    before = at.load();
    uint32_t after = 0;
    do {
      EXPECT_TRUE(Futexes::apply_operation(operation, before, after));
    } while (!at.compare_exchange_weak(before, after));
    return true;
  }
  long sleep(std::atomic<uint32_t>& word, uint32_t expected, const timespec* deadline, bool realtime) override {
    const int operation = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | (realtime ? FUTEX_CLOCK_REALTIME : 0);
    return syscall(SYS_futex, &word, operation, expected, deadline, nullptr, FUTEX_BITSET_MATCH_ANY) == 0 ? 0 : -errno;
  }

 private:
  static std::atomic<uint32_t>& word(uint64_t address) { return *reinterpret_cast<std::atomic<uint32_t>*>(address); }
};

class FutexMachine {
 public:
  FutexMachine(std::vector<std::unique_ptr<Fabric>> fabrics, WaitPolicy policy, NodeId server = NodeId(0))
      : fabrics_(std::move(fabrics)) {
    for (auto& fabric : fabrics_) futexes_.push_back(std::make_unique<Futexes>(*fabric, policy, server));
    for (auto& fabric : fabrics_)
      service_.emplace_back([this, &fabric] {
        while (!stop_.load()) fabric->serve();
      });
  }
  ~FutexMachine() {
    stop_.store(true);
    for (auto& fabric : fabrics_) fabric->wake_service();
    for (std::thread& thread : service_) thread.join();
  }
  FutexMachine(const FutexMachine&) = delete;
  FutexMachine& operator=(const FutexMachine&) = delete;

  [[nodiscard]] Futexes& node(unsigned n) { return *futexes_[n]; }
  [[nodiscard]] unsigned nodes() const { return static_cast<unsigned>(futexes_.size()); }
  // Runs body(futexes of the node, thread of the machine) on so many threads of every node and waits for all.
  void run(unsigned threads_per_node, const std::function<void(Futexes&, unsigned)>& body) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < nodes() * threads_per_node; ++i)
      threads.emplace_back([this, &body, i] { body(node(i % nodes()), i); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<Futexes>> futexes_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> service_;
};

}  // namespace multigrain::testing
