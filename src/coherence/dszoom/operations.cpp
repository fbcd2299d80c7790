// This part of the driver carries out the operations of a miss, on the fabric and in this node's own memory.
#include <algorithm>

#include "base/steps.h"
#include "coherence/dszoom/driver.h"
#include "coherence/hazard_words.h"
#include "profile/virtual_time.h"

namespace multigrain::dszoom {
namespace {

// One get reads at most so many hazard slots, and the hazards of at most so many nodes are read at a time, because more
// would not fit a stack.
constexpr uint32_t kSlotsAtOnce = 32;
constexpr size_t kScansAtOnce = 8;
// This is the index of the node's rights epoch among the words from words::kHazards on.
constexpr size_t kEpochIndex = (words::kRightsEpoch - words::kHazards) / sizeof(uint64_t);

using Words = std::atomic_ref<uint64_t>;

// Another node's frame is overwritten with these bytes.
constexpr std::array<uint64_t, kLongestLine / sizeof(uint64_t)> kFlags = [] {
  std::array<uint64_t, kLongestLine / sizeof(uint64_t)> flags;
  flags.fill(MG_FINE_FLAG64);
  return flags;
}();

// Fills the line word by word, and downwards, because processors of the node are loading from it meanwhile. A load that
// finds the value that it wants at its begin finds what follows, too.
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

}  // namespace

// The operations of a step are all under way at the same time. On each node they take effect in their order.
class Driver::StepUnderWay {
 public:
  // `buffer` receives the lines of the run.
  StepUnderWay(Driver& driver, Line& line, std::byte* buffer, HazardScan& scan)
      : driver_(driver), fabric_(driver.services_.fabric), line_(line), buffer_(buffer), scan_(scan) {}

  void start(const Operation& operation) {
    const uint64_t line_offset = driver_.frame_offset(line_.number);
    const size_t bytes = driver_.line_size() * line_.run;
    switch (operation.verb) {
      case Verb::kLock:
        locks_ = line_.run;
        swap_words_of_run(operation.node, kLocked, entries_);
        break;
      case Verb::kRevokeRight:
        swap_words_of_run(operation.node, operation.word, ignored_);
        break;
      case Verb::kReplaceEpoch: {
        const uint64_t epoch = fresh_rights_epoch(driver_.self_);
        swap(operation.node, SegmentId::kWords, words::kRightsEpoch, epoch, ignored_[0]);
        scan_.set_epoch(operation.node, epoch);
        break;
      }
      case Verb::kScanHazards:
        start_scan(operation);
        break;
      case Verb::kReadLine:
        get(operation.node, SegmentId::kFrames, line_offset, {buffer_, bytes});
        break;
      case Verb::kWriteFlags:
        last_ = fabric_.start_put(operation.node, SegmentId::kFrames, line_offset,
                                  std::as_bytes(std::span(kFlags)).first(bytes));
        break;
      default:
        panic("a step of a miss has what only its end has:", static_cast<uint64_t>(operation.verb));
    }
    started(last_);
    before_ = &operation;
  }
  Outcome wait() {
    finish();
    return outcome_;
  }

 private:
  struct Scan {
    NodeId node;
    bool loads = false;
    uint32_t slots = 0;
    uint64_t epoch_before = 0;
  };
  static constexpr size_t kHazardWords = (1 + kSlotsAtOnce) * MG_FINE_HAZARDS;

  void started(Completion operation) {
    if (operation.id == 0) return;
    if (under_way_ == started_.size()) finish();
    started_[under_way_++] = operation.id;
  }
  // Swaps the word, after which hazards of the node that were recorded before do not count.
  void swap(NodeId node, SegmentId segment, uint64_t offset, uint64_t word, uint64_t& old) {
    scan_.restart(node);
    last_ = fabric_.start_fetch_and_set(node, segment, offset, word, old);
  }
  // Swaps the node's words of all lines of the run.
  void swap_words_of_run(NodeId node, uint64_t word, std::span<uint64_t, kMostLines> old) {
    if (uint64_t* const words = driver_.words_of_run(node, line_)) {
      scan_.restart(node);
      for (uint32_t i = 0; i < line_.run; ++i) old[i] = Words(words[i]).exchange(word, std::memory_order_seq_cst);
      last_ = {};
      return;
    }
    for (uint32_t i = 0; i < line_.run; ++i) {
      if (i != 0) started(last_);
      swap(node, SegmentId::kLines, (line_.number + i) * sizeof(uint64_t), word, old[i]);
    }
  }
  // Gets the bytes, after the operation before if that is on the same node.
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
    const bool behind = before_ != nullptr && before_->node == from;
    last_ = behind ? fabric_.start_get_after(last_, from, segment, offset, bytes)
                   : fabric_.start_get(from, segment, offset, bytes);
  }
  void start_scan(const Operation& operation) {
    const uint32_t slots = driver_.slots_of_[operation.node.value].load(std::memory_order_relaxed);
    if (slots > kSlotsAtOnce) {
      fabric_.wait(last_);
      driver_.scan_hazards_of_many(operation.node, line_, operation.loads, scan_, outcome_);
      last_ = {};
      return;
    }
    if (scanning_ == kScansAtOnce) finish();
    scans_[scanning_] = {operation.node, operation.loads, slots,
                         driver_.epochs_of_[operation.node.value].load(std::memory_order_acquire)};
    get(operation.node, SegmentId::kWords, words::kHazards,
        std::as_writable_bytes(std::span(hazards_[scanning_].data(), (1 + slots) * MG_FINE_HAZARDS)));
    ++scanning_;
  }
  // Waits for the operations that are under way, and looks at the hazards that they have brought.
  void finish() {
    for (size_t i = 0; i < under_way_; ++i) fabric_.wait({started_[i]});
    under_way_ = 0;
    if (locks_ != 0) {
      outcome_.entry = entries_[0];
      driver_.give_back(line_, std::span(entries_).first(locks_));
      locks_ = 0;
    }
    for (size_t i = 0; i < scanning_; ++i)
      driver_.scan_hazards(scans_[i].node, line_, scans_[i].loads,
                           std::span(hazards_[i].data(), (1 + scans_[i].slots) * MG_FINE_HAZARDS),
                           scans_[i].epoch_before, scan_, outcome_);
    scanning_ = 0;
  }

