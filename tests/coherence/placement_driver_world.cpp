#include "placement_driver_world.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "coherence/placement/driver.h"

namespace multigrain::placement::explored {

using exploring_pages::g_machine;
using exploring_pages::kMaxNodes;
using exploring_pages::kMaxPages;
using exploring_pages::kMaxWords;
using exploring_pages::Op;
using exploring_pages::OpType;
using exploring_pages::Outcome;
using exploring_pages::Right;

// What is granted is there, so an access may fault on one page so often if no hold ends before it is made.
constexpr unsigned kMostFaults = 1;

// This shows the insides of a driver. It may be used while a thread stands in the middle of the driver.
struct DriverState {
  using Record = Driver::Record;
  Driver& driver;

  [[nodiscard]] Record& record(unsigned page) const { return driver.records_[PageId(page)]; }
  [[nodiscard]] const Page& page(unsigned number) const {
    const Record& of = record(number);
    of.lock.assume_held();
    return of.page;
  }
  [[nodiscard]] uint64_t first_listed() const { return driver.listed_.load(); }
  [[nodiscard]] std::optional<uint64_t> first_of_list(const void* address) const {
    if (address == &driver.listed_) return driver.listed_.load();
    if (address == &driver.to_thaw_) return driver.to_thaw_.load();
    return std::nullopt;
  }
  [[nodiscard]] bool is_in_thaw_list(unsigned page) const {
    uint64_t at = driver.to_thaw_.load();
    for (unsigned n = 0; n < kMaxPages && at != 0 && at != page + 1; ++n) {
      const Record& next = record(static_cast<unsigned>(at - 1));
      next.lock.assume_held();
      at = next.next_to_thaw;
    }
    return at == page + 1;
  }
  // These are all parts of it that change and make a difference, as bytes.
  struct Saved {
    std::array<std::array<std::byte, sizeof(Record)>, kMaxPages> records;
    uint64_t listed = 0;
    uint64_t to_thaw = 0;
    std::array<uint8_t, kMaxPages> said_remote{};
  };
  [[nodiscard]] bool is_said_remote(unsigned page) const {
    return driver.has_remote_pages_ && driver.remote_pages_[PageId(page)].load() != 0;
  }
  void say_remote(unsigned page, uint8_t is) const {
    if (driver.has_remote_pages_) driver.remote_pages_[PageId(page)].store(is);
  }
  void save(Saved& saved) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      std::memcpy(saved.records[p].data(), static_cast<const void*>(&record(p)), sizeof(Record));
    for (unsigned p = 0; p < kMaxPages; ++p) saved.said_remote[p] = is_said_remote(p) ? 1 : 0;
    saved.listed = driver.listed_.load();
    saved.to_thaw = driver.to_thaw_.load();
  }
  void put_back(const Saved& saved) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      std::memcpy(static_cast<void*>(&record(p)), saved.records[p].data(), sizeof(Record));
    for (unsigned p = 0; p < kMaxPages; ++p) say_remote(p, saved.said_remote[p]);
    driver.listed_.store(saved.listed);
    driver.to_thaw_.store(saved.to_thaw);
  }
  void clear() const {
    for (unsigned p = 0; p < kMaxPages; ++p) std::construct_at(&record(p));
    for (unsigned p = 0; p < kMaxPages; ++p) say_remote(p, 0);
    driver.listed_.store(0);
    driver.to_thaw_.store(0);
  }
  void serialise(unsigned pages, std::vector<uint64_t>& out) const {
    out.push_back(driver.listed_.load() | driver.to_thaw_.load() << 32);
    for (unsigned n = 0; n < pages; ++n) {
      const Record& of = record(n);
      of.lock.assume_held();
      const Page& p = of.page;
      const Directory& d = p.directory;
      const bool is_served = d.work == Work::kDecide || d.work == Work::kServe;
      const auto byte = [](auto value) { return uint64_t{static_cast<uint8_t>(value)}; };
      out.push_back(byte(p.state) | byte(p.has_order ? p.order : MessageKind::kKindCount) << 8 |
                    uint64_t{p.has_request} << 16 | uint64_t{p.held} << 17 | uint64_t{p.has_order} << 18 |
                    uint64_t{of.is_begun} << 19 | uint64_t{of.is_used} << 20 | uint64_t{of.is_listed} << 21 |
                    uint64_t{of.is_to_thaw} << 22 | uint64_t{of.memo.is_placed} << 23 | byte(of.right) << 24 |
                    uint64_t{is_said_remote(n)} << 31 | byte(p.waiting_to_read) << 32 | byte(p.waiting_to_write) << 40 |
                    byte(p.returning) << 48);
      out.push_back((of.is_listed ? of.next_listed : 0) | (of.is_to_thaw ? of.next_to_thaw : 0) << 32);
      out.push_back(byte(d.placement) | uint64_t{d.is_written} << 3 | uint64_t{d.has_to_thaw} << 4 | byte(d.pin) << 5 |
                    byte(d.work) << 8 | d.holders.bits() << 16 | d.awaited.bits() << 24 | d.readers.bits() << 32 |
                    d.writers.bits() << 40 | d.discarders.bits() << 48);
      out.push_back(d.turn | (is_served ? uint64_t{d.requester.value} << 16 | byte(d.access) << 32 : 0) |
                    (d.work == Work::kServe ? byte(d.location) << 40 : 0));
    }
  }
};

