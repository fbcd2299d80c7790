// This is a line protocol with one node and an adversary, which takes lines away as other nodes would, by the rules of
// docs/internals/fine-grain.md: from the table first, then when no hazard covers the line. Compiled code that stores
// outside of its hazards, or uses a value that it did not check, leaves memory other than it should be.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "instrument/abi.h"
#include "instrument/runtime/installed_protocol.h"

namespace multigrain::testing {

struct FakeOptions {
  bool takes_stores = false;  // it makes most stores itself whose values are offered
  bool has_messages = false;  // there are always messages, so every poll of compiled code is a call
};

class FakeLineProtocol : public LineProtocol {
 public:
  // Maps `bytes` of the view, all valid and writable, and becomes the process's line protocol.
  FakeLineProtocol(size_t bytes, unsigned line_shift, FakeOptions options = {});
  ~FakeLineProtocol() override;

  [[nodiscard]] unsigned char* memory() const { return reinterpret_cast<unsigned char*>(MG_FINE_VIEW_BASE); }
  [[nodiscard]] size_t line_bytes() const { return size_t{1} << shift_; }

  // Gives the calling thread hazards at which the adversary looks. Called before the thread runs compiled code. The
  // thread must end before this object does.
  void join();

  // Starts the adversary, which takes lines in a random order, without end, until it is dismissed. It adds 1 to the
  // 64-bit word at `counter`, unless that is null, each time it has that line.
  void unleash(uint64_t seed, uint64_t* counter = nullptr);
  // Returns how often the adversary wrote. All lines are valid afterwards.
  uint64_t dismiss();

  [[nodiscard]] uint64_t misses() const { return misses_.load(); }
  [[nodiscard]] uint64_t taken() const { return taken_.load(); }
  // Returns how often the rights cache was invalidated.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_.load(); }

  [[nodiscard]] uint64_t polls() const { return polls_.load(); }
  [[nodiscard]] uint64_t stores_taken() const { return stores_taken_.load(); }

  // Says that a requester begins to wait for a hazard.
  void begin_to_wait() { hazard_waits_.fetch_add(1); }
  // Does what the adversary does to the line at `address`, which is invalid here afterwards.
  void take_away(uintptr_t address);

  void load(uintptr_t address, std::span<std::byte> out) override;
  bool store(uintptr_t address, std::span<const std::byte> value) override;
  void poll() override { polls_.fetch_add(1); }
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override {
    return options_.has_messages ? &has_messages_ : nullptr;
  }
  void begin_store(uintptr_t address) override;
  void fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) override;
  [[nodiscard]] std::atomic<uint64_t>* rights_epoch() override { return &epoch_; }
  [[nodiscard]] const std::atomic<uint64_t>* hazard_waits() override { return &hazard_waits_; }
  void spin() override { spins_.fetch_add(1); }
  [[nodiscard]] uint64_t spins() const { return spins_.load(); }

 private:
  static constexpr size_t kThreads = 16;

  [[nodiscard]] uint64_t line_of(uintptr_t address) const { return (address - MG_FINE_VIEW_BASE) >> shift_; }
  std::atomic_ref<uint64_t> word(uint64_t line) const {
    return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(MG_FINE_TABLE_BASE)[line]);
  }
  std::atomic_ref<uint64_t> frame(uint64_t line, size_t i) const {
    return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(MG_FINE_VIEW_BASE)[(line << shift_) / 8 + i]);
  }
  void make_valid(uint64_t line, bool writable);  // the caller holds the line's lock
  // Returns a value that it never returns again, not even in the next test, whose pages are at the same addresses.
  static uint64_t fresh_rights_epoch();
  void forget();
  void wait_for_hazards(uint64_t line, bool also_loads);
  void take(uint64_t line, bool also_valid);
  // Returns a line over which some thread has a hazard published, or that it has just missed.
  [[nodiscard]] uint64_t line_in_use(uint64_t number) const;
  void spend_time(uint64_t seed, uint64_t* counter);

  const FakeOptions options_;
  size_t bytes_;
  unsigned shift_;
  uint64_t lines_;
  std::vector<unsigned char> elsewhere_;  // the other nodes' copy of memory
  std::unique_ptr<std::mutex[]> locks_;
  alignas(64) std::array<std::array<std::atomic<uint64_t>, MG_FINE_HAZARDS>, kThreads> hazards_{};
  std::atomic<size_t> joined_{0};
  std::atomic<uint64_t> misses_{0}, taken_{0}, forgotten_{0};
  alignas(64) std::atomic<uint64_t> epoch_{0};
  std::atomic<uint64_t> hazard_waits_{0};
  std::atomic<uint64_t> polls_{0}, spins_{0}, stores_offered_{0}, stores_taken_{0};
  const std::atomic<uint64_t> has_messages_{1};
  std::atomic<uint64_t> missed_{0};  // the line that was fetched last
  std::atomic<bool> stop_{false};
  uint64_t written_ = 0;
  std::thread adversary_;
};

}  // namespace multigrain::testing
