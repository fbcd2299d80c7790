#include "coherence/dszoom/shell.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "coherence/steps.h"
#include "fabric/words.h"
#include "profile/virtual_time.h"

namespace multigrain::dszoom {
namespace {

constexpr size_t kLongestLine = size_t{1} << MG_FINE_MAX_LINE_SHIFT;
// Hazard slots that one get reads, and nodes whose hazards are read at a time: what fits a stack.
constexpr uint32_t kSlotsAtOnce = 32;
constexpr size_t kScansAtOnce = 8;
// The index of the node's rights epoch among the words from words::kHazards on.
constexpr size_t kEpochIndex = (words::kRightsEpoch - words::kHazards) / sizeof(uint64_t);

void count(Counter counter, uint64_t n = 1) {
  this_profile().count(counter, n);
}

using Words = std::atomic_ref<uint64_t>;

// What another node's frame is overwritten with.
const std::array<uint64_t, kLongestLine / sizeof(uint64_t)> kFlags = [] {
  std::array<uint64_t, kLongestLine / sizeof(uint64_t)> flags;
  flags.fill(MG_FINE_FLAG64);
  return flags;
}();

// Word by word, and downwards: processors of the node are loading from the line meanwhile. A load that finds the value
// that it wants at its begin finds what follows, too.
void fill(std::byte* frame, const std::byte* buffer, size_t bytes) {
  auto* const to = reinterpret_cast<uint64_t*>(frame);
  const auto* const from = reinterpret_cast<const uint64_t*>(buffer);
  for (size_t i = bytes / sizeof(uint64_t); i-- > 0;) {
    MULTIGRAIN_STEP(&to[i]);
    Words(to[i]).store(from[i], std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_release);
}

void read(std::span<std::byte> out, const std::byte* from) {
  MULTIGRAIN_STEP(from);
  copy_out(out, from);
}

void publish(uint64_t hazard) {
  MULTIGRAIN_STEP(__multigrain_hazards);
  publish_hazard(hazard);
}
void clear() {
  MULTIGRAIN_STEP(__multigrain_hazards);
  clear_hazard();
}

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

Shell::Shell(const NodeServices& services, const LineServices& lines)
    : services_(services),
      lines_(lines),
      self_(services.fabric.self()),
      view_(reinterpret_cast<uintptr_t>(services.region.base())),
      shift_(lines.table.line_shift()) {
  for (auto& slots : slots_of_) slots.store(4, std::memory_order_relaxed);
}

Result<std::unique_ptr<Shell>> Shell::create(const NodeServices& services, const LineServices& lines) {
  if (services.fabric.nodes() > kMaxNodes)
    return fail("the protocol dszoom has directory entries for {} nodes, and the machine has {}", kMaxNodes,
                services.fabric.nodes());
  std::unique_ptr<Shell> shell(new Shell(services, lines));
  auto pages = SparseTable<LinePage>::create(services.region.page_count(), "pages kept coherent by lines");
  if (!pages) return tl::unexpected(pages.error());
  shell->pages_ = std::move(*pages);
  auto outboxes = SparseTable<Outbox>::create(words::kHazardSlots, "releases of directory entries");
  if (!outboxes) return tl::unexpected(outboxes.error());
  shell->outboxes_ = std::move(*outboxes);
  auto locks = SparseTable<LineLock>::create(kLocks, "locks of lines");
  if (!locks) return tl::unexpected(locks.error());
  shell->locks_ = std::move(*locks);
  return shell;
}

// --- Pages

std::optional<Grain> Shell::grain_of(PageId page, LinePage& record) {
  return look_up_grain(services_, lines_.table, page, record, [](Grain) {});
}

// The first touch of a page at this node. Returns false if it is not allocated.
bool Shell::touch(PageId page, LinePage& record) {
  if (record.touched.load(std::memory_order_acquire)) return true;
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home) home = services_.homes.claim_home(page);
  if (!home) return false;
  const std::lock_guard hold(record.lock);
  if (record.touched.load(std::memory_order_relaxed)) return true;
  const size_t page_size = services_.region.page_size();
  // Nobody else writes to this frame before this node has a copy of a line, for which the page must be touched.
  if (*home != self_) fill_with_flags(services_.region.alias(page), page_size);
  services_.rights.grant_write(page, 1);
  this_profile().count_rights(RightsChange::kGrantWrite, 1);
  if (*home == self_) {
    // What nobody has taken is the home's. Compiled stores need to see that.
    const uint64_t first = page.value << (services_.region.page_shift() - shift_);
    for (uint64_t line = first; line < first + (page_size >> shift_); ++line) {
      uint64_t untouched = 0;
      word(line).compare_exchange_strong(untouched, kExclusive, std::memory_order_seq_cst);
    }
  }
  record.home_plus_one.store(static_cast<uint16_t>(home->value + 1), std::memory_order_relaxed);
  record.touched.store(true, std::memory_order_release);
  return true;
}

bool Shell::on_fault(PageId page, bool) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  LinePage& record = pages_[page];
  if (record.touched.load(std::memory_order_acquire)) {
    // The kernel took the page-table entry away, or another thread was first: granting again is always right.
    services_.rights.grant_write(page, 1);
    count(Counter::kLocalFaults);
    return true;
  }
  return touch(page, record);
}

bool Shell::keeps(uintptr_t address) {
  const PageId page((address - view_) >> services_.region.page_shift());
  return page.value < pages_.count() && grain_of(page, pages_[page]) == Grain::kLine;
}

// The line at an address of line-grain memory, touched. Nothing if the memory is of another kind, or of none.
std::optional<Shell::Line> Shell::locate_line(uintptr_t address) {
  const PageId page((address - view_) >> services_.region.page_shift());
  if (page.value >= pages_.count()) return std::nullopt;
  LinePage& record = pages_[page];
  if (!record.touched.load(std::memory_order_acquire)) [[unlikely]] {
    if (grain_of(page, record) != Grain::kLine || !touch(page, record)) return std::nullopt;
  }
  const uint64_t line = line_of(address);
  const NodeId home(static_cast<uint16_t>(record.home_plus_one.load(std::memory_order_relaxed) - 1));
  return Line{line, home, services_.region.alias(PageId(0)) + frame_offset(line)};
}

// --- Lines

// Whether the line may be read, or stored to, here. The caller has published a hazard over it, or wants a hint.
bool Shell::has_right(const Line& line, bool to_store) {
  MULTIGRAIN_STEP(&word(line.number));
  const uint64_t now = word(line.number).load(std::memory_order_seq_cst);
  if (to_store ? now == kExclusive : (now & kReadable) != 0) return true;
  if (now != 0 || line.home != self_) return false;
  // At home and never touched: that is the same as exclusive, but compiled code knows only the latter.
  uint64_t untouched = 0;
  return word(line.number).compare_exchange_strong(untouched, kExclusive, std::memory_order_seq_cst);
}

bool Shell::try_load(const Line& line, const LoadRequest& request) {
  publish(make_hazard(line.number, 1, false));
  const bool here = has_right(line, false);
  if (here && request.from != nullptr) read(request.out, request.from);
  clear();
  return here;
}

// Leaves the hazard published if it succeeds.
bool Shell::try_begin_store(const Line& line) {
  publish(make_hazard(line.number, 1, true));
  if (has_right(line, true)) return true;
  clear();
  return false;
}

void Shell::load(uintptr_t address, std::span<std::byte> out) {
  if (out.empty()) return;
  const virtual_time::MissedCheck missed;
  const std::optional<Line> line = locate_line(address);
  if (!line) {
    // Of a page protocol, whose faults this may raise; or not allocated, and then it deserves the signal.
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
    return;
  }
  const LoadRequest request{line->frame + ((address - view_) - frame_offset(line->number)), out};
  MG_CHECK(static_cast<size_t>(request.from - line->frame) + out.size() <= line_size(), address, out.size());
  if (try_load(*line, request)) {
    // The value is the program's, or the line has come since the check.
    if (holds_flag(request.from, out.size())) count(Counter::kFalseMisses);
    return;
  }
  miss(*line, false, request);
}

void Shell::begin_store(uintptr_t address) {
  const virtual_time::MissedCheck missed;
  const std::optional<Line> line = locate_line(address);
  if (!line) {
    // The store itself finds out what it may.
    publish(make_hazard(line_of(address), 1, true));
    return;
  }
  if (!try_begin_store(*line)) miss(*line, true, {});
}

void Shell::fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) {
  const virtual_time::MissedCheck missed;
  for (uintptr_t at = begin & ~(line_size() - 1); at < end; at += line_size()) {
    const std::optional<Line> line = locate_line(at);
    if (!line || has_right(*line, to_store)) continue;
    miss(*line, to_store, {});
    if (to_store) clear();
  }
}

