#include "coherence/dszoom/driver.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "base/steps.h"
#include "coherence/line_costs.h"
#include "profile/virtual_time.h"

namespace multigrain::dszoom {
namespace {

uint64_t random_of_thread() {
  [[gnu::tls_model("initial-exec")]] static constinit thread_local uint64_t state = 0;
  if (state == 0) state = reinterpret_cast<uintptr_t>(&state) ^ ticks();
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

// --- Start

Driver::Driver(const NodeServices& services, const LineServices& lines, unsigned most_ahead, Runs runs,
               RightsAhead rights_ahead)
    : LineDriver(services, lines, most_ahead), runs_(runs), rights_ahead_(rights_ahead) {
  for (auto& slots : slots_of_) slots.store(4, std::memory_order_relaxed);
}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, const LineServices& lines,
                                               unsigned most_ahead, Runs runs, RightsAhead rights_ahead) {
  if (services.fabric.nodes() > kMaxNodes)
    return fail("the protocol dszoom has directory entries for {} nodes, and the machine has {}", kMaxNodes,
                services.fabric.nodes());
  std::unique_ptr<Driver> driver(new Driver(services, lines, most_ahead, runs, rights_ahead));
  auto pages = SparseTable<LinePage>::create(services.region.page_count(), "pages kept coherent by lines");
  if (!pages) return tl::unexpected(pages.error());
  driver->pages_ = std::move(*pages);
  auto outboxes = SparseTable<Outbox>::create(words::kHazardSlots, "releases of directory entries");
  if (!outboxes) return tl::unexpected(outboxes.error());
  driver->outboxes_ = std::move(*outboxes);
  auto locks = SparseTable<LineLock>::create(kLocks, "locks of lines");
  if (!locks) return tl::unexpected(locks.error());
  driver->locks_ = std::move(*locks);
  if (auto made = driver->start_learning_runs(); !made) return tl::unexpected(made.error());
  auto updates = UpdateHistory::create(services.region.page_count() * driver->lines_of_page(), words::kHazardSlots);
  if (!updates) return tl::unexpected(updates.error());
  driver->updates_ = std::move(*updates);
  return driver;
}

// --- Pages

// Handles the first touch of a page at this node. Returns false if the page is not allocated.
bool Driver::touch(PageId page, LinePage& record) {
  if (record.touched.load(std::memory_order_acquire)) return true;
  FirstTouches touches;
  if (!settle_homes(page, record, touches)) return false;
  if (!lock(touches)) return true;
  make_ready(touches);
  for (uint32_t i = 0; i < touches.count; ++i) {
    if (home_of(*touches.pages[i]) != self_) continue;
    // The home has every line that no other node has asked for. Compiled stores need to see that in the lines' words.
    const uint64_t first = touches.page(i).value * lines_of_page();
    for (uint64_t line = first; line < first + lines_of_page(); ++line) {
      uint64_t untouched = 0;
      word(line).compare_exchange_strong(untouched, kExclusive, std::memory_order_seq_cst);
    }
  }
  finish(touches);
  return true;
}

bool Driver::on_fault(PageId page, bool) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  LinePage& record = pages_[page];
  if (record.touched.load(std::memory_order_acquire)) {
    // The kernel took the page-table entry away, or another thread handled the first touch. Granting again is always
    // right.
    services_.rights.grant_write(page, 1);
    count(Counter::kLocalFaults);
    return true;
  }
  return touch(page, record);
}

void Driver::is_handed_out(uintptr_t address) {
  const PageId page = page_at(address);
  if (page.value < pages_.count() && may_take(page)) takes_no_more_.store(true, std::memory_order_relaxed);
}

// The home has each line exclusively, which is what its entry says already: this node's grain_of() has written kExclusive
// there, or nobody anything. It must not be written here, because a node that has left the barrier may have fetched the
// line. The other nodes have nothing: their words said so far that stores are left to faults.
void Driver::take(PageId first, uint64_t count, NodeId home) {
  for (uint64_t i = 0; i < count; ++i) {
    const PageId page(first.value + i);
    LinePage& record = pages_[page];
    record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_relaxed);
    record.block_lines.store(1, std::memory_order_relaxed);
    const uint64_t begin = page.value * lines_of_page();
    for (uint64_t line = begin; home != self_ && line < begin + lines_of_page(); ++line)
      word(line).store(kInvalid, std::memory_order_relaxed);
    record.grain.store(1 + static_cast<uint8_t>(Grain::kLine), std::memory_order_release);
  }
  if (home != self_) lines_.hazards.invalidate_rights_cache();
}

