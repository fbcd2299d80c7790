#include "profile/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

namespace multigrain {
namespace {

struct CounterName {
  Counter counter;
  const char* json;
  const char* text;
  const char* group;
};

constexpr CounterName kCounterNames[] = {
    {Counter::kReadFaults, "read_faults", "read faults", "faults"},
    {Counter::kWriteFaults, "write_faults", "write faults", "faults"},
    {Counter::kUpgrades, "upgrades", "upgrades from read to write", "faults"},
    {Counter::kLocalFaults, "local_faults", "served inside the node", "faults"},
    {Counter::kPagesFetched, "pages_fetched", "fetched", "pages"},
    {Counter::kPrefetches, "prefetches", "asked for ahead of the program", "pages"},
    {Counter::kInvalidations, "invalidations", "invalidated", "pages"},
    {Counter::kTwins, "twins", "twins made", "pages"},
    {Counter::kDiffs, "diffs", "diffs made", "pages"},
    {Counter::kEmptyDiffs, "empty_diffs", "diffs that were empty", "pages"},
    {Counter::kDiffBytes, "diff_bytes", "diff bytes", "pages"},
    {Counter::kDiffLines, "diff_lines", "lines of 64 bytes in diffs", "pages"},
    {Counter::kDiffsApplied, "diffs_applied", "diffs merged at home", "pages"},
    {Counter::kSingleWriterGrants, "single_writer_grants", "single writer granted", "pages"},
    {Counter::kSingleWriterBreaks, "single_writer_breaks", "single writer ended", "pages"},
    {Counter::kGrantReads, "grant_reads", "grant read, calls", "access rights"},
    {Counter::kGrantReadPages, "grant_read_pages", "grant read, pages", "access rights"},
    {Counter::kGrantWrites, "grant_writes", "grant write, calls", "access rights"},
    {Counter::kGrantWritePages, "grant_write_pages", "grant write, pages", "access rights"},
    {Counter::kRevokeWrites, "revoke_writes", "revoke write, calls", "access rights"},
    {Counter::kRevokeWritePages, "revoke_write_pages", "revoke write, pages", "access rights"},
    {Counter::kRevokes, "revokes", "revoke all, calls", "access rights"},
    {Counter::kRevokePages, "revoke_pages", "revoke all, pages", "access rights"},
    {Counter::kReleases, "releases", "releases", "synchronisation"},
    {Counter::kPagesReleased, "pages_released", "pages released", "synchronisation"},
    {Counter::kLocksLocal, "locks_local", "locks taken inside the node", "synchronisation"},
    {Counter::kLocksRemote, "locks_remote", "locks taken from another node", "synchronisation"},
    {Counter::kDeferredReleases, "deferred_releases", "unlocks that deferred their release", "synchronisation"},
    {Counter::kBarriers, "barriers", "barrier arrivals", "synchronisation"},
    {Counter::kRendezvous, "rendezvous", "arrivals at rendezvous", "synchronisation"},
    {Counter::kAcquires, "acquires", "acquires with write notices", "lazy release consistency"},
    {Counter::kNotices, "notices", "write notices made", "lazy release consistency"},
    {Counter::kNoticesLost, "notices_lost", "acquires too late for a log", "lazy release consistency"},
    {Counter::kEarlyDeposits, "early_deposits", "diffs deposited at a notice", "lazy release consistency"},
    {Counter::kWastedPrefetches, "wasted_prefetches", "groups fetched ahead in vain", "lazy release consistency"},
    {Counter::kFetchLogOverflows, "fetch_log_overflows", "times that a fetch log overflowed",
     "lazy release consistency"},
    {Counter::kHomesMoved, "homes_moved", "homes moved to the page's writer", "lazy release consistency"},
    {Counter::kPagesToLines, "pages_to_lines", "pages moved to lines", "lazy release consistency"},
    {Counter::kUpdates, "pages_updated", "pages in use that were updated", "lazy release consistency"},
    {Counter::kDecidedLocal, "decided_local", "decided LOCAL", "placement"},
    {Counter::kDecidedGlobal, "decided_global", "decided GLOBAL", "placement"},
    {Counter::kRequestsPinned, "requests_pinned", "requests for pinned pages", "placement"},
    {Counter::kBecameReadOnly, "became_read_only", "granted read-only", "placement"},
    {Counter::kBecameLocalWritable, "became_local_writable", "granted local-writable", "placement"},
    {Counter::kBecameGlobalWritable, "became_global_writable", "granted global-writable", "placement"},
    {Counter::kSyncs, "syncs", "writers synced", "placement"},
    {Counter::kFlushes, "flushes", "copies flushed", "placement"},
    {Counter::kUnmaps, "unmaps", "users of global memory unmapped", "placement"},
    {Counter::kZeroFills, "zero_fills", "filled with zeros where they are used", "placement"},
    {Counter::kGlobalMaps, "global_maps", "mapped from another node", "placement"},
    {Counter::kThaws, "thaws", "thawed", "placement"},
    {Counter::kRemoteLoads, "remote_loads", "remote references, loads", "placement"},
    {Counter::kRemoteStores, "remote_stores", "remote references, stores", "placement"},
    {Counter::kRemoteAtomics, "remote_atomics", "remote references, atomics", "placement"},
    {Counter::kTwoHopMisses, "two_hop_misses", "misses of two hops", "lines"},
    {Counter::kThreeHopMisses, "three_hop_misses", "misses of three hops", "lines"},
    {Counter::kStoreMisses, "store_misses", "of these, for a store", "lines"},
    {Counter::kRightsAhead, "rights_ahead", "loads that brought the right to store", "lines"},
    {Counter::kLineUpgrades, "line_upgrades", "upgrades from shared to exclusive", "lines"},
    {Counter::kLinesFound, "lines_found", "misses ended by another processor", "lines"},
    {Counter::kFalseMisses, "false_misses", "false misses", "lines"},
    {Counter::kLinesMoved, "lines_moved", "brought here", "lines"},
    {Counter::kLinesInvalidated, "lines_invalidated", "copies elsewhere invalidated", "lines"},
    {Counter::kLockRetries, "lock_retries", "tries to lock a locked entry", "lines"},
    {Counter::kHazardWaits, "hazard_waits", "waits for hazards", "lines"},
    {Counter::kIntervalsForgotten, "intervals_forgotten", "intervals that calendars forgot", "virtual time"},
    {Counter::kForgottenTimes, "forgotten_times", "requests for a time forgotten", "virtual time"},
    {Counter::kSystemCalls, "system_calls", "system calls", "program as it is"},
    {Counter::kFutexCalls, "futex_calls", "of these, futex calls", "program as it is"},
    {Counter::kCallsAtHome, "calls_at_home", "requests to node 0", "program as it is"},
};
static_assert(std::size(kCounterNames) == kCounterCount);
static_assert(
    [] {
      for (size_t i = 0; i < kCounterCount; ++i) {
        if (kCounterNames[i].counter != static_cast<Counter>(i)) return false;
      }
      return true;
    }(),
    "the names are in the order of the counters");

constexpr std::array<const char*, kCategoryCount> kCategoryJson = {"user",     "data_wait", "lock",  "barrier",
                                                                   "protocol", "idle",      "system"};

struct Column {
  Category category;
  const char* title;
};
// The columns of the text table of processors, and of that of threads.
constexpr std::array kColumns = {Column{Category::kUser, "user"}, Column{Category::kDataWait, "data wait"},
                                 Column{Category::kLock, "lock"}, Column{Category::kBarrier, "barrier"},
                                 Column{Category::kProtocol, "protocol"}};
constexpr std::array kThreadColumns = {Column{Category::kUser, "user"}, Column{Category::kDataWait, "data wait"},
                                       Column{Category::kLock, "futex"}, Column{Category::kSystem, "system calls"},
                                       Column{Category::kProtocol, "protocol"}};
// The columns of the table of what threads counted, in the order of kThreadCounters.
constexpr std::array<const char*, kThreadCounters.size()> kThreadCounterColumns = {
    "read", "write", "upgrade", "local", "fetched", "calls", "futex", "to node 0"};

// Sets negative categories to zero, and subtracts the difference from the largest category, so that the sum stays the
// same. An almost empty category may be negative, because the time stamp counters of two sockets may differ by a few
// ticks, and because a signal may come between taking a time stamp and using it.
void remove_negative_categories(std::array<uint64_t, kCategoryCount>& ticks) {
  uint64_t lacking = 0;
  for (uint64_t& value : ticks) {
    if (static_cast<int64_t>(value) >= 0) continue;
    lacking += 0 - value;
    value = 0;
  }
  uint64_t& largest = *std::max_element(ticks.begin(), ticks.end());
  largest -= std::min(lacking, largest);
}

ThreadTimes to_times(const ProfileSnapshot& profile, double ticks_per_us) {
  const auto to_ns = [&](uint64_t ticks) {
    return static_cast<uint64_t>(std::llround(static_cast<double>(ticks) * 1000.0 / ticks_per_us));
  };
  std::array<uint64_t, kCategoryCount> ticks = profile.ticks;
  remove_negative_categories(ticks);
  // Converting the running sum rather than each category keeps the sum exact.
  ThreadTimes times;
  uint64_t sum_ticks = 0;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    sum_ticks += ticks[i];
    const uint64_t sum_ns = to_ns(sum_ticks);
    times.category_ns[i] = sum_ns - times.total_ns;
    times.total_ns = sum_ns;
  }
  for (size_t i = 0; i < kSubTimeCount; ++i) times.sub_ns[i] = to_ns(profile.sub_ticks[i]);
  return times;
}

template <size_t N>
void accumulate(std::array<uint64_t, N>& to, const std::array<uint64_t, N>& what) {
  std::transform(to.begin(), to.end(), what.begin(), to.begin(), std::plus<>());
}

void add_times(ThreadTimes& to, const ThreadTimes& what) {
  to.total_ns += what.total_ns;
  accumulate(to.category_ns, what.category_ns);
  accumulate(to.sub_ns, what.sub_ns);
}

bool is_of_program(const ThreadRow& row) {
  return row.kind != ThreadRow::Kind::kShadows;
}

// Adds up the times of the program's own threads, where those are known and processors are not.
ThreadTimes sum_of_processors(const RunDescription& run, std::span<const NodeReport> reports) {
  ThreadTimes sum;
  for (const ThreadRow& row : run.threads)
    if (is_of_program(row)) add_times(sum, row.times);
  for (const NodeReport& report : reports) {
    for (size_t i = 0; i < report.processors; ++i) add_times(sum, report.processor[i]);
  }
  return sum;
}

std::string message_name(uint8_t type, MessageNamer namer) {
  const char* name = namer != nullptr ? namer(type) : nullptr;
  return name != nullptr ? std::string(name) : fmt::format("type 0x{:02x}", type);
}

double milliseconds(uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}
double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// --- Text

class TextTable {
 public:
  TextTable(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer namer)
      : run_(run), reports_(reports), namer_(namer) {}

