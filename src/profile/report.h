// Makes of profiles what a user reads: a report for each node, which travels as plain bytes, and a text table or JSON
// of all reports.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "profile/cost_report.h"
#include "profile/profile.h"

namespace multigrain {

// The times of one thread, in nanoseconds. The categories add up to total_ns exactly.
struct ThreadTimes {
  uint64_t total_ns = 0;
  std::array<uint64_t, kCategoryCount> category_ns{};
  std::array<uint64_t, kSubTimeCount> sub_ns{};
};

// The counters that a report has for each processor, not only for the node: faults and synchronisation, which tell how
// evenly the load is spread, and the work that handlers did on the processor for other nodes. The rest would not fit
// one message.
inline constexpr std::array kProcessorCounters = {
    Counter::kReadFaults,   Counter::kWriteFaults,  Counter::kUpgrades, Counter::kLocalFaults,
    Counter::kPagesFetched, Counter::kDiffsApplied, Counter::kReleases, Counter::kPagesReleased,
    Counter::kLocksLocal,   Counter::kLocksRemote,  Counter::kBarriers,
};

// The counters that a report has for each thread of a program that knows nothing of processors.
inline constexpr std::array kThreadCounters = {
    Counter::kReadFaults,   Counter::kWriteFaults, Counter::kUpgrades,   Counter::kLocalFaults,
    Counter::kPagesFetched, Counter::kSystemCalls, Counter::kFutexCalls, Counter::kCallsAtHome,
};

// One thread of such a program (src/guest), or several together. It is plain bytes, as a NodeReport is.
struct ThreadRow {
  enum class Kind : uint8_t {
    kThread,  // one of the program's threads
    // Threads that have ended, of which there were too many for a row each.
    kEarlier,
    // Threads of node 0 that carry out calls of threads on other nodes. They are idle while they wait for one.
    kShadows
  };

  Kind kind = Kind::kThread;
  uint16_t node = 0;
  // The number of a single thread, as the program knows it.
  int32_t tid = 0;
  uint32_t threads = 1;  // how many threads the row is of
  ThreadTimes times;
  std::array<uint64_t, kThreadCounters.size()> counters{};
  uint64_t messages = 0;
  uint64_t message_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<ThreadRow>);

// The report of one node. It is plain bytes: it is sent to node 0 or left in memory that the nodes share.
struct NodeReport {
  static constexpr uint32_t kVersion = 1;

  uint32_t version = kVersion;
  uint16_t node = 0;
  uint16_t processors = 0;  // how many entries of `processor` are filled
  // How many ThreadRows belong to the report; they travel by themselves.
  uint32_t thread_rows = 0;
  std::array<ThreadTimes, Config::kMaxProcessorsPerNode> processor{};
  std::array<std::array<uint64_t, kProcessorCounters.size()>, Config::kMaxProcessorsPerNode> processor_counters{};
  ThreadTimes service;                             // idle time included
  std::array<uint64_t, kCounterCount> counters{};  // sums over all its threads
  std::array<uint64_t, kMessageTypes> messages{};
  std::array<uint64_t, kMessageTypes> message_bytes{};
};
static_assert(std::is_trivially_copyable_v<NodeReport>);
static_assert(sizeof(NodeReport) <= 64 * 1024, "must fit one message of the fabric");

// These fill a report: the node's processors in their order, then its service thread. They add up counters, and
// allocate nothing. add_processor may be called Config::kMaxProcessorsPerNode times. `ticks_per_us` is
// time_stamps_per_us().
void add_processor(NodeReport& report, const ProfileSnapshot& profile, double ticks_per_us);
void add_service(NodeReport& report, const ProfileSnapshot& profile, double ticks_per_us);

// For a program whose threads are not processors: make_row() makes a row of what a thread did, and add_counters() adds
// the thread's counters to the node's report.
ThreadRow make_row(const ProfileSnapshot& profile, double ticks_per_us);
void add_counters(NodeReport& report, const ProfileSnapshot& profile);
// Makes one row of two; the kind, the node and the number stay those of `to`.
void add_row(ThreadRow& to, const ThreadRow& what);

// These check whether a report or row that came from another node can be rendered: its version and its counts.
Status check_report(const NodeReport& report);
Status check_row(const ThreadRow& row);

// Describes the run, for the head of the output.
struct RunDescription {
  std::string program;
  unsigned nodes = 1;
  unsigned processors_per_node = 1;
  std::string protocol;
  std::string choice{};        // what was chosen for the user, and why, in sentences; empty: nothing
  size_t page_size = 0;        // bytes
  std::string network;         // as given to --net
  std::string clock = "wall";  // the clock of all times: wall, virtual or counted
  // In counted time: the emulated machine, how many turns its participants have had, and how often one lost its turn.
  std::string machine;
  bool caches = false;             // of --caches
  std::optional<uint64_t> seed{};  // of --seed
  Nanoseconds perturb_ns = 0;      // how late processors started at most, with a seed
  uint64_t turns = 0;
  uint64_t interruptions = 0;
  std::string access;  // the mechanism that was chosen
  // The time from the start of main(), or the last reset, to the end of the phase.
  Nanoseconds elapsed_ns = 0;
  std::vector<unsigned> never_started{};  // the processors that no mg_spawn has started
  // The program knows nothing of processors (src/guest): then its threads are in their place.
  bool is_hosted = false;
  std::vector<ThreadRow> threads{};
  CostReport costs{};  // what it cost by place
};

// Returns "processors 1 to 3 were never started: ...", without the end of a sentence. `numbers` ascend and
// are not empty.
std::string tell_never_started(std::span<const unsigned> numbers);

// Returns the name of a message type for people, or nullptr.
using MessageNamer = const char* (*)(uint8_t type);

// Renders a table for people: a row for each processor, their sum, a row for each service thread, then the counters
// that are not zero. The reports are in the order of their nodes. The table ends with a newline.
std::string render_text(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer name = nullptr);
// Renders the same for machines; the schema is in docs/user/profile.md. The result is one object, indented, and ends
// with a newline.
std::string render_json(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer name = nullptr);

// These return the name of a counter or category in JSON, for example "read_faults".
const char* json_name(Counter counter);
const char* json_name(Category category);

}  // namespace multigrain