std::optional<uint32_t> Driver::cost(PageId page) const {
  if (runs_ != Runs::kLearned) return std::nullopt;
  return pages_[page].cost.load(std::memory_order_relaxed);
}

// Returns the line at an address of line-grain memory, touched; nullopt if the memory is of another kind or not
// allocated.
std::optional<Driver::Line> Driver::locate_line(uintptr_t address) {
  const PageId page = page_at(address);
  if (page.value >= pages_.count()) return std::nullopt;
  LinePage& record = pages_[page];
  if (!record.touched.load(std::memory_order_acquire)) [[unlikely]] {
    if (grain_of(page, record) != Grain::kLine || !touch(page, record)) return std::nullopt;
  }
  const uint64_t line = line_of(address);
  return Line{line, home_of(record), frame(frame_offset(line))};
}

// --- Lines

// Returns whether the line may be read, or stored to, here. The caller has published a hazard over it, or wants only a
// hint.
bool Driver::has_right(const Line& line, bool to_store) {
  MULTIGRAIN_STEP(&word(line.number));
  const uint64_t now = word(line.number).load(std::memory_order_seq_cst);
  if (to_store ? now == kExclusive : (now & kReadable) != 0) return true;
  if (now != 0 || line.home != self_) return false;
  // The line is at home and was never touched. That is the same as exclusive, but compiled code knows only the latter.
  uint64_t untouched = 0;
  return word(line.number).compare_exchange_strong(untouched, kExclusive, std::memory_order_seq_cst);
}

void Driver::load(uintptr_t address, std::span<std::byte> out) {
  if (out.empty()) return;
  const virtual_time::MissedCheck missed;
  const std::optional<Line> line = locate_line(address);
  if (!line) {
    // The memory is of a page protocol, and this may raise its faults. Or it is not allocated, and the signal is
    // deserved.
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
    return;
  }
  const LoadRequest request{line->frame + ((address - view_) - frame_offset(line->number)), out};
  MG_CHECK(static_cast<size_t>(request.from - line->frame) + out.size() <= line_size(), address, out.size());
  if (try_load(*line, request)) {
    // The value is the program's own data, or the line has come since the check.
    if (holds_flag(request.from, out.size())) count(Counter::kFalseMisses);
    return;
  }
  miss_to_load(*line, request);
}

void Driver::begin_store(uintptr_t address) {
  const virtual_time::MissedCheck missed;
  const std::optional<Line> line = locate_line(address);
  if (!line) {
    // The store itself will find out its right by faults.
    publish_hazard(make_hazard(line_of(address), 1, true));
    return;
  }
  if (!try_begin_store(*line)) miss(*line, Wanted::kRight, {});
}

void Driver::fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) {
  const virtual_time::MissedCheck missed;
  for (uintptr_t at = begin & ~(line_size() - 1); at < end; at += line_size()) {
    const std::optional<Line> line = locate_line(at);
    if (!line || has_right(*line, to_store)) continue;
    if (to_store) {
      miss(*line, Wanted::kRight, {});
      clear_hazard();
    } else {
      miss_to_load(*line, {});
    }
  }
}

// A processor whose clock is not published holds up the clocks of all other processors (V3), and this thread may be
// waiting for one of those.
void Driver::spin() {
  virtual_time::synchronise();
}

// --- Misses