// A clock that is not published holds up everybody else's (V3), who may be the one that is waited for.
void Shell::spin() {
  virtual_time::synchronise();
}

// --- Misses

// Fetches the line, or the right to store to it: then it returns with hazard 0 published over the line. The load of `request`
// is made while the line is certainly here.
void Shell::miss(const Line& line, bool stores, const LoadRequest& request) {
  virtual_time::synchronise();
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
  const std::lock_guard hold(lock, std::adopt_lock);
  if (stores ? try_begin_store(line) : try_load(line, request)) {
    count(Counter::kLinesFound);
    return;
  }

  MULTIGRAIN_STEP(&word(line.number));
  Miss miss(self_, line.home, stores, (word(line.number).load(std::memory_order_relaxed) & kReadable) != 0);
  Step step;
  alignas(64) std::array<std::byte, kLongestLine> buffer;
  miss.begin(step);
  HazardScan scan;
  uint64_t waiting_since = 0;
  for (unsigned tries = 0;;) {
    profile.enter(Category::kDataWait);
    const Outcome outcome = perform(step, line, buffer.data(), scan);
    profile.enter(Category::kProtocol);
    const Progress progress = miss.proceed(outcome, step);
    if (progress == Progress::kLast) break;
    if (progress == Progress::kGo) {
      tries = 0;
      continue;
    }
    count(progress == Progress::kBusy ? Counter::kLockRetries : Counter::kHazardWaits);
    if (tries == 0) waiting_since = ticks();
    profile.enter(Category::kDataWait);
    {
      // On the emulated machine whoever is waited for has a core, and would be done. That the loop comes back costs a
      // remote operation there, too.
      const virtual_time::Unaccounted emulation;
      pause(tries++, waiting_since);
    }
    profile.enter(Category::kProtocol);
  }
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
  if (stores && miss.kind() != MissKind::kUpgrade) count(Counter::kStoreMisses);
  if (miss.kind() != MissKind::kUpgrade) count(Counter::kLinesMoved);
  count(Counter::kLinesInvalidated, miss.invalidated());
}

