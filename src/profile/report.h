// From profiles to what a user reads: a report a node, which travels as plain bytes, and a text table or JSON of all.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "profile/profile.h"

namespace multigrain {

// The times of one thread, nanoseconds. The categories add up to total_ns exactly.
struct ThreadTimes {
  uint64_t total_ns = 0;
  std::array<uint64_t, kCategoryCount> category_ns{};
  std::array<uint64_t, kSubTimeCount> sub_ns{};
};

// The counters that a report has for each processor, not only for the node: faults and synchronisation, which tell how
// evenly the load is spread, and the work that handlers did on it for others. The rest would not fit one message.
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

// One thread of such a program (src/guest), or several together. Plain bytes, as a NodeReport.
struct ThreadRow {
  enum class Kind : uint8_t {
    kThread,   // one of the program's
    kEarlier,  // threads that have ended, of which there were too many for a row each
    kShadows   // threads of the node 0 that carry out calls of those on other nodes; idle while they wait for one
  };

  Kind kind = Kind::kThread;
  uint16_t node = 0;
  int32_t tid = 0;       // as the program knows it; of one thread
  uint32_t threads = 1;  // how many
  ThreadTimes times;
  std::array<uint64_t, kThreadCounters.size()> counters{};
  uint64_t messages = 0;
  uint64_t message_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<ThreadRow>);

// What one node has to report. Plain bytes: it is sent to node 0 or left in memory that the nodes share.
struct NodeReport {
  static constexpr uint32_t kVersion = 1;

  uint32_t version = kVersion;
  uint16_t node = 0;
  uint16_t processors = 0;   // how many of `processor` are filled
  uint32_t thread_rows = 0;  // how many ThreadRows belong to it, which travel by themselves
  std::array<ThreadTimes, Config::kMaxProcessorsPerNode> processor{};
  std::array<std::array<uint64_t, kProcessorCounters.size()>, Config::kMaxProcessorsPerNode> processor_counters{};
  ThreadTimes service;                             // idle time included
  std::array<uint64_t, kCounterCount> counters{};  // of all its threads
  std::array<uint64_t, kMessageTypes> messages{};
  std::array<uint64_t, kMessageTypes> message_bytes{};
};
static_assert(std::is_trivially_copyable_v<NodeReport>);
static_assert(sizeof(NodeReport) <= 64 * 1024, "must fit one message of the fabric");

// Fill a report: the node's processors in their order, then its service thread. Counters are added up. No allocation.
// add_processor may be called Config::kMaxProcessorsPerNode times. `ticks_per_us`: time_stamps_per_us().
void add_processor(NodeReport& report, const ProfileSnapshot& profile, double ticks_per_us);
void add_service(NodeReport& report, const ProfileSnapshot& profile, double ticks_per_us);

// Of a program whose threads are not processors: what a thread did, as a row, and its counters into the node's report.
ThreadRow make_row(const ProfileSnapshot& profile, double ticks_per_us);
void add_counters(NodeReport& report, const ProfileSnapshot& profile);
// One row of two; the kind, the node and the number stay those of `to`.
void add_row(ThreadRow& to, const ThreadRow& what);

// Whether a report that came from another node can be rendered: its version and its counts.
Status check_report(const NodeReport& report);
Status check_row(const ThreadRow& row);

// What the run was, for the head of the output.
struct RunDescription {
  std::string program;
  unsigned nodes = 1;
  unsigned processors_per_node = 1;
  std::string protocol;
  size_t page_size = 0;                   // bytes
  std::string network;                    // as given to --net
  std::string clock = "wall";             // what all times are of: wall or virtual
  std::string access;                     // the mechanism that was chosen
  Nanoseconds elapsed_ns = 0;             // from the start of main(), or the last reset, to its end
  std::vector<unsigned> never_started{};  // the processors that no mg_spawn has started
  // Whether the program knows nothing of processors (src/guest): then its threads are in their place.
  bool is_hosted = false;
  std::vector<ThreadRow> threads{};
};

// "processors 1 to 3 were never started: ...", without the end of a sentence. `numbers` ascend and are not empty.
std::string tell_never_started(std::span<const unsigned> numbers);

// The name of a message type for people, or nullptr.
using MessageNamer = const char* (*)(uint8_t type);

// A table for people: a row a processor, their sum, a row a service thread, then the counters that are not zero.
// The reports are in the order of their nodes. Ends with a newline.
std::string render_text(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer name = nullptr);
// The same for machines; the schema is in docs/user/profile.md. One object, indented, ends with a newline.
std::string render_json(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer name = nullptr);

// The name of a counter or category in JSON, for example "read_faults".
const char* json_name(Counter counter);
const char* json_name(Category category);

}  // namespace multigrain
