// These are nodes of tests (driver_nodes.h) under a line protocol, each with its own line table and hazards, and
// accesses as compiled checks make them (docs/internals/fine-grain.md), spelled out here. The tests that every line
// protocol has to pass are here as well.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "coherence/hazard.h"
#include "coherence/line_memory.h"
#include "driver_nodes.h"

namespace multigrain::line_tests {

inline constexpr uint64_t kRegionSize = uint64_t{16} << 20;
inline constexpr uint64_t kPage = 4096;

class InterleavedHomes : public driver_nodes::RunsOfHomes {
 public:
  explicit InterleavedHomes(unsigned nodes, unsigned pages = 1) : RunsOfHomes(nodes, pages) {}
  std::optional<Grain> grain_of(PageId page) override {
    if (page.value >= kUnallocated) return std::nullopt;
    return page.value >= kPageGrain ? Grain::kPage : Grain::kLine;
  }
  bool may_move_to_lines(PageId page) override { return page.value >= kPageGrain && page.value < kUnallocated; }
  // On some pages blocks are lines; on the others there are all sizes that fit, and some that do not.
  size_t block_size_of(PageId page) override {
    constexpr size_t kSizes[] = {0, 256, 128, 384, 0, 1024, 2048, 4096};
    return kSizes[page.value % std::size(kSizes)];
  }

