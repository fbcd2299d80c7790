// The configuration of a run. mgrun turns its options into environment variables (MULTIGRAIN_*) and each node reads
// them back here, so a program started without mgrun takes the same variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
// This is how system calls of a guest reach its host (src/guest).
enum class CallsBy { kJump, kTrap };
enum class StatsFormat { kNone, kText, kJson };
// Times are what happened here; or what the emulated machine would have taken, by the CPU time that was measured here
// (profile/virtual_time.h), or by what the program has executed (src/count) and the prices of a machine description.
enum class ClockKind { kWall, kVirtual, kCounted };
// Nodes' messages and remote memory operations go through memory of this machine, or through UCX.
enum class FabricKind { kShm, kUcx };

// The policy says where the home copies of an allocation's pages are. As a run's default, every value but kNode is
// allowed.
enum class HomePolicy : uint8_t {
  kInterleaved,  // page i on node i mod nodes
  kBlocked,      // the first 1/nodes of the pages on node 0, and so on
  kFirstTouch,   // on the node that first accesses the page
  kNode,         // all on a node that the allocation names
};

// The program may say where pages of an allocation are under the protocol placement ([Bolosky], section 3.3.2, placement
// pragmas). The policy is not asked about a page that is pinned.
enum class Pin : uint8_t {
  kNone,
  kLocal,  // in the memories of the nodes that use it
  kGlobal  // in the memory of its home
};

// Reads a size such as "4096", "16K", "64KiB", "64G", "16T" (powers of two).
Result<uint64_t> parse_size(std::string_view text);

// These read "auto", "userfault" or "mprotect"; "jump" or "trap"; "auto" (nullopt), "interleaved", "blocked" or
// "first-touch"; and "shm" or "ucx".
Result<AccessMechanism> parse_access(std::string_view text);
Result<CallsBy> parse_calls(std::string_view text);
Result<std::optional<HomePolicy>> parse_home(std::string_view text);
Result<FabricKind> parse_fabric(std::string_view text);
// Reads names of folders that are separated by colons, such as "/data:results". Those that are returned are absolute.
Result<std::vector<std::string>> parse_folders(std::string_view text);

// This is how much virtual time a unit of CPU time here is: in the program's code, and in that of the protocol and
// synchronisation.
struct ClockScale {
  double program = 1;
  double protocol = 1;
};

// These read "wall", "virtual" or "counted"; a factor such as "0.5", above 0 and at most a million, or two such as "5000,90"; and
// a time such as "20us", at most 1 s.
Result<ClockKind> parse_clock(std::string_view text);
Result<ClockScale> parse_clock_scale(std::string_view text);
Result<Nanoseconds> parse_skew(std::string_view text);
// This reads the same for the setting that `what` names.
Result<Nanoseconds> parse_short_time(std::string_view what, std::string_view text);

// Reads a number of seconds such as "4" or "0.5", at most an hour; "0" means no limit.
Result<Nanoseconds> parse_silence_limit(std::string_view text);

// This says where the profile of a run goes. It is read from "none", "text", "json", "text:FILE" or "json:FILE".
struct StatsTarget {
  StatsFormat format = StatsFormat::kNone;
  std::string file;  // empty: standard error
};
Result<StatsTarget> parse_stats(std::string_view text);

struct MachineDescription;  // emulation/machine_description.h

struct Config {
  static constexpr unsigned kMaxNodes = NodeSet::kCapacity;
  // Unless time is counted, every node competes for this machine's cores with all others.
  static constexpr unsigned kMaxUncountedNodes = 256;
  // A page's word, by which nodes read it under mgs without the home's help, has a bit for each node.
  static constexpr unsigned kMaxOneSidedReaders = 64;
  static constexpr unsigned kMaxUcxNodes = SmallNodeSet::kCapacity;
  static constexpr unsigned kMaxRacesNodes = SmallNodeSet::kCapacity;
  static constexpr unsigned kMaxProcessors = 16384;  // of the machine
  static constexpr unsigned kMaxProcessorsPerNode = 256;
  static constexpr unsigned kMaxPrefetch = 64;
  static constexpr uint64_t kMaxRegionSize = uint64_t{16} << 40;
  static constexpr size_t kMinPageSize = 4096;
  // Pages that compiled code translates need not be the hardware's.
  static constexpr size_t kMinTranslatedPageSize = 1024;
  // Each processor of a node is a mapping domain of mgs then; the last one is for threads that are no processors.
  static constexpr unsigned kMaxTranslatingProcessors = 63;
  // The region, unless a size is given: it has a record for each page, and there are more pages.
  static constexpr uint64_t kTranslatedRegionSize = uint64_t{1} << 40;
  static constexpr size_t kMaxPageSize = 65536;
  // A clock of --check-races has an entry for each processor, and for threads beside processors.
  static constexpr unsigned kMaxRacingProcessors = 223;
  static constexpr unsigned kMaxRacingBeside = 32;
  // Objects up to this size are one block of shasta, unless the allocation says otherwise.
  static constexpr size_t kMaxSingleBlock = 1024;