// Returns how many lines should move if this one misses, of which it is the first: as many as are likely to be wanted.
// Where a thread goes through memory, the lines before this one are here already, so as many as that come with it, if so many
// are possible. None are of another page. Lines of the page before count if they have come here from the same home. The words
// of all of them must be the same here: otherwise their entries are not. All this is a hint.
uint32_t Driver::run_of(const Line& line, Wanted wanted) {
  const bool stores = wanted != Wanted::kCopy;
  const auto word_of = [&](uint64_t number) { return word(number).load(std::memory_order_relaxed); };
  if (runs_ == Runs::kNever || virtual_time::on()) return 1;
  if (runs_ == Runs::kAlways) return line.number % 2 == 0 && word_of(line.number + 1) == word_of(line.number) ? 2 : 1;
  const uint64_t place = line.number & (lines_of_page() - 1);
  const uint64_t most = std::min<uint64_t>(kLongestLine >> shift_, lines_of_page() - place);
  const uint64_t own = word_of(line.number);
  const auto is_here = [&](uint64_t number) {
    return stores ? word_of(number) == kExclusive : (word_of(number) & kReadable) != 0;
  };
  const bool goes_on = follows_page_of_its_home(PageId(line.number / lines_of_page()));
  const uint64_t before = place + (goes_on ? lines_of_page() : 0);
  const RunHistory::Length length = length_of_run(line.number, stores);
  const auto is_wanted = [&](uint32_t more) {
    return more < length.likely || (more < length.possible && more <= before && is_here(line.number - more));
  };
  uint32_t run = 1;
  // Of the lines behind one that a load brings with the right to store, those come whose loads would do so, too.
  const auto is_alike = [&](uint64_t number) {
    return word_of(number) == own && (wanted != Wanted::kRightAhead || updates_.is_updated(number));
  };
  while (run < most && is_wanted(run) && is_alike(line.number + run)) ++run;
  return run;
}

// Returns by which number the history of updates knows the calling thread; nullopt if it learns nothing of it.
std::optional<uint64_t> Driver::thread_that_learns_updates() const {
  return rights_ahead_ == RightsAhead::kLearned && !virtual_time::on() ? hazard_slot() : std::nullopt;
}

bool Driver::brings_right_ahead(uint64_t line) {
  if (rights_ahead_ == RightsAhead::kAlways) return true;
  const std::optional<uint64_t> thread = thread_that_learns_updates();
  return thread && updates_.loads(*thread, line);
}

// Fetches the line for a load, with the right to store if a store is likely to come behind it. Then the load is made under the
// hazard that a miss of a store ends with.
void Driver::miss_to_load(const Line& line, const LoadRequest& request) {
  if (!brings_right_ahead(line.number)) return miss(line, Wanted::kCopy, request);
  miss(line, Wanted::kRightAhead, {});
  if (request.from != nullptr) {
    MULTIGRAIN_STEP(request.from);
    copy_out(request.out, request.from);
  }
  clear_hazard();
}

// Keeps what the miss shows of how this node uses the lines that it brought.
void Driver::learn(const Line& line, Wanted wanted, MissKind kind) {
  if (runs_ == Runs::kLearned) {
    if (!virtual_time::on()) run_came(line.number, line.run, line.number + line.run, wanted != Wanted::kCopy);
    // An estimate: if another thread adds to it just now, one of the two may be lost.
    std::atomic<uint32_t>& cost = pages_[line.number / lines_of_page()].cost;
    cost.store(cost.load(std::memory_order_relaxed) + LineCosts::of_two(1, line.run), std::memory_order_relaxed);
  }
  const std::optional<uint64_t> thread = thread_that_learns_updates();
  if (thread && wanted == Wanted::kCopy)
    updates_.came_for_reading(*thread, line.number);
  else if (thread && kind == MissKind::kUpgrade)
    updates_.was_upgraded(*thread, line.number);
}