// Spins as long as is reasonable on this machine, ever longer between two tries, so that the directory is not hammered;
// then gives the core to others, among whom may be the one that is waited for; then sleeps. Never twice for the same
// time, so that two who want the same line do not meet again and again ([DSZOOM], footnote 2).
void Shell::pause(unsigned tries, uint64_t since) {
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

// Carries out a step, and waits for it: on each node in order, on all of them at once.
Outcome Shell::perform(const Step& step, const Line& line, std::byte* buffer, HazardScan& scan) {
  struct Scan {
    NodeId node;
    bool loads = false;
    uint32_t slots = 0;
    uint64_t epoch_before = 0;
  };
  constexpr size_t kHazardWords = (1 + kSlotsAtOnce) * MG_FINE_HAZARDS;
  std::array<std::array<uint64_t, kHazardWords>, kScansAtOnce> hazards;
  std::array<Scan, kScansAtOnce> scans;
  size_t scanning = 0;
  std::array<uint64_t, kMaxNodes + 1> old;
  size_t taken = 0;
  std::array<Completion, 2 * kMaxNodes + 6> started;
  size_t under_way = 0;
  Outcome outcome;
  const uint64_t* entry = nullptr;
  Fabric& fabric = services_.fabric;
  const uint64_t table_offset = line.number * sizeof(uint64_t);

  const auto finish = [&] {
    for (size_t i = 0; i < under_way; ++i) fabric.wait(started[i]);
    under_way = 0;
    for (size_t i = 0; i < scanning; ++i)
      scan_hazards(scans[i].node, line.number, scans[i].loads,
                   std::span(hazards[i].data(), (1 + scans[i].slots) * MG_FINE_HAZARDS), scans[i].epoch_before, scan,
                   outcome);
    scanning = 0;
  };
  Completion last;
  const Operation* before = nullptr;
  const auto get = [&](NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
    const bool behind = before != nullptr && before->node == from;
    return behind ? fabric.start_get_after(last, from, segment, offset, bytes)
                  : fabric.start_get(from, segment, offset, bytes);
  };
  for (const Operation& operation : step) {
    switch (operation.verb) {
      case Verb::kLock:
      case Verb::kRevokeRight: {
        const bool is_lock = operation.verb == Verb::kLock;
        if (is_lock) entry = &old[taken];
        scan.restart(operation.node);
        last = fabric.start_fetch_and_set(operation.node, SegmentId::kLines, table_offset,
                                          is_lock ? kLocked : operation.word, old[taken++]);
        break;
      }
      case Verb::kReplaceEpoch: {
        const uint64_t epoch = fresh_rights_epoch(self_);
        scan.restart(operation.node);
        scan.set_epoch(operation.node, epoch);
        last = fabric.start_fetch_and_set(operation.node, SegmentId::kWords, words::kRightsEpoch, epoch, old[taken++]);
        break;
      }
      case Verb::kScanHazards: {
        const uint32_t slots = slots_of_[operation.node.value].load(std::memory_order_relaxed);
        if (slots > kSlotsAtOnce) {
          fabric.wait(last);
          scan_hazards_of_many(operation.node, line.number, operation.loads, scan, outcome);
          last = {};
          break;
        }
        if (scanning == kScansAtOnce) finish();
        scans[scanning] = {operation.node, operation.loads, slots,
                           epochs_of_[operation.node.value].load(std::memory_order_acquire)};
        last = get(operation.node, SegmentId::kWords, words::kHazards,
                   std::as_writable_bytes(std::span(hazards[scanning].data(), (1 + slots) * MG_FINE_HAZARDS)));
        ++scanning;
        break;
      }
      case Verb::kReadLine:
        last = get(operation.node, SegmentId::kFrames, frame_offset(line.number), {buffer, line_size()});
        break;
      case Verb::kWriteFlags:
        last = fabric.start_put(operation.node, SegmentId::kFrames, frame_offset(line.number),
                                std::as_bytes(std::span(kFlags)).first(line_size()));
        break;
      default:
        panic("a step of a miss has what only its end has:", static_cast<uint64_t>(operation.verb));
    }
    started[under_way++] = last;
    before = &operation;
  }
  finish();
  if (entry != nullptr) outcome.entry = *entry;
  return outcome;
}

// `hazards` was read from words::kHazards of the node, whose rights epoch was known to be `epoch_before` at some time before.
void Shell::scan_hazards(NodeId node, uint64_t line, bool loads, std::span<const uint64_t> hazards,
                         uint64_t epoch_before, HazardScan& scan, Outcome& outcome) {
  const uint64_t slots = hazards[0];
  if (slots > words::kHazardSlots) panic("a node counts more hazards than it can have: node, slots", node.value, slots);
  if (slots > hazards.size() / MG_FINE_HAZARDS - 1) {
    // There are more than were read: the next scan reads them.
    slots_of_[node.value].store(static_cast<uint32_t>(slots), std::memory_order_relaxed);
    outcome.blocked.insert(node);
    return;
  }
  if (!epoch_validates(node, hazards[kEpochIndex], epoch_before, scan, outcome)) return;
  for (size_t i = MG_FINE_HAZARDS; i < (1 + slots) * MG_FINE_HAZARDS; ++i)
    if (covers(hazards[i], line, loads) && scan.must_clear(node, i, hazards[i])) outcome.blocked.insert(node);
  scan.finished(node);
}

// Whether a scan of the node's hazards that came with this rights epoch is valid. If not, notes in the outcome what has to be
// done before they are read again. After the first valid scan the epoch is irrelevant to this miss: hazards published later
// belong to threads that see the revoked right.
bool Shell::epoch_validates(NodeId node, uint64_t epoch, uint64_t before, HazardScan& scan, Outcome& outcome) {
  const bool cached = (epoch & MG_FINE_EPOCH_CACHED) != 0;
  // For other misses, which begin from now on.
  if (!cached) epochs_of_[node.value].store(epoch, std::memory_order_release);
  if (scan.has_scanned(node)) return true;
  const ScanResult result = validate_scan(epoch, before, scan.epoch(node));
  if (result == ScanResult::kValid) return true;
  if (!cached) scan.set_epoch(node, epoch);
  outcome.blocked.insert(node);
  if (result == ScanResult::kInvalidateCacheFirst) outcome.invalidate_first.insert(node);
  return false;
}

// The same for a node with many threads: several gets, one after the other, of which the first brings the rights epoch. So
// the node had that epoch before any of its hazards was read.
void Shell::scan_hazards_of_many(NodeId node, uint64_t line, bool loads, HazardScan& scan, Outcome& outcome) {
  std::array<uint64_t, kSlotsAtOnce * MG_FINE_HAZARDS> hazards;
  std::array<uint64_t, kEpochIndex + 1> header{};
  const auto get = [&](uint64_t offset, std::span<uint64_t> to) {
    services_.fabric.get(node, SegmentId::kWords, words::kHazards + offset, std::as_writable_bytes(to));
  };
  get(0, header);
  const uint64_t slots = header[0];
  if (slots > words::kHazardSlots) panic("a node counts more hazards than it can have: node, slots", node.value, slots);
  const uint64_t epoch = header[kEpochIndex];
  if (!epoch_validates(node, epoch, epoch & ~uint64_t{MG_FINE_EPOCH_CACHED}, scan, outcome)) return;
  for (uint64_t done = 0; done < slots; done += kSlotsAtOnce) {
    const std::span<uint64_t> some(hazards.data(), std::min<uint64_t>(slots - done, kSlotsAtOnce) * MG_FINE_HAZARDS);
    get((1 + done) * words::kBytesPerHazardSlot, some);
    for (size_t i = 0; i < some.size(); ++i)
      if (covers(some[i], line, loads) && scan.must_clear(node, (1 + done) * MG_FINE_HAZARDS + i, some[i]))
        outcome.blocked.insert(node);
  }
  scan.finished(node);
}

// The last step, in its order. Nothing of it waits for another node.
void Shell::end(const Step& step, const Line& line, const std::byte* buffer, const LoadRequest& request) {
  for (const Operation& operation : step) {
    switch (operation.verb) {
      case Verb::kFill:
        fill(line.frame, buffer, line_size());
        break;
      case Verb::kSetOwn:
        MULTIGRAIN_STEP(&word(line.number));
        word(line.number).store(operation.word, std::memory_order_seq_cst);
        break;
      case Verb::kPublishHazard:
        publish(make_hazard(line.number, 1, true));
        break;
      case Verb::kCompleteLoads:
        if (request.from != nullptr) read(request.out, request.from);
        break;
      case Verb::kUnlock:
        unlock(line, operation.word);
        break;
      default:
        panic("the end of a miss has what only its steps have:", static_cast<uint64_t>(operation.verb));
    }
  }
}

// Nobody but who has the entry locked writes to it, except kLocked, which changes nothing: so a put will do, and the
// caller need not wait for it ([DSZOOM], section 2.3).
void Shell::unlock(const Line& line, uint64_t entry) {
  if (line.home == self_) {
    MULTIGRAIN_STEP(&word(line.number));
    word(line.number).store(entry, std::memory_order_seq_cst);
    return;
  }
  Fabric& fabric = services_.fabric;
  if (!lines_.hazards.contains(__multigrain_hazards)) {
    fabric.put(line.home, SegmentId::kLines, line.number * sizeof entry, std::as_bytes(std::span(&entry, 1)));
    return;
  }
  Outbox& outbox = outboxes_[lines_.hazards.index_of(__multigrain_hazards)];
  const unsigned slot = outbox.next++ % Outbox::kSlots;
  fabric.wait(outbox.under_way[slot]);
  outbox.word[slot] = entry;
  outbox.under_way[slot] = fabric.start_put(line.home, SegmentId::kLines, line.number * sizeof entry,
                                            std::as_bytes(std::span(&outbox.word[slot], 1)));
}

}  // namespace multigrain::dszoom