  unsigned nodes = 1;                                    // MULTIGRAIN_NODES
  unsigned processors_per_node = 1;                      // MULTIGRAIN_PROCS_PER_NODE
  size_t page_size = 4096;                               // MULTIGRAIN_PAGE_SIZE, bytes
  uint64_t region_size = uint64_t{16} << 40;             // MULTIGRAIN_REGION_SIZE, bytes
  std::string protocol{kAutomaticProtocol};              // MULTIGRAIN_PROTOCOL
  size_t line_size = 64;                                 // MULTIGRAIN_LINE_SIZE, bytes; dszoom and shasta
  size_t block_size = 0;                                 // MULTIGRAIN_BLOCK_SIZE, bytes; shasta; 0: by the object
  MemoryModel model = MemoryModel::kSequential;          // MULTIGRAIN_MODEL: sc, rc; shasta
  AccessMechanism access = AccessMechanism::kAutomatic;  // MULTIGRAIN_ACCESS
  CallsBy calls = CallsBy::kJump;                        // MULTIGRAIN_CALLS
  std::vector<std::string> local_files;                  // MULTIGRAIN_LOCAL_FILES: folders, the same everywhere
  NetworkModel network;                                  // MULTIGRAIN_NET
  bool network_given = false;                            // a machine description has a network of its own
  StatsFormat stats = StatsFormat::kNone;                // MULTIGRAIN_STATS: text, json, text:FILE, json:FILE, none
  std::string stats_file;                                // empty: standard error
  std::string timeline_file;                             // MULTIGRAIN_TIMELINE; empty: no time line
  std::optional<HomePolicy> home;                        // MULTIGRAIN_HOME; nullopt (auto): as the protocol prefers
  unsigned prefetch = 16;                                // MULTIGRAIN_PREFETCH: most pages read ahead; 0: none
  bool prefetch_given = false;                           // the default may change with other options
  ClockKind clock = ClockKind::kWall;                    // MULTIGRAIN_CLOCK: wall, virtual, counted
  ClockScale clock_scale;                                // MULTIGRAIN_CLOCK_SCALE: virtual time per CPU time
  Nanoseconds skew = 20'000;                             // MULTIGRAIN_SKEW: virtual time between processors
  std::string machine_text;                              // MULTIGRAIN_MACHINE: a name, a file, the description itself
  bool caches = false;                                   // MULTIGRAIN_CACHES: on, off
  std::optional<uint64_t> seed;                          // MULTIGRAIN_SEED; nullopt: no processor starts late
  std::optional<Nanoseconds> perturb;                    // MULTIGRAIN_PERTURB: how late at most; nullopt: the skew
  MgsOptions mgs;                                        // MULTIGRAIN_MGS
  HlrcOptions hlrc;                                      // MULTIGRAIN_HLRC
  std::string policy = "ace";                            // MULTIGRAIN_POLICY; placement (placement/policies.h)
  bool policy_given = false;                             // only placement has a policy
  bool check = false;                                    // MULTIGRAIN_CHECK: 0 or 1; names mistakes in porting
  bool races = false;                                    // MULTIGRAIN_RACES: 0 or 1; names data races
  bool check_races = false;                              // MULTIGRAIN_CHECK_RACES: 0 or 1; by each access
  uint64_t races_memory = 0;                             // MULTIGRAIN_RACES_MEMORY, bytes; 0: half of the machine's
  std::string checkpoint;                                // MULTIGRAIN_CHECKPOINT: a folder; empty: none are written
  std::optional<Nanoseconds> checkpoint_every;           // MULTIGRAIN_CHECKPOINT_EVERY; nullopt: at each call
  std::string restart;                                   // MULTIGRAIN_RESTART: the folder of a checkpoint
  bool verbose = false;                                  // MULTIGRAIN_VERBOSE: 0 or 1
  FabricKind fabric = FabricKind::kShm;                  // MULTIGRAIN_FABRIC: shm or ucx
  std::string interface;                                 // MULTIGRAIN_INTERFACE: network device; empty: UCX's choice
  Nanoseconds silence_limit = 4'000'000'000;             // MULTIGRAIN_TIMEOUT, in seconds: longest silence of a node