  static constexpr uint64_t kPageGrain = 2000, kUnallocated = 3000;
};

struct TestNode : driver_nodes::NodeMemory {
  std::unique_ptr<Fabric> fabric;  // the fabric that the driver gets
  std::optional<LineTable> table;
  std::unique_ptr<HazardSlots> hazards;
  std::thread service;
  std::unique_ptr<LineMemory> driver;
};

class Machine : public driver_nodes::DriverNodes<TestNode> {
 public:
  using Wrap = std::function<std::unique_ptr<Fabric>(Fabric& memory)>;
  using Make = std::function<std::unique_ptr<LineMemory>(const NodeServices&, const LineServices&)>;
  // `has_service` says that the protocol sends messages, which a service thread handles when no processor does.
  Machine(unsigned nodes, unsigned line_shift, HomeDirectory& homes, const Wrap& wrap, const Make& make,
          bool has_service)
      : DriverNodes(nodes, AccessMechanism::kMprotect, kPage, kRegionSize), shift_(line_shift) {
    for (uint16_t n = 0; n < nodes; ++n) {
      TestNode& each = node(n);
      const JobMemory& job = each.memory->job();
      each.fabric = wrap(*each.memory);
      auto table = LineTable::map(kRegionSize, line_shift, job.tables_fd(), job.lines_at(NodeId(n)),
                                  node_memory::line_table_of_node(n));
      EXPECT_TRUE(table) << table.error().message;
      each.table.emplace(std::move(*table));
      each.memory->export_segment(SegmentId::kLines, each.table->bytes().data(), each.table->bytes().size());
      each.hazards = std::make_unique<HazardSlots>(NodeId(n), each.fabric->own_segment(SegmentId::kWords));
      each.driver =
          make({*each.fabric, *each.region, *each.rights, homes, WaitPolicy{20'000}}, {*each.table, *each.hazards});
    }
    for (unsigned n = 0; has_service && n < nodes; ++n)
      node(n).service = std::thread([this, &each = node(n)] {
        while (!stopping_.load()) {
          each.fabric->serve();
          each.driver->serve();
        }
      });
  }
  ~Machine() {
    stopping_ = true;
    for (unsigned n = 0; n < nodes(); ++n)
      if (node(n).service.joinable()) node(n).fabric->wake_service();
    for (unsigned n = 0; n < nodes(); ++n)
      if (node(n).service.joinable()) node(n).service.join();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] unsigned line_shift() const { return shift_; }
  [[nodiscard]] uint64_t word(unsigned n, uint64_t offset) { return node(n).table->word(offset >> shift_).load(); }
  // Returns the contents of a node's frame, without a check.
  [[nodiscard]] uint64_t raw(unsigned n, uint64_t offset) {
    uint64_t value;
    std::memcpy(&value, node(n).region->alias(PageId(0)) + offset, sizeof value);
    return value;
  }

 private:
  const unsigned shift_;
  std::atomic<bool> stopping_{false};
};

// While this exists, the calling thread is a processor of a node.
class CheckedProcessor {
 public:
  CheckedProcessor(Machine& machine, unsigned node)
      : node_(machine.node(node)),
        shift_(machine.line_shift()),
        view_(reinterpret_cast<uintptr_t>(node_.region->base())) {
    node_.hazards->bind();
  }
  ~CheckedProcessor() { node_.hazards->unbind(); }
  CheckedProcessor(const CheckedProcessor&) = delete;
  CheckedProcessor& operator=(const CheckedProcessor&) = delete;

  // These are a checked load and a checked store of the word of 64 or 32 bits at `offset` of the region.
  template <typename Word = uint64_t>
  Word load(uint64_t offset) {
    const Word value = at<Word>(offset).load(std::memory_order_relaxed);
    if (static_cast<uint32_t>(value) != MG_FINE_FLAG32) return value;
    Word missed = 0;
    node_.driver->load(view_ + offset, std::as_writable_bytes(std::span(&missed, 1)));
    return missed;
  }
  template <typename Word = uint64_t>
  void store(uint64_t offset, std::type_identity_t<Word> value) {
    if (!try_begin_store(offset) && node_.driver->store(view_ + offset, std::as_bytes(std::span(&value, 1)))) return;
    at<Word>(offset).store(value, std::memory_order_relaxed);
    close();
  }
  uint64_t add(uint64_t offset, uint64_t addend) {
    open(offset);
    const uint64_t old = at(offset).fetch_add(addend);
    close();
    return old;
  }
  uint64_t exchange(uint64_t offset, uint64_t value) {
    open(offset);
    const uint64_t old = at(offset).exchange(value);
    close();
    return old;
  }
  // Adds to a word of each of two lines in one batch, or to none. Returns whether the batch could begin.
  bool add_to_both(uint64_t first, uint64_t second, uint64_t addend) {
    std::atomic_ref<uint64_t> one(__multigrain_hazards[0]), other(__multigrain_hazards[1]);
    one.store(make_hazard(first >> shift_, 1, true));
    other.store(make_hazard(second >> shift_, 1, true));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool opened = node_.table->word(first >> shift_).load() == MG_FINE_EXCLUSIVE &&
                        node_.table->word(second >> shift_).load() == MG_FINE_EXCLUSIVE;
    if (opened) {
      auto& a = at(first);
      auto& b = at(second);
      a.store(a.load(std::memory_order_relaxed) + addend, std::memory_order_relaxed);
      b.store(b.load(std::memory_order_relaxed) + addend, std::memory_order_relaxed);
    }
    one.store(0, std::memory_order_release);
    other.store(0, std::memory_order_release);
    return opened;
  }
  void fetch_lines(uint64_t offset, uint64_t bytes, bool to_store) {
    node_.driver->fetch_lines(view_ + offset, view_ + offset + bytes, to_store);
  }
  [[nodiscard]] LineMemory& driver() { return *node_.driver; }
  [[nodiscard]] Fabric& fabric() { return *node_.fabric; }
  [[nodiscard]] uintptr_t address(uint64_t offset) const { return view_ + offset; }

 private:
  template <typename Word = uint64_t>
  std::atomic<Word>& at(uint64_t offset) {
    return *reinterpret_cast<std::atomic<Word>*>(view_ + offset);
  }
  bool try_begin_store(uint64_t offset) {
    const uint64_t line = offset >> shift_;
    std::atomic_ref<uint64_t>(__multigrain_hazards[0]).exchange(make_hazard(line, 1, true));
    if (node_.table->word(line).load() == MG_FINE_EXCLUSIVE) return true;
    close();
    return false;
  }
  void open(uint64_t offset) {
    if (!try_begin_store(offset)) node_.driver->begin_store(view_ + offset);
  }
  void close() { std::atomic_ref<uint64_t>(__multigrain_hazards[0]).store(0, std::memory_order_release); }

  TestNode& node_;
  const unsigned shift_;
  const uintptr_t view_;
};

struct Shape {
  unsigned nodes, processors, line_shift;
};
inline std::string in_words(const Shape& shape) {
  return std::to_string(shape.nodes) + "x" + std::to_string(shape.processors) + "Lines" +
         std::to_string(1u << shape.line_shift);
}

template <typename Body>
void run(Machine& machine, const Shape& shape, Body&& body) {
  const unsigned total = shape.nodes * shape.processors;
  std::barrier meeting(total);
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < total; ++p)
    threads.emplace_back([&, p] {
      CheckedProcessor processor(machine, p / shape.processors);
      meeting.arrive_and_wait();
      body(processor, p);
    });
  for (std::thread& thread : threads) thread.join();
}

// Every processor adds to counters that all share, and to one of its own that lies in the same lines.
inline void no_update_is_lost(Machine& machine, const Shape& shape) {
  constexpr unsigned kRounds = 8000, kCounters = 4;
  run(machine, shape, [&](CheckedProcessor& p, unsigned me) {
    std::mt19937 random(me);
    const uint64_t mine = 64 + 8 * uint64_t{me};
    for (uint64_t i = 0; i < kRounds; ++i) {
      p.add((random() % kCounters) * (kPage + 8), 1);
      p.store(mine, i);
      ASSERT_EQ(p.load(mine), i);
      // There are more processors than cores. Without this, one would be done before the next begins.
      if (random() % 16 == 0) std::this_thread::yield();
    }
  });
  uint64_t sum = 0;
  CheckedProcessor p(machine, shape.nodes - 1);
  for (uint64_t i = 0; i < kCounters; ++i) sum += p.load(i * (kPage + 8));
  EXPECT_EQ(sum, uint64_t{kRounds} * shape.nodes * shape.processors);
}

// Two words that are changed only in batches are equal for every processor that looks at both in a batch, or under the
// same lock.
inline void a_batch_is_one_moment(Machine& machine, const Shape& shape) {
  constexpr uint64_t kFirst = 40, kSecond = 3 * kPage + 2048, kRounds = 3000;
  std::atomic<uint64_t> done{0};
  run(machine, shape, [&](CheckedProcessor& p, unsigned) {
    for (uint64_t i = 0; i < kRounds;) {
      p.fetch_lines(kFirst, 8, true);
      p.fetch_lines(kSecond, 8, true);
      if (!p.add_to_both(kFirst, kSecond, 1)) {
        std::this_thread::yield();
        continue;
      }
      if (++i % 8 == 0) std::this_thread::yield();
      ++done;
    }
  });
  CheckedProcessor p(machine, 0);
  // Processors of a node race in the batch, so updates may be lost. With one processor a node, both words lose the same
  // updates.
  if (shape.processors == 1) {
    EXPECT_EQ(p.load(kFirst), done.load());
    EXPECT_EQ(p.load(kSecond), done.load());
  }
}

// A spin lock is made of checked accesses. Mutual exclusion needs sequential consistency across nodes.
inline void a_spin_lock_excludes(Machine& machine, const Shape& shape) {
  constexpr uint64_t kLock = 5 * kPage, kData = 6 * kPage + 72;
  constexpr unsigned kRounds = 2000;
  run(machine, shape, [&](CheckedProcessor& p, unsigned) {
    for (unsigned i = 0; i < kRounds; ++i) {
      while (p.exchange(kLock, 1) != 0) {
        for (unsigned spins = 0; p.load(kLock) != 0; ++spins)
          if (spins % 64 == 63) std::this_thread::yield();
      }
      const uint64_t seen = p.load(kData);
      p.store(kData, seen + 1);
      p.store(kLock, 0);
      if (i % 8 == 0) std::this_thread::yield();
    }
  });
  CheckedProcessor p(machine, 0);
  EXPECT_EQ(p.load(kData), uint64_t{kRounds} * shape.nodes * shape.processors);
}

// This is store buffering: two processors each store and then look at the other's word. One of them must see the
// other's store.
inline void store_buffering_shows_no_old_values(Machine& machine, const Shape& shape) {
  if (shape.nodes < 2) return;
  constexpr uint64_t kRounds = 400;
  std::vector<std::atomic<uint64_t>> seen(2);
  std::barrier meeting(2);
  std::vector<std::thread> threads;
  for (unsigned me = 0; me < 2; ++me)
    threads.emplace_back([&, me] {
      CheckedProcessor p(machine, me);
      for (uint64_t round = 1; round <= kRounds; ++round) {
        meeting.arrive_and_wait();
        p.store(me * 8 + (round % 2) * kPage, round);
        seen[me] = p.load((1 - me) * 8 + (round % 2) * kPage);
        meeting.arrive_and_wait();
        ASSERT_TRUE(seen[0] == round || seen[1] == round) << round;
        meeting.arrive_and_wait();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// A line goes to each of three nodes and on. `change` stores there what a node adds to 0.
inline void a_line_goes_where_it_is_wanted(
    Machine& machine, const std::function<void(CheckedProcessor&, uint64_t offset, uint64_t value)>& change) {
  constexpr uint64_t kAt = 0;  // at home on node 0
  constexpr uint64_t kInvalid = 0, kReadable = MG_FINE_READABLE, kExclusive = MG_FINE_EXCLUSIVE;
  {
    CheckedProcessor p(machine, 1);
    EXPECT_EQ(p.load(kAt), 0u);  // two hops, from a home that has never touched the line
    EXPECT_EQ(machine.word(1, kAt), kReadable);
    p.store(kAt, 11);  // an upgrade
    EXPECT_EQ(machine.word(1, kAt), kExclusive);
    EXPECT_EQ(machine.raw(0, kAt), MG_FINE_FLAG64);
  }
  {
    CheckedProcessor p(machine, 2);
    EXPECT_EQ(p.load(kAt), 11u);  // three hops
    EXPECT_EQ(machine.word(1, kAt), kReadable);
    EXPECT_EQ(p.load(kAt + 8), 0u);
  }
  {
    CheckedProcessor p(machine, 0);
    EXPECT_EQ(p.load(kAt), 11u);  // the home is a third reader
    EXPECT_NE(machine.word(0, kAt) & kReadable, 0u);
    p.store(kAt, 12);
    EXPECT_EQ(machine.word(0, kAt), kExclusive);
    EXPECT_EQ(machine.word(1, kAt), kInvalid);
    EXPECT_EQ(machine.word(2, kAt), kInvalid);
    EXPECT_EQ(machine.raw(1, kAt), MG_FINE_FLAG64);
    EXPECT_EQ(machine.raw(2, kAt + 8), MG_FINE_FLAG64);
  }
  {
    CheckedProcessor p(machine, 2);
    change(p, kAt + 8, 13);  // ownership goes from the home
    EXPECT_EQ(machine.word(2, kAt), kExclusive);
    EXPECT_EQ(machine.raw(2, kAt), 12u);
  }
  {
    CheckedProcessor p(machine, 1);
    p.store(kAt + 16, 14);  // ownership goes from a node that is not the home
    EXPECT_EQ(p.load(kAt), 12u);
    EXPECT_EQ(p.load(kAt + 8), 13u);
    EXPECT_EQ(machine.word(2, kAt), kInvalid);
    EXPECT_EQ(machine.raw(2, kAt), MG_FINE_FLAG64);
  }
}

// Compiled checks let every store to such pages pass. `p` is a processor of node 0.
inline void pages_of_another_protocol_are_left_to_it(Machine& machine, CheckedProcessor& p) {
  const uint64_t at = InterleavedHomes::kPageGrain * kPage;
  p.driver().begin_store(p.address(at + 128));
  std::atomic_ref<uint64_t>(__multigrain_hazards[0]).store(0);
  for (uint64_t line = 0; line < kPage / 64; ++line) EXPECT_EQ(machine.word(0, at + line * 64), MG_FINE_EXCLUSIVE);
  EXPECT_EQ(machine.word(0, at + kPage), 0u);
}

// A node takes a right from a processor only between its hazards. Node 1 holds a hazard, and node 0 wants the line.
inline void a_right_is_taken_between_hazards(Machine& machine, bool stores) {
  std::atomic<int> stage{0};
  std::thread holder([&] {
    CheckedProcessor p(machine, 1);
    p.store(0, 1);
    std::atomic_ref<uint64_t> hazard(__multigrain_hazards[3]);
    hazard.exchange(make_hazard(0, 2, stores));
    ASSERT_EQ(machine.word(1, 0), MG_FINE_EXCLUSIVE);
    stage = 1;
    for (uint64_t i = 2; i < 2000; ++i) {
      if (stores) reinterpret_cast<std::atomic<uint64_t>*>(p.address(0))->store(i, std::memory_order_relaxed);
      EXPECT_EQ(reinterpret_cast<std::atomic<uint64_t>*>(p.address(0))->load(), stores ? i : 1);
      if (i == 1000) {
        while (stage != 2) std::this_thread::yield();
        usleep(1000);  // the requester is waiting for the hazard by now
      }
    }
    hazard.store(0, std::memory_order_release);
  });
  while (stage != 1) std::this_thread::yield();
  stage = 2;
  CheckedProcessor p(machine, 0);
  EXPECT_EQ(p.add(0, 10), stores ? 1999u : 1u);
  holder.join();
  EXPECT_EQ(machine.word(1, 0), 0u);
}

// A reader does not wait for hazards of loads.
inline void a_reader_does_not_wait_for_hazards_of_loads(Machine& machine) {
  CheckedProcessor p(machine, 0);
  std::thread([&] {
    CheckedProcessor q(machine, 1);
    q.store(0, 5);
  }).join();
  std::atomic<bool> ready{false}, over{false};
  std::thread reader([&] {
    CheckedProcessor q(machine, 1);
    std::atomic_ref<uint64_t>(__multigrain_hazards[0]).exchange(make_hazard(0, 1, false));
    ready = true;
    while (!over) std::this_thread::yield();
    EXPECT_EQ(q.load(0), 5u);
    std::atomic_ref<uint64_t>(__multigrain_hazards[0]).store(0);
  });
  while (!ready) std::this_thread::yield();
  EXPECT_EQ(p.load(0), 5u);
  over = true;
  reader.join();
}

}  // namespace multigrain::line_tests