namespace {

bool g_is_pinned = false;

// Answers what the explorer wants.
class Adversary final : public Policy {
 public:
  Adversary(DriverAnswers answers, bool reconsiders) : answers_(answers), reconsiders_(reconsiders) {}
  [[nodiscard]] std::string name() const override { return "adversary"; }
  Decision first(BlockState&, const Reference&) override { return decide(); }
  Decision on_reference(BlockState&, const Reference&) override { return decide(); }
  [[nodiscard]] uint64_t reconsiders_after() const override { return reconsiders_ ? 1 : 0; }

 private:
  [[nodiscard]] Decision decide() const {
    if (g_is_pinned) g_machine->wrong = "the policy is asked about a page that is pinned";
    const bool is_local = answers_ == DriverAnswers::kAny ? g_machine->answer() : answers_ == DriverAnswers::kLocal;
    return is_local ? Decision::local() : Decision::global();
  }
  const DriverAnswers answers_;
  const bool reconsiders_;
};

class PinnedHomes final : public HomeDirectory {
 public:
  PinnedHomes(HomeDirectory& homes, Pin pin) : homes_(homes), pin_(pin) {}
  std::optional<NodeId> home_of(PageId page) override { return homes_.home_of(page); }
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return homes_.claim_home(page); }
  Pin pin_of(PageId) override { return pin_; }

 private:
  HomeDirectory& homes_;
  const Pin pin_;
};

class Machine final : public exploring_pages::MachineOf<Driver, DriverState> {
 public:
  explicit Machine(const DriverScenario& scenario)
      : MachineOf({.nodes = scenario.nodes,
                   .homes = scenario.homes,
                   .processors = scenario.processors,
                   .programs = scenario.programs,
                   .most_faults = kMostFaults}),
        pin_(scenario.pin),
        remote_(scenario.remote),
        checks_(scenario.checks),
        pinned_(homes, scenario.pin) {
    for (const auto& program : scenario.programs)
      for (const Op& op : program) reconsiders_ = reconsiders_ || op.type == OpType::kThaw;
    for (unsigned n = 0; n < scenario.nodes; ++n) files_.push_back(nodes[n].memory->region().frames_fd());
    for (uint16_t n = 0; n < scenario.nodes; ++n) {
      exploring_pages::NodeOf& node = nodes[n];
      NodeServices services{*node.fabric, node.memory->region(), node.rights, pinned_, WaitPolicy{}};
      if (!remote_) services.frames_of_nodes = files_;
      auto driver = Driver::create(services, std::make_unique<Adversary>(scenario.answers, reconsiders_));
      if (!driver) panic("no driver for a node:", n);
      drivers_[n] = std::move(*driver);
    }
  }