  // What `machine_text` means. settle_machine() (emulation/machines.h) sets it under the counted clock, on every node.
  std::shared_ptr<const MachineDescription> machine;

  // The launcher sets these for each node; users do not.
  NodeId node;         // MULTIGRAIN_NODE
  int job_fd = -1;     // MULTIGRAIN_JOB_FD: the memfd that all nodes share; fabric shm
  int races_fd = -1;   // MULTIGRAIN_RACES_FD: the memfd of --check-races, which all nodes share
  std::string wireup;  // MULTIGRAIN_WIREUP: how nodes meet ("fd:N", "pmix", "pmi2"); fabric ucx

  // Returns whether a node reads and writes another one's memory without that one's help: they share a machine, and no
  // network between them is emulated.
  [[nodiscard]] bool shares_memory() const {
    return fabric == FabricKind::kShm && clock == ClockKind::kWall && network.ideal();
  }
  // Returns the protocol of the run: the one that is named, or, for "auto", a page protocol: hlrc, which does
  // everything by accesses to other nodes' memory, where such an access costs little, and mgs, which sends fewer
  // messages, elsewhere. It is the same on every node. validate() must have accepted the name.
  [[nodiscard]] const ProtocolTraits& traits() const {
    if (protocol != kAutomaticProtocol) return *find_protocol(&ProtocolTraits::name, protocol);
    return *find_protocol(&ProtocolTraits::kind, shares_memory() || races ? ProtocolKind::kHlrc : ProtocolKind::kMgs);
  }
  // Returns whether accesses to shared memory are found by compiled translation.
  [[nodiscard]] bool translates() const {
    return mgs.translation == MgsTranslation::kCompiled && traits().kind == ProtocolKind::kMgs;
  }
  // Returns whether nodes read pages by themselves under mgs.
  [[nodiscard]] bool mgs_reads_one_sided() const {
    if (mgs.reads == MgsReads::kAutomatic) return shares_memory() && !translates() && nodes <= kMaxOneSidedReaders;
    return mgs.reads == MgsReads::kOneSided;
  }
  // Returns the protocol of allocations that want pages, or, in a program that has compiled checks, of those that want
  // lines.
  [[nodiscard]] const ProtocolTraits& protocol_of(Grain grain) const {
    return traits().grain == grain ? traits() : default_protocol(grain);
  }
  // The placement of an allocation that asks for none, of the memory that this protocol keeps coherent. A page that is at
  // home where it is touched first is mostly used there, too. To settle its home takes one access to another node's memory,
  // which is worth it for a page of lines, each of which would be fetched, and for any page where such an access costs
  // little. In virtual time homes are where the papers' systems have them.
  [[nodiscard]] HomePolicy home_under(const ProtocolTraits& traits) const {
    const bool is_worth_it = clock == ClockKind::kWall && (traits.grain == Grain::kLine || shares_memory());
    return home.value_or(traits.prefers_first_touch || is_worth_it ? HomePolicy::kFirstTouch
                                                                   : HomePolicy::kInterleaved);
  }
  [[nodiscard]] unsigned processors() const { return nodes * processors_per_node; }
  [[nodiscard]] NodeId node_of(ProcessorId p) const {
    return NodeId(static_cast<uint16_t>(p.value / processors_per_node));
  }
};

// Returns the variables that config_from_environment() reads and that belong to the run: node 0's values hold on every
// node. The others belong to a node: its launcher sets them, or they depend on its host. The strings live for ever.
std::vector<const char*> run_settings();

// Returns whether a launcher sets this variable for each node. A value that the launcher inherited, or that outlives
// the node, is not meant for any other process.
bool is_told_to_a_node(std::string_view name);

// Returns a sentence for each variable MULTIGRAIN_... of the environment that nothing reads, with the name that was
// perhaps meant. With `of_launcher` also for those that a launcher sets for its nodes, since it reads none of these
// itself.
std::vector<std::string> unknown_variables(bool of_launcher);

// Reads and validates the environment. Every error names the variable, the value and what is allowed. A variable that
// is set to the empty string is an error too: it is more often a typing mistake in a script than a wish for the
// default.
Result<Config> config_from_environment();

// Sets what a run whose accesses compiled code translates has by default: a smaller region, since it has more pages, and, as
// the paper's MGS, nothing that is read ahead.
void settle_translation(Config& config);

// Sets what a run with --races needs: each page is granted at a fault alone, and releases happen where the program makes them.
void settle_races(Config& config);

// Makes the checks that mgrun and config_from_environment share: ranges, powers of two, known names. The error's
// sentence names the option of mgrun and the variable.
Status validate(const Config& config);

}  // namespace multigrain