  Driver& driver_;
  Fabric& fabric_;
  Line& line_;
  std::byte* const buffer_;
  HazardScan& scan_;
  Outcome outcome_;
  const Operation* before_ = nullptr;
  Completion last_;
  uint32_t locks_ = 0;  // so many entries are being locked
  size_t scanning_ = 0;
  size_t under_way_ = 0;
  // These are not initialised, because they are kilobytes, of which most steps use a little.
  std::array<uint64_t, kMostLines> ignored_;  // old words that the miss does not need
  std::array<std::array<uint64_t, kHazardWords>, kScansAtOnce> hazards_;
  std::array<Scan, kScansAtOnce> scans_;
  std::array<uint64_t, kMostLines> entries_;
  std::array<uint64_t, 2 * kMaxNodes + 6 + kMostLines> started_;  // as in Completion
};

// Carries out a step, and waits for its operations. A step that locks entries may leave a shorter run.
Outcome Driver::perform(const Step& step, Line& line, std::byte* buffer, HazardScan& scan) {
  StepUnderWay under_way(*this, line, buffer, scan);
  for (const Operation& operation : step) under_way.start(operation);
  return under_way.wait();
}

// `entries` are what the entries of the run were before they were locked. The run ends before the first that names other nodes
// than the first one (one that was locked already names none). Those behind the end are unlocked, and so are all but
// the first if the first was locked already: the requester waits for it, and may not make other requesters wait.
void Driver::give_back(Line& line, std::span<const uint64_t> entries) {
  const auto is_locked = [&](uint32_t i) { return (entries[i] & kLocked) != 0; };
  uint32_t run = 1;
  while (!is_locked(0) && run < entries.size() && holders(entries[run], line.home) == holders(entries[0], line.home))
    ++run;
  line.run = run;
  for (uint32_t i = run; i < entries.size(); ++i)
    if (!is_locked(i)) unlock(line.home, line.number + i, entries[i]);
}

// `hazards` was read from words::kHazards of the node, whose rights epoch was known to be `epoch_before` at some time
// before.
void Driver::scan_hazards(NodeId node, const Line& line, bool loads, std::span<const uint64_t> hazards,
                          uint64_t epoch_before, HazardScan& scan, Outcome& outcome) {
  const uint64_t slots = hazards[0];
  if (slots > words::kHazardSlots) panic("a node counts more hazards than it can have: node, slots", node.value, slots);
  if (slots > hazards.size() / MG_FINE_HAZARDS - 1) {
    // The node has more hazards than were read. The next scan reads them.
    slots_of_[node.value].store(static_cast<uint32_t>(slots), std::memory_order_relaxed);
    outcome.blocked.insert(node);
    return;
  }
  virtual_time::spend(&MachineCosts::downgrade);
  if (!epoch_validates(node, hazards[kEpochIndex], epoch_before, scan, outcome)) return;
  for (size_t i = MG_FINE_HAZARDS; i < (1 + slots) * MG_FINE_HAZARDS; ++i)
    if (covers(hazards[i], line.number, line.run, loads) && scan.must_clear(node, i, hazards[i]))
      outcome.blocked.insert(node);
  scan.finished(node);
}

// Returns whether a scan of the node's hazards that came with this rights epoch is valid. If not, notes in the outcome
// what has to be done before they are read again. After the first valid scan the epoch is irrelevant to this miss:
// hazards published later belong to threads that see the revoked right.
bool Driver::epoch_validates(NodeId node, uint64_t epoch, uint64_t before, HazardScan& scan, Outcome& outcome) {
  const bool cached = (epoch & MG_FINE_EPOCH_CACHED) != 0;
  // The misses that begin from now on will use this epoch.
  if (!cached) epochs_of_[node.value].store(epoch, std::memory_order_release);
  if (scan.has_scanned(node)) return true;
  const ScanResult result = validate_scan(epoch, before, scan.epoch(node));
  if (result == ScanResult::kValid) return true;
  if (!cached) scan.set_epoch(node, epoch);
  outcome.blocked.insert(node);
  if (result == ScanResult::kInvalidateCacheFirst) outcome.invalidate_first.insert(node);
  return false;
}