  [[nodiscard]] const EventCount* granted(unsigned node, unsigned page, bool is_write) const override {
    const auto& record = state(node).record(page);
    return is_write ? &record.writers : &record.readers;
  }
  [[nodiscard]] std::optional<uint64_t> first_of_list(unsigned node, const void* address) const override {
    return state(node).first_of_list(address);
  }
  void save(unsigned node, Saved& saved) const override {
    OfDriver all;
    state(node).save(all.driver);
    all.mapped = mapped_[node];
    saved.resize(sizeof all);
    std::memcpy(saved.data(), &all, sizeof all);
  }
  void put_back(unsigned node, const Saved& saved) override {
    OfDriver all;
    std::memcpy(&all, saved.data(), sizeof all);
    state(node).put_back(all.driver);
    mapped_[node] = all.mapped;
  }
  void clear(unsigned node) override {
    state(node).clear();
    mapped_[node].fill(node);
  }
  void serialise(unsigned node, std::vector<uint64_t>& out) const override {
    state(node).serialise(pages(), out);
    for (unsigned p = 0; p < pages(); ++p) out.push_back(mapped_[node][p]);
  }
  [[nodiscard]] std::string in_words(const exploring_pages::Packet& packet) const override {
    return fmt::format("{} for page {}, right {}, content {}", message_name(packet.header.type), packet.header.word[0],
                       packet.header.small, packet.header.flags);
  }

  // A mapping of another node's frames has all rights.
  [[nodiscard]] bool is_elsewhere(unsigned node, unsigned page) const { return mapped_[node][page] != node; }
  [[nodiscard]] bool allows(unsigned node, unsigned page, bool is_write) const override {
    return is_elsewhere(node, page) || nodes[node].rights.allows(page, is_write);
  }
  [[nodiscard]] uint64_t* words(unsigned node, unsigned page) const override {
    return frame(mapped_[node][page], page);
  }
  [[nodiscard]] bool is_remote(unsigned node, unsigned page) const override {
    const auto& record = state(node).record(page);
    record.lock.assume_held();
    return remote_ && record.right == State::kGlobal && parts.homes[page] != node;
  }
  [[nodiscard]] bool looks_first() const override { return checks_; }
  [[nodiscard]] bool is_said_remote(unsigned node, unsigned page) const override {
    return state(node).is_said_remote(page);
  }
  void execute_by_references(const Op& op) override {
    exploring_pages::Thread& thread = *running;
    uint64_t& reg = thread.registers[op.reg];
    const auto place = [&](unsigned page, bool is_write) {
      thread.page = page;
      thread.is_write = is_write;
      thread.records.clear();
      return PageId(page);
    };
    const uint64_t offset = op.word * sizeof(uint64_t);
    const auto bytes_of = [](auto& value) { return std::as_writable_bytes(std::span(&value, 1)); };
    Driver& own = driver(thread.node);
    bool is_allocated = true;
    if (op.type != OpType::kStore) {
      uint64_t value = 0;
      is_allocated = own.load(place(op.page, false), offset, bytes_of(value));
      reg = value;
    }
    uint64_t value = op.type == OpType::kStore ? op.value : reg;
    if (op.type == OpType::kStore || op.type == OpType::kMove)
      is_allocated = own.store(place(op.type == OpType::kMove ? op.to : op.page, true), offset, bytes_of(value));
    while (op.type == OpType::kAdd) {
      uint64_t found = reg;
      is_allocated = own.compare_and_swap(place(op.page, true), offset, found, reg + op.value);
      if (found == reg) break;
      reg = found;
    }
    if (!is_allocated) panic("a page is not allocated:", op.page);
  }
  // (P1) While a thread refers to another node's frame, no node has a copy of the page.
  void check_reference(unsigned at, unsigned page) override {
    for (unsigned n = 0; n < parts.nodes && at != running->node; ++n)
      if (n != at && allows(n, page, false))
        wrong = fmt::format("P1: a thread of node {} refers to page {} at node {}, and node {} may use its own copy",
                            running->node, page, at, n);
  }
  void carry_out(const Op& op) override {
    MG_CHECK(op.type == OpType::kThaw);
    driver(running->node).catch_up();
  }
  // The driver maps a page of the view of the node that runs, from this file.
  void map(unsigned page, int file) {
    const unsigned node = running->node;
    mapped_[node][page] = static_cast<unsigned>(std::ranges::find(files_, file) - files_.begin());
    nodes[node].rights.forget(page);
  }