  std::string render() {
    head();
    times();
    if (run_.is_hosted) thread_counters();
    inside_protocol();
    counters();
    out_ += render_costs(run_.costs, sum_of_processors(run_, reports_).total_ns);
    if (!run_.never_started.empty()) print("\nOf the machine, {}.\n", tell_never_started(run_.never_started));
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void head() {
    print("\n{}: {} processor{} on {} node{} of {}, protocol {}, pages of {} bytes, network {}, access by {}{}\n",
          run_.program, run_.nodes * run_.processors_per_node, run_.nodes * run_.processors_per_node == 1 ? "" : "s",
          run_.nodes, run_.nodes == 1 ? "" : "s", run_.processors_per_node, run_.protocol, run_.page_size, run_.network,
          run_.access, time_of());
    if (!run_.choice.empty()) print("{}\n", run_.choice);
    print("Elapsed: {:.3f} ms. Where the {}' time went, in ms and % of each row's total:\n\n",
          milliseconds(run_.elapsed_ns), run_.is_hosted ? "threads" : "processors");
  }

  // What the times are of, if not of this machine.
  [[nodiscard]] std::string time_of() const {
    if (run_.clock == "virtual") return ", in virtual time";
    if (run_.clock != "counted") return "";
    const std::string late = run_.seed ? fmt::format(", seed {} (processors start up to {:g} us late)", *run_.seed,
                                                     static_cast<double>(run_.perturb_ns) / 1000)
                                       : "";
    return fmt::format(", in counted time of the machine {}{}{}", run_.machine, run_.caches ? " with its caches" : "",
                       late);
  }

  void row(std::string_view who, std::string_view node, uint64_t total_ns, const ThreadTimes& times) {
    print("{:>9} {:>4} {:>11.{}f}", who, node, milliseconds(total_ns), decimals_);
    for (const Column& column : columns()) {
      const uint64_t ns = times.category_ns[static_cast<size_t>(column.category)];
      print(" {:>11.{}f} {:>3.0f}%", milliseconds(ns), decimals_, percent(ns, total_ns));
    }
    print("\n");
  }

  [[nodiscard]] std::span<const Column> columns() const {
    return run_.is_hosted ? std::span<const Column>(kThreadColumns) : std::span<const Column>(kColumns);
  }

  static std::string name_of(const ThreadRow& row) {
    switch (row.kind) {
      case ThreadRow::Kind::kThread:
        return std::to_string(row.tid);
      case ThreadRow::Kind::kEarlier:
        return "others";
      case ThreadRow::Kind::kShadows:
        return "shadows";
    }
    return {};
  }

  void rows_of_threads() {
    for (const ThreadRow& thread : run_.threads)
      if (is_of_program(thread)) row(name_of(thread), std::to_string(thread.node), thread.times.total_ns, thread.times);
  }

  // A shadow's total is the time in which it did not merely wait for something to do.
  void rows_of_shadows() {
    for (const ThreadRow& thread : run_.threads)
      if (!is_of_program(thread)) row("shadows", std::to_string(thread.node), awake(thread.times), thread.times);
  }

  void explain_threads() {
    for (const ThreadRow& thread : run_.threads)
      if (thread.kind == ThreadRow::Kind::kEarlier)
        print("({} on node {}: {} threads that had ended, without a row each.)\n", name_of(thread), thread.node,
              thread.threads);
    if (std::ranges::all_of(run_.threads, is_of_program)) return;
    print("(Shadows carry out, on node 0, what threads on other nodes ask for; their total is the time awake.)\n");
  }

  void thread_counters() {
    print("\n{:>9} {:>4} {:>35} {:>23}\n{:>9} {:>4}", "", "", "faults", "pages", "thread", "node");
    for (const char* const title : kThreadCounterColumns) print(" {:>11}", title);
    print(" {:>11}\n", "messages");
    for (const ThreadRow& thread : run_.threads) {
      print("{:>9} {:>4}", name_of(thread), thread.node);
      for (const uint64_t value : thread.counters) print(" {:>11}", value);
      print(" {:>11}\n", thread.messages);
    }
  }

  void times() {
    const ThreadTimes sum = sum_of_processors(run_, reports_);
    // Columns hold 11 characters; more digits than those of a microsecond say nothing.
    decimals_ = milliseconds(sum.total_ns) < 1e6 ? 3 : 1;
    print("{:>9} {:>4} {:>11}", run_.is_hosted ? "thread" : "processor", "node", "total");
    for (const Column& column : columns()) print(" {:>16}", column.title);
    print("\n");
    size_t number = 0;
    for (const NodeReport& report : reports_) {
      for (size_t i = 0; i < report.processors; ++i, ++number)
        row(std::to_string(number), std::to_string(report.node), report.processor[i].total_ns, report.processor[i]);
    }
    rows_of_threads();
    row("sum", "", sum.total_ns, sum);
    rows_of_shadows();
    explain_threads();
    if (std::ranges::none_of(reports_, [](const NodeReport& r) { return awake(r.service) != 0; })) return;
    for (const NodeReport& report : reports_)
      row("service", std::to_string(report.node), awake(report.service), report.service);
    print("(A node's service thread handles messages that no {} is waiting for; its total is the time awake.)\n",
          run_.is_hosted ? "thread" : "processor");
  }

  static uint64_t awake(const ThreadTimes& times) {
    return times.total_ns - times.category_ns[static_cast<size_t>(Category::kIdle)];
  }

  void inside_protocol() {
    const ThreadTimes sum = sum_of_processors(run_, reports_);
    const auto part = [&](SubTime which) { return sum.sub_ns[static_cast<size_t>(which)]; };
    uint64_t changes = 0;
    for (const NodeReport& report : reports_)
      for (const Counter calls :
           {Counter::kGrantReads, Counter::kGrantWrites, Counter::kRevokeWrites, Counter::kRevokes})
        changes += report.counters[static_cast<size_t>(calls)];
    const double rights_us = milliseconds(part(SubTime::kRights)) * 1000;
    print("\nOf the sum: changing access rights {:.3f} ms ({:.1f}%){}, diffs {:.3f} ms ({:.1f}%).\n", rights_us / 1000,
          percent(part(SubTime::kRights), sum.total_ns),
          changes == 0 ? "" : fmt::format(", {:.2f} us a change", rights_us / static_cast<double>(changes)),
          milliseconds(part(SubTime::kDiffs)), percent(part(SubTime::kDiffs), sum.total_ns));
  }

  template <typename Get>
  void counter_row(const char* group, std::string_view name, Get&& get) {
    uint64_t sum = 0;
    uint64_t least = ~uint64_t{0};
    uint64_t most = 0;
    for (const NodeReport& report : reports_) {
      const uint64_t value = get(report);
      sum += value;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    if (sum == 0) return;
    if (last_group_ != group) {
      last_group_ = group;
      print("{}\n", group);
    }
    print("  {:<30} {:>14}", name, sum);
    if (wide()) {
      for (const NodeReport& report : reports_) print(" {:>12}", get(report));
    } else {
      print(" {:>12} {:>12}", least, most);
    }
    print("\n");
  }

  // Returns whether there is room for a column for each node.
  [[nodiscard]] bool wide() const { return reports_.size() <= 5; }

  void counters() {
    print("\n{:<32} {:>14}", "Counters", "sum");
    if (wide()) {
      for (const NodeReport& report : reports_) print(" {:>12}", fmt::format("node {}", report.node));
    } else {
      print(" {:>12} {:>12}", "least a node", "most a node");
    }
    print("\n");
    for (const CounterName& entry : kCounterNames) {
      const auto index = static_cast<size_t>(entry.counter);
      counter_row(entry.group, entry.text, [=](const NodeReport& r) { return r.counters[index]; });
    }
    for (size_t type = 0; type < kMessageTypes; ++type)
      counter_row("messages sent", message_name(static_cast<uint8_t>(type), namer_),
                  [=](const NodeReport& r) { return r.messages[type]; });
    counter_row("messages sent", "all",
                [](const NodeReport& r) { return std::accumulate(r.messages.begin(), r.messages.end(), uint64_t{0}); });
    counter_row("messages sent", "all, bytes", [](const NodeReport& r) {
      return std::accumulate(r.message_bytes.begin(), r.message_bytes.end(), uint64_t{0});
    });
    if (last_group_.empty()) print("  (all zero)\n");
  }

  const RunDescription& run_;
  std::span<const NodeReport> reports_;
  MessageNamer namer_;
  std::string out_;
  std::string last_group_;
  int decimals_ = 3;
};

// --- JSON

using Json = nlohmann::ordered_json;

Json to_json(const ThreadTimes& times) {
  Json json;
  json["total_ns"] = times.total_ns;
  for (size_t i = 0; i < kCategoryCount; ++i) json[fmt::format("{}_ns", kCategoryJson[i])] = times.category_ns[i];
  json["rights_ns"] = times.sub_ns[static_cast<size_t>(SubTime::kRights)];
  json["diffs_ns"] = times.sub_ns[static_cast<size_t>(SubTime::kDiffs)];
  return json;
}

const char* json_name(ThreadRow::Kind kind) {
  switch (kind) {
    case ThreadRow::Kind::kThread:
      return "thread";
    case ThreadRow::Kind::kEarlier:
      return "others";
    case ThreadRow::Kind::kShadows:
      return "shadows";
  }
  return "";
}

Json to_json(const ThreadRow& row) {
  Json json;
  json["kind"] = json_name(row.kind);
  if (row.kind == ThreadRow::Kind::kThread) json["thread"] = row.tid;
  json["threads"] = row.threads;
  json.update(to_json(row.times));
  for (size_t i = 0; i < kThreadCounters.size(); ++i)
    json["counters"][multigrain::json_name(kThreadCounters[i])] = row.counters[i];
  json["messages"] = row.messages;
  json["message_bytes"] = row.message_bytes;
  return json;
}

Json to_json(const Advice& advice) {
  return {{"sentence", advice.sentence}, {"command", advice.command}};
}

Json to_json(const CostReport& costs) {
  Json json;
  json["memory"] = Json::array();
  for (const MemoryCost& cost : costs.memory)
    json["memory"].push_back({{"name", cost.name},
                              {"blocks", cost.blocks},
                              {"bytes", cost.bytes},
                              {"by_lines", cost.by_lines},
                              {"ns", cost.ns},
                              {"reads", cost.reads},
                              {"writes", cost.writes},
                              {"diffs", cost.diffs},
                              {"diff_bytes", cost.diff_bytes},
                              {"pages", cost.pages},
                              {"page_visits", cost.visits},
                              {"pages_written", cost.written},
                              {"pages_written_by_many", cost.written_by_many},
                              {"pages_written_remotely", cost.written_remotely},
                              {"nodes", cost.nodes},
                              {"advice", to_json(cost.advice)}});
  json["lines"] = Json::array();
  for (const LineOfFaults& line : costs.lines)
    json["lines"].push_back({{"place", line.place},
                             {"memory", line.memory},
                             {"ns", line.ns},
                             {"reads", line.reads},
                             {"writes", line.writes},
                             {"nodes", line.nodes},
                             {"advice", to_json(line.advice)}});
  json["waits"] = Json::array();
  for (const ObjectOfWaits& wait : costs.waits)
    json["waits"].push_back({{"object", wait.name},
                             {"place", wait.place},
                             {"ns", wait.ns},
                             {"waits", wait.waits},
                             {"fetched", wait.fetched},
                             {"longest_ns", wait.longest_ns},
                             {"nodes", wait.nodes},
                             {"advice", to_json(wait.advice)}});
  json["other_ns"] = {{"memory", costs.other_ns[0]}, {"lines", costs.other_ns[1]}, {"waits", costs.other_ns[2]}};
  return json;
}

Json to_json(const NodeReport& report, size_t& processor_number, MessageNamer namer) {
  Json json;
  json["node"] = report.node;
  json["processors"] = Json::array();
  for (size_t i = 0; i < report.processors; ++i) {
    Json processor;
    processor["processor"] = processor_number++;
    processor.update(to_json(report.processor[i]));
    for (size_t c = 0; c < kProcessorCounters.size(); ++c)
      processor["counters"][json_name(kProcessorCounters[c])] = report.processor_counters[i][c];
    json["processors"].push_back(std::move(processor));
  }
  json["service"] = to_json(report.service);
  for (const CounterName& entry : kCounterNames)
    json["counters"][entry.json] = report.counters[static_cast<size_t>(entry.counter)];
  json["messages"] = Json::array();
  for (size_t type = 0; type < kMessageTypes; ++type) {
    if (report.messages[type] == 0) continue;
    json["messages"].push_back({{"type", type},
                                {"name", message_name(static_cast<uint8_t>(type), namer)},
                                {"count", report.messages[type]},
                                {"bytes", report.message_bytes[type]}});
  }
  return json;
}

}  // namespace

void add_processor(NodeReport& report, const ProfileSnapshot& profile, double ticks_per_us) {
  MG_CHECK(report.processors < report.processor.size(), report.processors);
  for (size_t i = 0; i < kProcessorCounters.size(); ++i)
    report.processor_counters[report.processors][i] = profile.counters[static_cast<size_t>(kProcessorCounters[i])];
  report.processor[report.processors++] = to_times(profile, ticks_per_us);
  add_counters(report, profile);
}

void add_service(NodeReport& report, const ProfileSnapshot& profile, double ticks_per_us) {
  report.service = to_times(profile, ticks_per_us);
  add_counters(report, profile);
}

void add_counters(NodeReport& report, const ProfileSnapshot& profile) {
  accumulate(report.counters, profile.counters);
  accumulate(report.messages, profile.messages);
  accumulate(report.message_bytes, profile.message_bytes);
}

ThreadRow make_row(const ProfileSnapshot& profile, double ticks_per_us) {
  ThreadRow row;
  row.times = to_times(profile, ticks_per_us);
  for (size_t i = 0; i < kThreadCounters.size(); ++i)
    row.counters[i] = profile.counters[static_cast<size_t>(kThreadCounters[i])];
  row.messages = std::accumulate(profile.messages.begin(), profile.messages.end(), uint64_t{0});
  row.message_bytes = std::accumulate(profile.message_bytes.begin(), profile.message_bytes.end(), uint64_t{0});
  return row;
}

void add_row(ThreadRow& to, const ThreadRow& what) {
  to.threads += what.threads;
  add_times(to.times, what.times);
  accumulate(to.counters, what.counters);
  to.messages += what.messages;
  to.message_bytes += what.message_bytes;
}

Status check_row(const ThreadRow& row) {
  if (row.kind > ThreadRow::Kind::kShadows || row.node >= Config::kMaxNodes)
    return fail("a row of the profile of node {} is of no kind that there is", row.node);
  const auto& parts = row.times.category_ns;
  if (std::accumulate(parts.begin(), parts.end(), uint64_t{0}) != row.times.total_ns)
    return fail("a row of the profile of node {} does not add up", row.node);
  return {};
}

Status check_report(const NodeReport& report) {
  if (report.version != NodeReport::kVersion)
    return fail("a profile report has version {}, not {}", report.version, NodeReport::kVersion);
  if (report.node >= Config::kMaxNodes) return fail("a profile report names node {}", report.node);
  if (report.processors > report.processor.size())
    return fail("the profile report of node {} has {} processors", report.node, report.processors);
  for (size_t i = 0; i < report.processors; ++i) {
    const ThreadTimes& times = report.processor[i];
    if (std::accumulate(times.category_ns.begin(), times.category_ns.end(), uint64_t{0}) != times.total_ns)
      return fail("the profile report of node {} does not add up for its processor {}", report.node, i);
  }
  return {};
}

std::string tell_never_started(std::span<const unsigned> numbers) {
  std::string list;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!list.empty()) list += ", ";
    list += first == last ? std::to_string(numbers[first]) : fmt::format("{} to {}", numbers[first], numbers[last]);
    first = last + 1;
  }
  return fmt::format(
      "processor{} {} {} never started: mg_spawn starts processors, and threads of pthread_create, std::thread or OpenMP "
      "stay on the node of their creator, unless mgcc has compiled the program with -fmultigrain-threads",
      numbers.size() == 1 ? "" : "s", list, numbers.size() == 1 ? "was" : "were");
}

