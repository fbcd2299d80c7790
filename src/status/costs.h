// What a run costs, by place: by page of shared memory, by line of the program that faulted, and by object of synchronisation
// and the call that waited for it (mgrun --stats, mgtop).
//
// A node has one table of each, of a fixed size, in its status, where other processes read it while the node runs. Any thread
// adds to an entry by relaxed atomics. An entry has one key from its first use until the node ends; what finds no entry any
// more is added to one for all the rest, so that sums stay right.
//
// Nothing is counted unless somebody wants it: the statistics, from the start, or mgtop, from when it begins to look. Until
// then a fault or a wait costs two loads more. Nothing here allocates, locks or calls the system but append_rows().
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace multigrain::costs {

enum class Mode : uint32_t { kOff, kOn, kEnded };  // kEnded: the phase that the statistics are about is over

struct PageCost {
  std::atomic<uint32_t> reads;   // faults of the node's processors; under a line protocol misses
  std::atomic<uint32_t> writes;  //
  std::atomic<uint32_t> diffs;   // of this page that the node has made, if they were not empty
  std::atomic<uint32_t> last;    // where in the page the last fault was
  std::atomic<uint64_t> time;    // in the handlers of its faults, in time stamps
  std::atomic<uint64_t> diff_bytes;
};

// Pages come in groups, so that neighbours are neighbours here, too.
struct PageGroup {
  static constexpr uint32_t kPages = 64;
  std::atomic<uint64_t> key;  // the group's number plus one; 0: unused
  uint64_t unused[7];
  PageCost page[kPages];
};

struct LineCost {
  std::atomic<uint64_t> site;  // the instruction; 0: unused
  std::atomic<uint64_t> last;  // the address of its last access that faulted
  std::atomic<uint32_t> reads;
  std::atomic<uint32_t> writes;
  std::atomic<uint64_t> time;
};

struct WaitCost {
  std::atomic<uint64_t> key;  // a mixture of the next three; 0: unused
  std::atomic<uint64_t> object;
  std::atomic<uint64_t> site;  // where the call returns to
  std::atomic<uint32_t> call;  // a Call (status/node_status.h)
  std::atomic<uint32_t> waits;
  std::atomic<uint32_t> fetched;  // of a lock: how often it came from another node
  uint32_t unused;
  std::atomic<uint64_t> time;
  std::atomic<uint64_t> longest;
};

// Entries of one kind, and which of them are used: most never are, and what was never touched takes no memory.
template <typename Entry, uint32_t kCount>
struct Entries {
  std::atomic<uint64_t> used[kCount / 64];  // bit i of word w: entry 64 * w + i
  Entry entry[kCount];
};

struct Table {
  static constexpr uint32_t kGroups = 8192;  // 2 GiB of pages of 4096 bytes
  static constexpr uint32_t kLines = 4096;
  static constexpr uint32_t kWaits = 4096;

  std::atomic<Mode> mode;
  std::atomic<uint32_t> page_shift;
  std::atomic<double> units_per_us;  // of the time stamps
  PageCost other_pages;              // what found no entry
  LineCost other_lines;
  WaitCost other_waits;
  Entries<PageGroup, kGroups> groups;
  Entries<LineCost, kLines> lines;
  Entries<WaitCost, kWaits> waits;
};

// --- For the node.

// Gives this process its table, which is all zeroes. Called once, before any processor runs. `now` returns time stamps, and is
// async-signal-safe.
void start(Table& table, Mode mode, uint32_t page_shift, uint64_t (*now)(), double units_per_us);
// A forked child counts nothing.
void forget();
// The phase that the statistics are about begins at the time stamp `now`: everything so far is forgotten, and of what is under way
// only the time from now on counts.
void begin_phase(uint64_t now);
void end_phase();

namespace internal {
extern constinit std::atomic<Table*> g_table;
uint64_t now();
void add_fault(uint64_t page, uint32_t offset, uint64_t address, bool is_write, uint64_t site, uint64_t begun);
void add_wait(uint32_t call, uint64_t object, uint64_t site, uint64_t begun);
void add_diff(uint64_t page, uint64_t bytes);
void add_fetched_lock(uint32_t call, uint64_t lock, uint64_t site);
}  // namespace internal

inline bool on() {
  const Table* const table = internal::g_table.load(std::memory_order_relaxed);
  return table != nullptr && table->mode.load(std::memory_order_relaxed) == Mode::kOn;
}

// A fault, from the object's construction to its end. Async-signal-safe.
class FaultScope {
 public:
  // `site` is the instruction, or 0 if it is not known.
  FaultScope(uint64_t page, uint32_t offset, uint64_t address, bool is_write, uint64_t site)
      : begun_(on() ? internal::now() : 0),
        page_(page),
        address_(address),
        site_(site),
        offset_(offset),
        is_write_(is_write) {}
  ~FaultScope() {
    if (begun_ != 0) [[unlikely]]
      internal::add_fault(page_, offset_, address_, is_write_, site_, begun_);
  }
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

 private:
  const uint64_t begun_;
  const uint64_t page_;
  const uint64_t address_;
  const uint64_t site_;
  const uint32_t offset_;
  const bool is_write_;
};

// A call that waits, in the same way.
class WaitScope {
 public:
  WaitScope(uint32_t call, uint64_t object, uint64_t site)
      : begun_(on() ? internal::now() : 0), object_(object), site_(site), call_(call) {}
  ~WaitScope() {
    if (begun_ != 0) [[unlikely]]
      internal::add_wait(call_, object_, site_, begun_);
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  const uint64_t begun_;
  const uint64_t object_;
  const uint64_t site_;
  const uint32_t call_;
};

// The node has made a diff of the page that is not empty.
inline void note_diff(uint64_t page, uint64_t bytes) {
  if (on()) [[unlikely]]
    internal::add_diff(page, bytes);
}

// --- What the tables have, as plain values; times are in nanoseconds.

struct PageRow {
  uint32_t node = 0;
  uint32_t last = 0;
  uint64_t page = 0;
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t diffs = 0;
  uint64_t diff_bytes = 0;
  uint64_t ns = 0;
};
struct LineRow {
  uint32_t node = 0;
  uint32_t unused = 0;
  uint64_t site = 0;
  uint64_t last = 0;
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t ns = 0;
};
struct WaitRow {
  uint32_t node = 0;
  uint32_t call = 0;
  uint64_t object = 0;
  uint64_t site = 0;
  uint64_t waits = 0;
  uint64_t fetched = 0;
  uint64_t longest_ns = 0;
  uint64_t ns = 0;
};

// The number of the page of what found no entry of its own; the site of such lines is 0, and so is the object of such waits.
inline constexpr uint64_t kOtherPages = ~uint64_t{0};

struct Rows {
  std::vector<PageRow> pages;
  std::vector<LineRow> lines;
  std::vector<WaitRow> waits;
};
// Appends what the table has, in the order of pages, sites and objects. The table may be another process's, and be written
// meanwhile.
void append_rows(const Table& table, uint32_t node, Rows& rows);

}  // namespace multigrain::costs
