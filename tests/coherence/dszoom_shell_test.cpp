// DSZOOM at work: several nodes in this process over the shm fabric, each with its own region, line table and windows,
// and accesses as compiled checks make them (docs/fine-grain.md), spelled out here.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "coherence/dszoom/shell.h"
#include "fabric/forwarding_fabric.h"
#include "fabric/shm/shm_fabric.h"

namespace multigrain::dszoom {
namespace {

constexpr uint64_t kRegionSize = uint64_t{16} << 20;
constexpr uint64_t kStride = uint64_t{1} << 30;  // between the regions, and the tables, of two nodes

class InterleavedHomes final : public HomeDirectory {
 public:
  explicit InterleavedHomes(unsigned nodes) : nodes_(nodes) {}
  std::optional<NodeId> home_of(PageId page) override { return NodeId(static_cast<uint16_t>(page.value % nodes_)); }
  bool is_first_touch(PageId) override { return false; }
  std::optional<Grain> grain_of(PageId page) override {
    if (page.value >= kUnallocated) return std::nullopt;
    return page.value >= kPageGrain ? Grain::kPage : Grain::kLine;
  }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }

  static constexpr uint64_t kPageGrain = 2000, kUnallocated = 3000;

 private:
  const unsigned nodes_;
};

// Nothing but memory operations, which are counted: nobody on another node takes part in a miss.
class OneSided final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
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
  Completion start_get_after(Completion e, NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override {
    return inner().start_get_after(e, count(from), s, o, b);
  }
  Completion start_fetch_and_set(NodeId at, SegmentId s, uint64_t o, uint64_t v, uint64_t& old) override {
    return inner().start_fetch_and_set(count(at), s, o, v, old);
  }
  void set_handler(MessageType, MessageHandler, void*) override { panic("DSZOOM registers a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("DSZOOM sends a message");
  }
  unsigned poll() override { return 0; }
  void serve() override { panic("DSZOOM needs a service thread"); }

  [[nodiscard]] uint64_t remote() const { return remote_.load(); }

 private:
  NodeId count(NodeId node) {
    if (node != self()) remote_.fetch_add(1, std::memory_order_relaxed);
    return node;
  }
  std::atomic<uint64_t> remote_{0};
};

struct TestNode {
  std::optional<Region> region;
  std::unique_ptr<AccessRights> rights;
  std::unique_ptr<ShmFabric> memory;
  std::unique_ptr<OneSided> fabric;
  std::optional<LineTable> table;
  std::unique_ptr<WindowPlaces> places;
  std::unique_ptr<Shell> shell;
};

std::vector<std::unique_ptr<TestNode>>* g_nodes = nullptr;

void on_signal(int signal, siginfo_t* info, void* context) {
  for (const auto& node : *g_nodes) {
    if (const auto fault = node->rights->decode(signal, info, context)) {
      if (node->shell->on_fault(fault->page, fault->is_write)) return;
    }
  }
  ::signal(signal, SIG_DFL);
}

// A processor of node n: the calling thread, as long as it lives.
class Processor;

class Machine {
 public:
  explicit Machine(unsigned nodes, unsigned line_shift = 6, AccessMechanism access = AccessMechanism::kMprotect)
      : homes_(nodes), shift_(line_shift) {
    auto job_fd = create_job_memory(
        {.nodes = nodes, .processors_per_node = 1, .page_size = 4096, .region_size = kRegionSize});
    EXPECT_TRUE(job_fd) << job_fd.error().message;
    auto job = JobMemory::map(*job_fd);
    EXPECT_TRUE(job) << job.error().message;
    std::vector<int> frames;
    for (unsigned n = 0; n < nodes; ++n) {
      auto node = std::make_unique<TestNode>();
      auto region =
          Region::create(kRegionSize, 4096, -1,
                         {.view = layout::kViewBase + n * kStride, .alias = layout::kAliasBase + n * kStride});
      EXPECT_TRUE(region) << region.error().message;
      node->region.emplace(std::move(*region));
      frames.push_back(node->region->frames_fd());
      nodes_.push_back(std::move(node));
    }
    g_nodes = &nodes_;
    for (uint16_t n = 0; n < nodes; ++n) {
      TestNode& node = *nodes_[n];
      auto fabric = ShmFabric::attach(*job_fd, NodeId(n), frames, kRegionSize);
      EXPECT_TRUE(fabric) << fabric.error().message;
      node.memory = std::move(*fabric);
      node.fabric = std::make_unique<OneSided>(*node.memory);
      auto table = LineTable::map(kRegionSize, line_shift, job->lines_fd(), job->lines_at(NodeId(n)),
                                  layout::kTablesBase + layout::kTablesSize - (n + 1) * kStride + 4096);
      EXPECT_TRUE(table) << table.error().message;
      node.table.emplace(std::move(*table));
      node.memory->export_segment(SegmentId::kFrames, node.region->alias(PageId(0)), kRegionSize);
      node.memory->export_segment(SegmentId::kLines, node.table->bytes().data(), node.table->bytes().size());
      node.places = std::make_unique<WindowPlaces>(node.fabric->own_segment(SegmentId::kWords));
      auto rights = choose(access, *node.region);
      EXPECT_TRUE(rights) << rights.error().message;
      node.rights = std::move(*rights);
      auto shell = Shell::create({*node.fabric, *node.region, *node.rights, homes_, WaitPolicy{20'000}},
                                 {*node.table, *node.places});
      EXPECT_TRUE(shell) << shell.error().message;
      node.shell = std::move(*shell);
    }
    close(*job_fd);
    struct sigaction action = {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  }
  ~Machine() {
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
    g_nodes = nullptr;
  }

  [[nodiscard]] TestNode& node(unsigned n) { return *nodes_[n]; }
  [[nodiscard]] unsigned line_shift() const { return shift_; }
  [[nodiscard]] uint64_t word(unsigned n, uint64_t offset) { return node(n).table->word(offset >> shift_).load(); }
  // What is in the frame of a node, checked by nobody.
  [[nodiscard]] uint64_t raw(unsigned n, uint64_t offset) {
    uint64_t value;
    std::memcpy(&value, node(n).region->alias(PageId(0)) + offset, sizeof value);
    return value;
  }

 private:
  InterleavedHomes homes_;
  const unsigned shift_;
  std::vector<std::unique_ptr<TestNode>> nodes_;
};

class Processor {
 public:
  Processor(Machine& machine, unsigned node)
      : node_(machine.node(node)),
        shift_(machine.line_shift()),
        view_(reinterpret_cast<uintptr_t>(node_.region->base())) {
    node_.places->bind();
  }
  ~Processor() { node_.places->unbind(); }
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;

  // A checked load, and a checked store, of the 64-bit word at `offset` of the region.
  uint64_t load(uint64_t offset) {
    const uint64_t value = at(offset).load(std::memory_order_relaxed);
    if (static_cast<uint32_t>(value) != MG_FINE_FLAG32) return value;
    uint64_t missed = 0;
    node_.shell->load(view_ + offset, std::as_writable_bytes(std::span(&missed, 1)));
    return missed;
  }
  void store(uint64_t offset, uint64_t value) {
    open(offset);
    at(offset).store(value, std::memory_order_relaxed);
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
  // Two lines in one batch: adds to both words, or to none. Returns whether it could be opened.
  bool add_to_both(uint64_t first, uint64_t second, uint64_t addend) {
    std::atomic_ref<uint64_t> one(__multigrain_windows[0]), other(__multigrain_windows[1]);
    one.store(make_window(first >> shift_, 1, true));
    other.store(make_window(second >> shift_, 1, true));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool opened = node_.table->word(first >> shift_).load() == kExclusive &&
                        node_.table->word(second >> shift_).load() == kExclusive;
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
  void bring(uint64_t offset, uint64_t bytes, bool to_store) {
    node_.shell->bring(view_ + offset, view_ + offset + bytes, to_store);
  }
  [[nodiscard]] Shell& shell() { return *node_.shell; }
  [[nodiscard]] uintptr_t address(uint64_t offset) const { return view_ + offset; }
  [[nodiscard]] uint64_t remote() const { return node_.fabric->remote(); }

 private:
  std::atomic<uint64_t>& at(uint64_t offset) { return *reinterpret_cast<std::atomic<uint64_t>*>(view_ + offset); }
  void open(uint64_t offset) {
    const uint64_t line = offset >> shift_;
    std::atomic_ref<uint64_t>(__multigrain_windows[0]).exchange(make_window(line, 1, true));
    if (node_.table->word(line).load() == kExclusive) return;
    close();
    node_.shell->open_store(view_ + offset);
  }
  void close() { std::atomic_ref<uint64_t>(__multigrain_windows[0]).store(0, std::memory_order_release); }

  TestNode& node_;
  const unsigned shift_;
  const uintptr_t view_;
};

constexpr uint64_t kPage = 4096;

TEST(DszoomShell, ALineGoesWhereItIsWanted) {
  Machine machine(3);
  constexpr uint64_t kAt = 0;  // at home on node 0
  {
    Processor p(machine, 1);
    EXPECT_EQ(p.load(kAt), 0u);  // two hops, from a home that has never touched it
    EXPECT_EQ(machine.word(1, kAt), kReadable);
    p.store(kAt, 11);  // an upgrade
    EXPECT_EQ(machine.word(1, kAt), kExclusive);
    EXPECT_EQ(machine.raw(0, kAt), MG_FINE_FLAG64);
  }
  {
    Processor p(machine, 2);
    EXPECT_EQ(p.load(kAt), 11u);  // three hops
    EXPECT_EQ(machine.word(1, kAt), kReadable);
    EXPECT_EQ(p.load(kAt + 8), 0u);
  }
  {
    Processor p(machine, 0);
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
    Processor p(machine, 2);
    p.store(kAt + 8, 13);  // ownership goes from the home
    EXPECT_EQ(machine.word(2, kAt), kExclusive);
    EXPECT_EQ(machine.raw(2, kAt), 12u);
  }
  {
    Processor p(machine, 1);
    p.store(kAt + 16, 14);  // and from one that is not
    EXPECT_EQ(p.load(kAt), 12u);
    EXPECT_EQ(p.load(kAt + 8), 13u);
    EXPECT_EQ(machine.word(2, kAt), kInvalid);
    EXPECT_EQ(machine.raw(2, kAt), MG_FINE_FLAG64);
  }
}

// What the home has to itself costs it nothing, and a miss that the home serves takes three operations, of one round
// trip, and the release.
TEST(DszoomShell, AMissTakesAFewOperationsOfOneNode) {
  Machine machine(2);
  Processor home(machine, 0);
  for (uint64_t i = 0; i < 64; ++i) home.store(i * 64, i);
  EXPECT_EQ(home.remote(), 0u);
  std::thread([&] {
    Processor p(machine, 1);
    for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(p.load(i * 64), i);
    EXPECT_EQ(p.remote(), 64u * 4);
    const uint64_t before = p.remote();
    for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(p.load(i * 64), i);
    EXPECT_EQ(p.remote(), before);
  }).join();
}

// The program's value may be the flag value.
TEST(DszoomShell, TheFlagValueIsAValueLikeAnyOther) {
  Machine machine(2);
  Processor p(machine, 0);
  p.store(8, MG_FINE_FLAG64);
  p.store(16, MG_FINE_FLAG32);
  EXPECT_EQ(p.load(8), MG_FINE_FLAG64);
  std::thread([&] {
    ProcessorProfile profile;
    set_this_profile(profile);
    Processor q(machine, 1);
    EXPECT_EQ(q.load(8), MG_FINE_FLAG64);
    const uint64_t before = q.remote();
    EXPECT_EQ(q.load(8), MG_FINE_FLAG64);
    EXPECT_EQ(q.load(16), MG_FINE_FLAG32);
    EXPECT_EQ(q.remote(), before) << "a false miss is settled in the node";
    ProfileSnapshot seen;
    profile.snapshot(seen);
    EXPECT_EQ(seen.counters[static_cast<size_t>(Counter::kFalseMisses)], 2u);
    static ProcessorProfile nobody;
    set_this_profile(nobody);
  }).join();
}

TEST(DszoomShell, PagesOfAnotherProtocolAreLeftToIt) {
  Machine machine(2);
  Processor p(machine, 0);
  const uint64_t at = InterleavedHomes::kPageGrain * kPage;
  p.shell().open_store(p.address(at + 128));
  std::atomic_ref<uint64_t>(__multigrain_windows[0]).store(0);
  for (uint64_t line = 0; line < kPage / 64; ++line) EXPECT_EQ(machine.word(0, at + line * 64), kExclusive);
  EXPECT_EQ(machine.word(0, at + kPage), 0u);
  EXPECT_EQ(p.remote(), 0u);
}

// A right is taken from a processor only between its windows. Node 1 holds a window and node 0 wants the line.
TEST(DszoomShell, ARequesterWaitsForTheWindowsOnItsLine) {
  for (const bool stores : {true, false}) {
    Machine machine(2);
    std::atomic<int> stage{0};
    std::thread holder([&] {
      Processor p(machine, 1);
      p.store(0, 1);
      std::atomic_ref<uint64_t> window(__multigrain_windows[3]);
      window.exchange(make_window(0, 2, stores));
      ASSERT_EQ(machine.word(1, 0), kExclusive);
      stage = 1;
      for (uint64_t i = 2; i < 2000; ++i) {
        if (stores) reinterpret_cast<std::atomic<uint64_t>*>(p.address(0))->store(i, std::memory_order_relaxed);
        EXPECT_EQ(reinterpret_cast<std::atomic<uint64_t>*>(p.address(0))->load(), stores ? i : 1);
        if (i == 1000) {
          while (stage != 2) std::this_thread::yield();
          usleep(1000);  // the requester is at it
        }
      }
      window.store(0, std::memory_order_release);
    });
    while (stage != 1) std::this_thread::yield();
    stage = 2;
    Processor p(machine, 0);
    EXPECT_EQ(p.add(0, 10), stores ? 1999u : 1u);
    holder.join();
    EXPECT_EQ(machine.word(1, 0), kInvalid);
  }
}

// Loads alone do not make a reader wait.
TEST(DszoomShell, AReaderDoesNotWaitForWindowsOfLoads) {
  Machine machine(2);
  Processor p(machine, 0);
  std::thread([&] {
    Processor q(machine, 1);
    q.store(0, 5);
  }).join();
  std::atomic<bool> ready{false}, over{false};
  std::thread reader([&] {
    Processor q(machine, 1);
    std::atomic_ref<uint64_t>(__multigrain_windows[0]).exchange(make_window(0, 1, false));
    ready = true;
    while (!over) std::this_thread::yield();
    EXPECT_EQ(q.load(0), 5u);
    std::atomic_ref<uint64_t>(__multigrain_windows[0]).store(0);
  });
  while (!ready) std::this_thread::yield();
  EXPECT_EQ(p.load(0), 5u);
  over = true;
  reader.join();
}

struct Shape {
  unsigned nodes, processors, line_shift;
};

class DszoomStress : public testing::TestWithParam<Shape> {
 protected:
  template <typename Body>
  void run(Machine& machine, Body&& body) {
    const unsigned total = GetParam().nodes * GetParam().processors;
    std::barrier meeting(total);
    std::vector<std::thread> threads;
    for (unsigned p = 0; p < total; ++p)
      threads.emplace_back([&, p] {
        Processor processor(machine, p / GetParam().processors);
        meeting.arrive_and_wait();
        body(processor, p);
      });
    for (std::thread& thread : threads) thread.join();
  }
};

// Every processor adds to counters of all, and to one of its own that shares their lines.
TEST_P(DszoomStress, NoUpdateIsLost) {
  Machine machine(GetParam().nodes, GetParam().line_shift);
  constexpr unsigned kRounds = 8000, kCounters = 4;
  run(machine, [&](Processor& p, unsigned me) {
    std::mt19937 random(me);
    const uint64_t mine = 64 + 8 * uint64_t{me};
    for (uint64_t i = 0; i < kRounds; ++i) {
      p.add((random() % kCounters) * (kPage + 8), 1);
      p.store(mine, i);
      ASSERT_EQ(p.load(mine), i);
      // Processors outnumber cores: otherwise one would be done before the next begins.
      if (random() % 16 == 0) std::this_thread::yield();
    }
  });
  uint64_t sum = 0;
  Processor p(machine, GetParam().nodes - 1);
  for (uint64_t i = 0; i < kCounters; ++i) sum += p.load(i * (kPage + 8));
  EXPECT_EQ(sum, uint64_t{kRounds} * GetParam().nodes * GetParam().processors);
}

// Two words that are changed in batches only are equal for whoever looks at both in a batch, or under the same lock.
TEST_P(DszoomStress, ABatchIsOneMoment) {
  Machine machine(GetParam().nodes, GetParam().line_shift);
  constexpr uint64_t kFirst = 40, kSecond = 3 * kPage + 2048, kRounds = 3000;
  std::atomic<uint64_t> done{0};
  run(machine, [&](Processor& p, unsigned) {
    for (uint64_t i = 0; i < kRounds;) {
      p.bring(kFirst, 8, true);
      p.bring(kSecond, 8, true);
      if (!p.add_to_both(kFirst, kSecond, 1)) {
        std::this_thread::yield();
        continue;
      }
      if (++i % 8 == 0) std::this_thread::yield();
      ++done;
    }
  });
  Processor p(machine, 0);
  // Processors of a node race in the batch, so updates may be lost, but of both words alike on one processor a node.
  if (GetParam().processors == 1) {
    EXPECT_EQ(p.load(kFirst), done.load());
    EXPECT_EQ(p.load(kSecond), done.load());
  }
}

// A lock made of checked accesses: mutual exclusion needs sequential consistency across nodes.
TEST_P(DszoomStress, ASpinLockOfCheckedAccessesExcludes) {
  Machine machine(GetParam().nodes, GetParam().line_shift);
  constexpr uint64_t kLock = 5 * kPage, kData = 6 * kPage + 72;
  constexpr unsigned kRounds = 2000;
  run(machine, [&](Processor& p, unsigned) {
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
  Processor p(machine, 0);
  EXPECT_EQ(p.load(kData), uint64_t{kRounds} * GetParam().nodes * GetParam().processors);
}

// Store buffering: of two processors that store and then look at each other's word, one sees the other's store.
TEST_P(DszoomStress, StoreBufferingShowsNoOldValues) {
  if (GetParam().nodes < 2) return;
  Machine machine(GetParam().nodes, GetParam().line_shift);
  constexpr uint64_t kRounds = 400;
  std::vector<std::atomic<uint64_t>> seen(2);
  std::barrier meeting(2);
  std::vector<std::thread> threads;
  for (unsigned me = 0; me < 2; ++me)
    threads.emplace_back([&, me] {
      Processor p(machine, me);
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

INSTANTIATE_TEST_SUITE_P(Shapes, DszoomStress,
                         testing::Values(Shape{2, 1, 6}, Shape{2, 2, 6}, Shape{4, 1, 5}, Shape{3, 2, 8},
                                         Shape{3, 2, 11}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.nodes) + "x" + std::to_string(shape.param.processors) +
                                  "Lines" + std::to_string(1u << shape.param.line_shift);
                         });

}  // namespace
}  // namespace multigrain::dszoom