std::string render_text(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer name) {
  return TextTable(run, reports, name).render();
}

std::string render_json(const RunDescription& run, std::span<const NodeReport> reports, MessageNamer name) {
  Json json;
  json["schema"] = "multigrain-profile";
  json["version"] = NodeReport::kVersion;
  json["run"] = {{"program", run.program},
                 {"nodes", run.nodes},
                 {"processors_per_node", run.processors_per_node},
                 {"protocol", run.protocol},
                 {"choice", run.choice},
                 {"page_size", run.page_size},
                 {"network", run.network},
                 {"clock", run.clock},
                 {"access", run.access},
                 {"elapsed_ns", run.elapsed_ns},
                 {"never_started", run.never_started}};
  json["run"]["hosted"] = run.is_hosted;
  if (run.clock == "counted") {
    json["run"]["machine"] = run.machine;
    json["run"]["caches"] = run.caches;
    if (run.seed) {
      json["run"]["seed"] = *run.seed;
      json["run"]["perturb_ns"] = run.perturb_ns;
    }
    json["run"]["turns"] = run.turns;
    json["run"]["interruptions"] = run.interruptions;
  }
  json["sum"] = to_json(sum_of_processors(run, reports));
  if (!run.is_hosted) json["costs"] = to_json(run.costs);
  json["nodes"] = Json::array();
  size_t processor_number = 0;
  for (const NodeReport& report : reports) {
    Json node = to_json(report, processor_number, name);
    for (const ThreadRow& row : run.threads)
      if (row.node == report.node) node["threads"].push_back(to_json(row));
    json["nodes"].push_back(std::move(node));
  }
  // A program's name need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

const char* json_name(Counter counter) {
  return kCounterNames[static_cast<size_t>(counter)].json;
}
const char* json_name(Category category) {
  const auto index = static_cast<size_t>(category);
  return index < kCategoryCount ? kCategoryJson[index] : "stopped";
}

}  // namespace multigrain