  [[nodiscard]] std::string check() const override;
  [[nodiscard]] std::string check_end() const override;
  [[nodiscard]] unsigned holder(unsigned page) const override {
    const Directory& entry = state(parts.homes[page]).page(page).directory;
    return entry.placement == Placement::kLocalWritable ? entry.holders.first().value : parts.homes[page];
  }

 private:
  // The node whose frames are mapped at each page of the view.
  using Mapped = std::array<unsigned, kMaxPages>;
  struct OfDriver {
    DriverState::Saved driver;
    Mapped mapped;
  };
  [[nodiscard]] std::string check(unsigned node, unsigned page) const;

  const Pin pin_;
  const bool remote_;
  const bool checks_;
  PinnedHomes pinned_;
  bool reconsiders_ = false;
  std::vector<int> files_;
  std::array<Mapped, kMaxNodes> mapped_{};
};

// (P1), in what the views allow: if a node may write a frame, no node uses another one.
std::string Machine::check() const {
  for (unsigned p = 0; p < pages(); ++p)
    for (unsigned n = 0; n < parts.nodes; ++n) {
      for (unsigned other = 0; other < parts.nodes && allows(n, p, true); ++other)
        if (allows(other, p, false) && mapped_[other][p] != mapped_[n][p])
          return fmt::format("P1: node {} may write page {} in node {}'s frame, and node {} may use it in node {}'s", n,
                             p, mapped_[n][p], other, mapped_[other][p]);
      if (std::string what = check(n, p); !what.empty()) return what;
    }
  return {};
}

// (D1) to (D3), and (D6), which hold whenever the page's lock is free.
std::string Machine::check(unsigned node, unsigned page) const {
  auto& lock = const_cast<SpinLock&>(this->lock(node, page));
  if (!lock.try_lock()) return {};
  lock.unlock();
  const auto& record = state(node).record(page);
  const Page& of = state(node).page(page);
  const bool is_home = parts.homes[page] == node;
  const unsigned mapped = of.state == State::kGlobal && !remote_ ? parts.homes[page] : node;
  if (mapped_[node][page] != mapped)
    return fmt::format("D1: node {}'s frame of page {} is mapped at node {}, which should use node {}'s",
                       mapped_[node][page], page, node, mapped);
  const bool is_elsewhere = of.state == State::kGlobal && !is_home;
  const Right most = of.state == State::kRead                   ? Right::kRead
                     : of.state == State::kNone || is_elsewhere ? Right::kNone
                                                                : Right::kWrite;
  if (nodes[node].rights.of(page) > most)
    return fmt::format("D1: node {} has more rights to page {} than its state says", node, page);
  record.lock.assume_held();
  if (remote_ && state(node).is_said_remote(page) != (record.right == State::kGlobal && !is_home))
    return fmt::format("D6: the table of node {} does not say whether page {} is remote", node, page);
  if (of.waits_for_hold() && of.returning == 0 && !record.is_listed)
    return fmt::format("D2: an order waits at node {} for page {}, which is not in the list", node, page);
  const Directory& entry = of.directory;
  const bool is_to_thaw = reconsiders_ && is_home && pin_ == Pin::kNone && entry.work == Work::kNone &&
                          entry.placement == Placement::kGlobalWritable && !entry.holders.empty();
  if (is_to_thaw && !record.is_to_thaw && !entry.has_to_thaw)
    return fmt::format("D3: page {} is in global memory, and is never thawed", page);
  return {};
}

