// What a run was asked to be. mgrun turns its options into environment variables (MULTIGRAIN_*) and each node reads
// them back here, so a program started without mgrun takes the same variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/network_model.h"
#include "base/node_set.h"
#include "base/protocols.h"

namespace multigrain {

enum class AccessMechanism { kAutomatic, kUserfault, kMprotect };
// How system calls of a program as it is reach its host (src/guest).
enum class CallsBy { kJump, kTrap };
enum class StatsFormat { kNone, kText, kJson };
// What times are: what happened here, or what the emulated machine would have taken (profile/virtual_time.h).
enum class ClockKind { kWall, kVirtual };
// What carries the nodes' messages and remote memory operations: memory of this machine, or UCX.
enum class FabricKind { kShm, kUcx };

// Where the home copies of an allocation's pages are. As a run's default, every value but kNode is allowed.
enum class HomePolicy : uint8_t {
  kInterleaved,  // page i on node i mod nodes
  kBlocked,      // the first 1/nodes of the pages on node 0, and so on
  kFirstTouch,   // on the node that first accesses the page
  kNode,         // all on a node that the allocation names
};

// Reads a size such as "4096", "16K", "64KiB", "64G", "16T" (powers of two).
Result<uint64_t> parse_size(std::string_view text);

// Read "auto", "userfault" or "mprotect"; "interleaved", "blocked" or "first-touch"; and "shm" or "ucx".
Result<AccessMechanism> parse_access(std::string_view text);
Result<CallsBy> parse_calls(std::string_view text);
Result<HomePolicy> parse_home(std::string_view text);
Result<FabricKind> parse_fabric(std::string_view text);

// How much virtual time a unit of CPU time is here: in the program's code, and in the protocol's and synchronisation's.
struct ClockScale {
  double program = 1;
  double protocol = 1;
};

// Read "wall" or "virtual"; a factor such as "0.5", above 0 and at most a million, or two such as "5000,90"; and a time
// such as "20us", at most 1 s.
Result<ClockKind> parse_clock(std::string_view text);
Result<ClockScale> parse_clock_scale(std::string_view text);
Result<Nanoseconds> parse_skew(std::string_view text);

// Reads a number of seconds such as "4" or "0.5", at most an hour; "0" means no limit.
Result<Nanoseconds> parse_silence_limit(std::string_view text);

// Where the profile of a run goes. Read from "none", "text", "json", "text:FILE" or "json:FILE".
struct StatsTarget {
  StatsFormat format = StatsFormat::kNone;
  std::string file;  // empty: standard error
};
Result<StatsTarget> parse_stats(std::string_view text);

struct Config {
  static constexpr unsigned kMaxNodes = NodeSet::kCapacity;
  static constexpr unsigned kMaxProcessorsPerNode = 256;
  static constexpr unsigned kMaxPrefetch = 64;
  static constexpr uint64_t kMaxRegionSize = uint64_t{16} << 40;
  static constexpr size_t kMinPageSize = 4096;
  static constexpr size_t kMaxPageSize = 65536;
  static constexpr size_t kMaxSingleBlock = 1024;  // objects up to here are one block of shasta, unless told otherwise