// Fetches the line, or the right to store to it; in the second case it returns with hazard 0 published over the line.
// The load of `request` is made while the line is certainly here.
void Driver::miss(Line line, Wanted wanted, const LoadRequest& request) {
  const bool stores = wanted != Wanted::kCopy;
  virtual_time::synchronise();
  const costs::FaultScope counted = cost_of_miss(line.number, wanted == Wanted::kRight);
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  SpinLock& lock = locks_[line.number * 0x9e3779b97f4a7c15u >> 52].lock;
  MULTIGRAIN_LOCK_STEP(lock);
  if (!lock.try_lock()) {
    profile.enter(Category::kDataWait);
    {
      const virtual_time::Unaccounted emulation;
      lock.lock();
    }
    profile.enter(Category::kProtocol);
  }
  const LockGuard hold(lock, std::adopt_lock);
  if (stores ? try_begin_store(line) : try_load(line, request)) {
    count(Counter::kLinesFound);
    return;
  }

  MULTIGRAIN_STEP(&word(line.number));
  line.run = run_of(line, wanted);
  virtual_time::spend(&MachineCosts::transition);
  Miss miss(self_, line.home, stores, (word(line.number).load(std::memory_order_relaxed) & kReadable) != 0);
  Step step;
  alignas(64) std::array<std::byte, kLongestLine> buffer;
  miss.begin(step);
  HazardScan scan;
  NodeSet told;  // these nodes know that the requester waits
  MULTIGRAIN_LOCALS(miss, scan, buffer, line.run, told);
  uint64_t waiting_since = 0;
  // What is computed between two operations is protocol time on an emulated machine. On this one it takes less time than to look at
  // the clock.
  const auto enter = [&, by_operation = virtual_time::on()](Category category) {
    if (by_operation) profile.enter(category);
  };
  profile.enter(Category::kDataWait);
  for (unsigned tries = 0;;) {
    enter(Category::kDataWait);
    const Outcome outcome = perform(step, line, buffer.data(), scan);
    enter(Category::kProtocol);
    const Progress progress = miss.proceed(outcome, step);
    if (progress == Progress::kLast) break;
    if (progress == Progress::kGo) {
      tries = 0;
      continue;
    }
    count(progress == Progress::kBusy ? Counter::kLockRetries : Counter::kHazardWaits);
    // Threads in long loops keep a hazard published from piece to piece, so each node is told once that it is waited for.
    if (progress == Progress::kWaitForHazards) {
      (outcome.blocked - told).for_each([&](NodeId node) {
        services_.fabric.fetch_add(node, SegmentId::kWords, words::kHazardWaits, 1);
      });
      told = told | outcome.blocked;
    }
    if (tries == 0) waiting_since = ticks();
    enter(Category::kDataWait);
    {
      // On the emulated machine the awaited thread has a core of its own, and would be done. Another try of the loop
      // costs a remote operation on that machine, too. In counted time it need not be done, and the pause takes time.
      const virtual_time::Unaccounted emulation;
      pause(tries++, waiting_since);
    }
    enter(Category::kProtocol);
  }
  profile.enter(Category::kProtocol);
  learn(line, wanted, miss.kind());
  virtual_time::spend(&MachineCosts::directory, line.run);
  end(step, line, buffer.data(), request);

  switch (miss.kind()) {
    case MissKind::kNothing:
      count(Counter::kLinesFound);
      return;
    case MissKind::kUpgrade:
      count(Counter::kLineUpgrades);
      break;
    case MissKind::kTwoHops:
      count(Counter::kTwoHopMisses);
      break;
    case MissKind::kThreeHops:
      count(Counter::kThreeHopMisses);
      break;
  }
  if (wanted == Wanted::kRight && miss.kind() != MissKind::kUpgrade) count(Counter::kStoreMisses);
  if (wanted == Wanted::kRightAhead) count(Counter::kRightsAhead);
  if (miss.kind() != MissKind::kUpgrade) count(Counter::kLinesMoved, line.run);
  count(Counter::kLinesInvalidated, uint64_t{miss.invalidated()} * line.run);
}

// Spins as long as is reasonable on this machine, ever longer between two tries, so that the directory does not get too
// many requests. Then it gives the core to other threads, as the awaited thread may need it; then it sleeps. It never
// pauses twice for the same time, so that two requesters of one line do not meet again and again ([DSZOOM], footnote
// 2). In counted time it does so for a time of the emulated machine's, which depends on the processor and the try alone.
void Driver::pause(unsigned tries, uint64_t since) {
  if (virtual_time::takes_turns()) {
    constexpr Nanoseconds kShortest = 100;
    const uint64_t mixed = (uint64_t{ordered::participant()} << 32 | (tries + 1)) * 0x9e3779b97f4a7c15u >> 32;
    virtual_time::wait_until_time(virtual_time::stamp() + kShortest + mixed % (kShortest << std::min(tries, 7u)));
    return;
  }
  constexpr unsigned kYields = 64;
  const unsigned doublings = std::min(tries, 7u);
  if (ticks() - since < services_.wait.spin_ticks || tries < 2) {
    for (uint64_t left = (random_of_thread() & ((uint64_t{8} << doublings) - 1)) + 1; left > 0; --left) cpu_relax();
  } else if (tries < kYields) {
    sched_yield();
  } else {
    sleep_ns(20'000 + random_of_thread() % 60'000);
  }
}

}  // namespace multigrain::dszoom