std::string Machine::check_end() const {
  for (unsigned p = 0; p < pages(); ++p) {
    const unsigned home = parts.homes[p];
    const Directory& entry = state(home).page(p).directory;
    if (entry.work != Work::kNone || !entry.readers.empty() || !entry.writers.empty() || entry.has_to_thaw)
      return fmt::format("the entry of page {} is not at rest in the end", p);
    if (pin_ != Pin::kNone && !entry.holders.empty() &&
        (pin_ == Pin::kGlobal) != (entry.placement == Placement::kGlobalWritable))
      return fmt::format("P7: page {} is not where it is pinned", p);
    // (D3), when no thread is in the middle of the list.
    if (reconsiders_ && pin_ == Pin::kNone && entry.placement == Placement::kGlobalWritable && !entry.holders.empty() &&
        !state(home).is_in_thaw_list(p))
      return fmt::format("D3: page {} is in global memory in the end, and is never thawed", p);
    const State suits = entry.placement == Placement::kReadOnly        ? State::kRead
                        : entry.placement == Placement::kLocalWritable ? State::kWrite
                                                                       : State::kGlobal;
    for (unsigned n = 0; n < parts.nodes; ++n) {
      const Page& page = state(n).page(p);
      if (page.has_request || page.has_order || page.waiting_to_read != 0 || page.waiting_to_write != 0 ||
          page.returning != 0)
        return fmt::format("page {} is not at rest at node {} in the end", p, n);
      const bool has = entry.holders.contains(NodeId(static_cast<uint16_t>(n)));
      if (page.state != (has ? suits : State::kNone))
        return fmt::format("P2: the entry of page {} does not say what node {} has of it", p, n);
      if (has && suits == State::kRead && !std::equal(frame(n, p), frame(n, p) + kMaxWords, frame(home, p)))
        return fmt::format("P2: node {}'s copy of page {} is not what is in global memory", n, p);
    }
  }
  for (unsigned n = 0; n < parts.nodes; ++n)
    if (state(n).first_listed() != 0) return fmt::format("node {} has a list of pages with holds in the end", n);
  return {};
}

}  // namespace

std::set<Outcome> allowed_outcomes(const DriverScenario& scenario) {
  return page_programs::sequential_outcomes(
      scenario.remote ? page_programs::with_moves_in_two(scenario.programs) : scenario.programs, scenario.homes.size());
}

World::World(const Scenario& scenario) : exploring_pages::World(std::make_unique<Machine>(scenario)) {
  g_mutant = scenario.mutant;
  g_is_pinned = scenario.pin != Pin::kNone;
}

World::~World() {
  g_mutant = Mutant::kNone;
}

}  // namespace multigrain::placement::explored

// The linker has the product's calls of mmap() come here (tests/coherence/CMakeLists.txt, --wrap). Those that a driver makes while
// it is explored are noted, and not made: the view is not used.
extern "C" {
void* __real_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset);

// NOLINTNEXTLINE(bugprone-reserved-identifier): the linker's name
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  using multigrain::exploring_pages::g_machine;
  using multigrain::exploring_pages::kPage;
  if (g_machine == nullptr || g_machine->running == nullptr)
    return __real_mmap(at, size, protection, flags, file, offset);
  MG_CHECK((flags & MAP_FIXED) != 0 && size == kPage);
  static_cast<multigrain::placement::explored::Machine*>(g_machine)->map(static_cast<unsigned>(offset / kPage), file);
  return at;
}
}