  unsigned nodes = 1;                                    // MULTIGRAIN_NODES
  unsigned processors_per_node = 1;                      // MULTIGRAIN_PROCS_PER_NODE
  size_t page_size = 4096;                               // MULTIGRAIN_PAGE_SIZE, bytes
  uint64_t region_size = uint64_t{16} << 40;             // MULTIGRAIN_REGION_SIZE, bytes
  std::string protocol = "mgs";                          // MULTIGRAIN_PROTOCOL
  size_t line_size = 64;                                 // MULTIGRAIN_LINE_SIZE, bytes: of dszoom and shasta
  size_t block_size = 0;                                 // MULTIGRAIN_BLOCK_SIZE, bytes, of shasta; 0: by the object
  MemoryModel model = MemoryModel::kSequential;          // MULTIGRAIN_MODEL: sc, tso, rc; of shasta
  AccessMechanism access = AccessMechanism::kAutomatic;  // MULTIGRAIN_ACCESS
  CallsBy calls = CallsBy::kJump;                        // MULTIGRAIN_CALLS
  NetworkModel network;                                  // MULTIGRAIN_NET
  StatsFormat stats = StatsFormat::kNone;                // MULTIGRAIN_STATS: text, json, text:FILE, json:FILE, none
  std::string stats_file;                                // empty: standard error
  HomePolicy home = HomePolicy::kInterleaved;            // MULTIGRAIN_HOME: interleaved, blocked, first-touch
  unsigned prefetch = 16;                                // MULTIGRAIN_PREFETCH: pages read ahead at most; 0: none
  ClockKind clock = ClockKind::kWall;                    // MULTIGRAIN_CLOCK: wall or virtual
  ClockScale clock_scale;                                // MULTIGRAIN_CLOCK_SCALE: virtual time for CPU time
  Nanoseconds skew = 20'000;                             // MULTIGRAIN_SKEW: between runnable processors; virtual time
  HlrcOptions hlrc;                                      // MULTIGRAIN_HLRC
  bool check = false;                                    // MULTIGRAIN_CHECK: 0 or 1; of mistakes in porting
  bool verbose = false;                                  // MULTIGRAIN_VERBOSE: 0 or 1
  FabricKind fabric = FabricKind::kShm;                  // MULTIGRAIN_FABRIC: shm or ucx
  std::string interface;                                 // MULTIGRAIN_INTERFACE: network device; empty: UCX's choice
  Nanoseconds silence_limit = 4'000'000'000;             // MULTIGRAIN_TIMEOUT, in seconds: longer, and a node is gone

  // Set by the launcher for each node, not by users.
  NodeId node;         // MULTIGRAIN_NODE
  int job_fd = -1;     // MULTIGRAIN_JOB_FD: the memfd that all nodes share; fabric shm
  std::string wireup;  // MULTIGRAIN_WIREUP: how the nodes meet ("fd:N", "pmix", "pmi2"); fabric ucx

  // The protocol that the run names. It must be one (validate()).
  [[nodiscard]] const ProtocolTraits& traits() const { return *find_protocol(&ProtocolTraits::name, protocol); }
  // The protocol of allocations that want pages, and, in a program that has compiled checks, of those that want lines.
  [[nodiscard]] const ProtocolTraits& protocol_of(Grain grain) const {
    return traits().grain == grain ? traits() : default_protocol(grain);
  }
  [[nodiscard]] unsigned processors() const { return nodes * processors_per_node; }
  [[nodiscard]] NodeId node_of(ProcessorId p) const {
    return NodeId(static_cast<uint16_t>(p.value / processors_per_node));
  }
};

// The variables that config_from_environment() reads and that are the run's: what node 0 has holds on every node. The
// others are a node's own: what its launcher tells it, and what its host has. They live for ever.
std::vector<const char*> run_settings();

// Whether a launcher tells each node this variable about itself: a value that the launcher inherited, or that outlives
// the node, is not meant for anybody else.
bool is_told_to_a_node(std::string_view name);

// A sentence for each variable MULTIGRAIN_... of the environment that nothing reads, with the name that was perhaps meant.
// `of_launcher`: also for those that a launcher tells its nodes, of which it takes none itself.
std::vector<std::string> unknown_variables(bool of_launcher);

// Reads and validates the environment. Every error names the variable, the value and what is allowed. A variable that
// is set to nothing is an error too: it is more often a typing mistake in a script than a wish for the default.
Result<Config> config_from_environment();

// The checks that mgrun and config_from_environment share: ranges, powers of two, known names. The sentence names the
// option of mgrun and the variable.
Status validate(const Config& config);

}  // namespace multigrain