// Does the same for a node with many threads. That takes several gets, one after the other, of which the first brings
// the rights epoch. So the node had that epoch before any of its hazards was read.
void Driver::scan_hazards_of_many(NodeId node, const Line& line, bool loads, HazardScan& scan, Outcome& outcome) {
  std::array<uint64_t, kSlotsAtOnce * MG_FINE_HAZARDS> hazards;
  std::array<uint64_t, kEpochIndex + 1> header{};
  const auto get = [&](uint64_t offset, std::span<uint64_t> to) {
    services_.fabric.get(node, SegmentId::kWords, words::kHazards + offset, std::as_writable_bytes(to));
  };
  get(0, header);
  const uint64_t slots = header[0];
  if (slots > words::kHazardSlots) panic("a node counts more hazards than it can have: node, slots", node.value, slots);
  const uint64_t epoch = header[kEpochIndex];
  virtual_time::spend(&MachineCosts::downgrade);
  if (!epoch_validates(node, epoch, epoch & ~uint64_t{MG_FINE_EPOCH_CACHED}, scan, outcome)) return;
  for (uint64_t done = 0; done < slots; done += kSlotsAtOnce) {
    const std::span<uint64_t> some(hazards.data(), std::min<uint64_t>(slots - done, kSlotsAtOnce) * MG_FINE_HAZARDS);
    get((1 + done) * words::kBytesPerHazardSlot, some);
    for (size_t i = 0; i < some.size(); ++i)
      if (covers(some[i], line.number, line.run, loads) &&
          scan.must_clear(node, (1 + done) * MG_FINE_HAZARDS + i, some[i]))
        outcome.blocked.insert(node);
  }
  scan.finished(node);
}

// Carries out the last step, in its order. None of its operations waits for another node.
void Driver::end(const Step& step, const Line& line, const std::byte* buffer, const LoadRequest& request) {
  for (const Operation& operation : step) {
    switch (operation.verb) {
      case Verb::kFill:
        fill(line.frame, buffer, line_size() * line.run);
        break;
      case Verb::kSetOwn:
        set_words(line.number, line.run, operation.word);
        break;
      case Verb::kPublishHazard:
        publish_hazard(make_hazard(line.number, 1, true));
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

// Returns where this node reaches the other node's words of a run of several lines by its own instructions, which do what the
// operations on each word, one after the other, would do; nullptr if it cannot. A run has dozens of lines, and each operation is a
// call.
uint64_t* Driver::words_of_run(NodeId node, const Line& line) {
  if (line.run == 1) return nullptr;
  return reinterpret_cast<uint64_t*>(
      services_.fabric.memory_of(node, SegmentId::kLines, line.number * sizeof(uint64_t), line.run * sizeof(uint64_t)));
}

// Sets the own words of `count` lines. The last store is sequentially consistent, and with it all are in front of what follows.
void Driver::set_words(uint64_t first, uint32_t count, uint64_t value) {
  for (uint64_t number = first; number < first + count; ++number) {
    MULTIGRAIN_STEP(&word(number));
    word(number).store(value, number + 1 < first + count ? std::memory_order_release : std::memory_order_seq_cst);
  }
}

// Unlocks the entries of a run.
void Driver::unlock(const Line& line, uint64_t entry) {
  if (line.home == self_) return set_words(line.number, line.run, entry);
  uint64_t* const words = words_of_run(line.home, line);
  for (uint32_t i = 0; i < line.run; ++i) {
    if (words != nullptr)
      Words(words[i]).store(entry, std::memory_order_release);
    else
      unlock(line.home, line.number + i, entry);
  }
}

// Unlocks the entry. Only the requester that has locked it changes it; other requesters write kLocked, which changes
// nothing. So a put is enough, and the caller need not wait for it ([DSZOOM], section 2.3).
void Driver::unlock(NodeId home, uint64_t line, uint64_t entry) {
  if (home == self_) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(entry, std::memory_order_seq_cst);
    return;
  }
  Fabric& fabric = services_.fabric;
  const std::optional<uint64_t> thread = hazard_slot();
  if (!thread) {
    fabric.put(home, SegmentId::kLines, line * sizeof entry, std::as_bytes(std::span(&entry, 1)));
    return;
  }
  Outbox& outbox = outboxes_[*thread];
  const unsigned slot = outbox.next++ % Outbox::kSlots;
  fabric.wait(outbox.under_way[slot]);
  outbox.word[slot] = entry;
  outbox.under_way[slot] =
      fabric.start_put(home, SegmentId::kLines, line * sizeof entry, std::as_bytes(std::span(&outbox.word[slot], 1)));
}

}  // namespace multigrain::dszoom
