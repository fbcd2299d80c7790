#include "base/config.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/settings.h"

namespace multigrain {
namespace {

constexpr uint64_t kMinRegionSize = uint64_t{1} << 20;
constexpr double kMaxSilenceSeconds = 3600;

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  bool good = error == std::errc{};
  if (good && !suffix.empty()) {
    switch (suffix.front()) {
      case 'K':
      case 'k':
        shift = 10;
        break;
      case 'M':
      case 'm':
        shift = 20;
        break;
      case 'G':
      case 'g':
        shift = 30;
        break;
      case 'T':
      case 't':
        shift = 40;
        break;
      default:
        good = false;
    }
    suffix.remove_prefix(1);
    good = good && (suffix.empty() || suffix == "iB");
  }
  if (!good || number > std::numeric_limits<uint64_t>::max() >> shift)
    return fail("size '{}' is not understood; it must be a whole number of bytes, or one with K, M, G or T such as 64K",
                text);
  return number << shift;
}

Result<CallsBy> parse_calls(std::string_view text) {
  if (text == "jump") return CallsBy::kJump;
  if (text == "trap") return CallsBy::kTrap;
  return fail("it is '{}'; it must be jump or trap", text);
}

Result<std::vector<std::string>> parse_folders(std::string_view text) {
  std::vector<std::string> folders;
  while (true) {
    const size_t end = std::min(text.find(':'), text.size());
    if (end == 0) return fail("a name of a folder is empty");
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(std::string(text.substr(0, end)), error);
    if (error) return fail("'{}': {}", text.substr(0, end), error.message());
    std::string folder = whole.lexically_normal().string();
    if (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    folders.push_back(std::move(folder));
    if (end == text.size()) return folders;
    text.remove_prefix(end + 1);
  }
}

Result<AccessMechanism> parse_access(std::string_view text) {
  if (text == "auto") return AccessMechanism::kAutomatic;
  if (text == "userfault") return AccessMechanism::kUserfault;
  if (text == "mprotect") return AccessMechanism::kMprotect;
  return fail("access mechanism is '{}'; it must be auto, userfault or mprotect", text);
}

Result<std::optional<HomePolicy>> parse_home(std::string_view text) {
  if (text == "auto") return std::nullopt;
  if (text == "interleaved") return HomePolicy::kInterleaved;
  if (text == "blocked") return HomePolicy::kBlocked;
  if (text == "first-touch") return HomePolicy::kFirstTouch;
  return fail("default home is '{}'; it must be auto, interleaved, blocked or first-touch", text);
}

Result<FabricKind> parse_fabric(std::string_view text) {
  if (text == "shm") return FabricKind::kShm;
  if (text == "ucx") return FabricKind::kUcx;
  return fail("fabric is '{}'; it must be shm (nodes on one machine) or ucx (also on several hosts)", text);
}

Result<ClockKind> parse_clock(std::string_view text) {
  if (text == "wall") return ClockKind::kWall;
  if (text == "virtual") return ClockKind::kVirtual;
  if (text == "counted") return ClockKind::kCounted;
  return fail(
      "clock is '{}'; it must be wall (what happens here), virtual (what the emulated machine would take, by the CPU time "
      "measured here) or counted (the same, by what the program executes)",
      text);
}

Result<ClockScale> parse_clock_scale(std::string_view text) {
  constexpr Unit kFactor[] = {{"", 1}};
  const size_t comma = text.find(',');
  const std::optional<double> program = parse_quantity(text.substr(0, comma), kFactor);
  const std::optional<double> protocol =
      comma == std::string_view::npos ? program : parse_quantity(text.substr(comma + 1), kFactor);
  const auto good = [](std::optional<double> factor) { return factor && *factor > 0 && *factor <= 1e6; };
  if (!good(program) || !good(protocol))
    return fail(
        "clock scale is '{}'; it must be a factor above 0 and at most a million, such as 2 for a processor that takes "
        "twice as long as this machine's, or two, for the program's code and for the protocol's, such as 5000,90",
        text);
  return ClockScale{*program, *protocol};
}

Result<Nanoseconds> parse_short_time(std::string_view what, std::string_view text) {
  const std::optional<double> ns = parse_quantity(text, kTimeUnits);
  if (!ns || *ns > 1e9)
    return fail("{} is '{}'; it must be a time of at most 1 s such as 20us, in ns, us or ms", what, text);
  return static_cast<Nanoseconds>(std::llround(*ns));
}

Result<Nanoseconds> parse_skew(std::string_view text) {
  return parse_short_time("skew", text);
}

Result<Nanoseconds> parse_silence_limit(std::string_view text) {
  constexpr Unit kSeconds[] = {{"", 1e9}, {"s", 1e9}};
  const std::optional<double> ns = parse_quantity(text, kSeconds);
  if (!ns || *ns > kMaxSilenceSeconds * 1e9 || (*ns > 0 && *ns < 1e8))
    return fail(
        "time-out is '{}'; it must be the seconds that a node may be silent before it counts as gone, from 0.1 to {}, "
        "or 0 for ever",
        text, kMaxSilenceSeconds);
  return static_cast<Nanoseconds>(std::llround(*ns));
}

Result<StatsTarget> parse_stats(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  StatsTarget target;
  bool good = true;
  if (name == "text") {
    target.format = StatsFormat::kText;
  } else if (name == "json") {
    target.format = StatsFormat::kJson;
  } else {
    good = text == "none";
  }
  if (good && colon != std::string_view::npos) {
    target.file = text.substr(colon + 1);
    good = !target.file.empty();
  }
  if (!good) return fail("statistics are '{}'; they must be none, text, json, text:FILE or json:FILE", text);
  return target;
}

namespace {

Status validate_races(const Config& config) {
  if (config.nodes < 2)
    return fail(
        "--races finds races between nodes, and the run has one: --nodes 2 has two processors on two nodes (--nodes or "
        "MULTIGRAIN_NODES)");
  if (config.traits().kind != ProtocolKind::kHlrc)
    return fail("--races needs the protocol hlrc, and {} was asked for (--protocol or MULTIGRAIN_PROTOCOL)",
                config.protocol);
  if (config.clock != ClockKind::kWall)
    return fail(
        "--races and virtual time exclude each other: the emulated machine would pay for the search (--clock or "
        "MULTIGRAIN_CLOCK)");
  if (!config.hlrc.against_races.empty())
    return fail("--races sees each page's accesses alone, so it excludes {} (--hlrc or MULTIGRAIN_HLRC)",
                config.hlrc.against_races);
  if (config.prefetch_given && config.prefetch != 0)
    return fail(
        "--races sees each page's accesses alone, so it excludes --prefetch {} (--prefetch or MULTIGRAIN_PREFETCH)",
        config.prefetch);
  return {};
}

Status validate_check_races(const Config& config) {
  if (!config.check_races)
    return config.races_memory == 0
               ? Status()
               : fail(
                     "--races-memory limits what --check-races takes; give that, too (--races-memory or MULTIGRAIN_RACES_MEMORY)");
  if (config.races)
    return fail(
        "--races and --check-races exclude each other: the first looks at pages, the second at what the compiler put in (--races "
        "or MULTIGRAIN_RACES, --check-races or MULTIGRAIN_CHECK_RACES)");
  if (config.fabric != FabricKind::kShm)
    return fail(
        "--check-races keeps what it knows in memory that all nodes map, so they must be on one machine: leave out hosts and "
        "--fabric ucx, or give --races (--check-races or MULTIGRAIN_CHECK_RACES)");
  if (config.clock != ClockKind::kWall)
    return fail(
        "--check-races and virtual time exclude each other: the emulated machine would pay for the search (--clock or "
        "MULTIGRAIN_CLOCK)");
  if (config.traits().grain != Grain::kPage)
    return fail(
        "--check-races needs a page protocol: code with its calls has no access checks, which {} finds accesses by "
        "(--protocol or MULTIGRAIN_PROTOCOL)",
        config.traits().name);
  if (config.processors() > Config::kMaxRacingProcessors)
    return fail(
        "--check-races has clocks of at most {} processors; {} were asked for (--nodes or MULTIGRAIN_NODES, --procs-per-node)",
        Config::kMaxRacingProcessors, config.processors());
  return {};
}

}  // namespace

void settle_races(Config& config) {
  config.prefetch = 0;
  config.hlrc.fetch_ahead = 0;
  config.hlrc.runs = false;
  config.hlrc.chains = false;
  config.hlrc.updates = false;
  config.hlrc.deferred_releases = false;
}

void settle_translation(Config& config) {
  if (config.region_size == Config{}.region_size) config.region_size = Config::kTranslatedRegionSize;
  if (!config.prefetch_given) config.prefetch = 0;
}

namespace {

Status validate_translation(const Config& config) {
  if (config.traits().kind != ProtocolKind::kMgs)
    return fail(
        "translation=compiled is an option of mgs, and the protocol of this run is {} (--mgs or MULTIGRAIN_MGS; --protocol mgs)",
        config.traits().name);
  if (config.processors_per_node > Config::kMaxTranslatingProcessors)
    return fail(
        "the number of processors a node is {}; with compiled translation it must be from 1 to {}, each with a translation "
        "table of its own (--procs-per-node or MULTIGRAIN_PROCS_PER_NODE; --mgs or MULTIGRAIN_MGS)",
        config.processors_per_node, Config::kMaxTranslatingProcessors);
  if (config.mgs.reads == MgsReads::kOneSided)
    return fail(
        "reads=one-sided is not possible with translation=compiled, where nodes ask a page's home for it (--mgs or MULTIGRAIN_MGS)");
  if (config.mgs.hand_on == MgsHandOn::kDirty)
    return fail(
        "hand-on=dirty is not possible with translation=compiled, where a release covers what one processor has written, and "
        "not what its node has (--mgs or MULTIGRAIN_MGS)");
  return {};
}

// A page in global memory is the home's. Other nodes map it, or refer to it by operations of the network, which the fault handler
// makes for each instruction. An emulated network slows these; what the handler takes for an instruction is a time of this machine, of
// which virtual time makes another machine's for programs that a fault interrupts now and then, and not at each reference.
Status validate_placement(const Config& config) {
  const bool is_placed = config.traits().kind == ProtocolKind::kPlacement;
  if (config.policy_given && !is_placed)
    return fail(
        "a policy places the pages of the protocol placement, and the protocol of this run is {} (--policy or "
        "MULTIGRAIN_POLICY; --protocol placement)",
        config.traits().name);
  if (!is_placed || config.clock == ClockKind::kWall) return {};
  return fail(
      "under the protocol placement the fault handler executes instructions that refer to another node's memory, and these have no "
      "price in virtual time: leave out --clock (--protocol or MULTIGRAIN_PROTOCOL)");
}

}  // namespace

Status validate(const Config& config) {
  if (config.nodes < 1 || config.nodes > Config::kMaxNodes)
    return fail("the number of nodes is {}; it must be from 1 to {} (--nodes or MULTIGRAIN_NODES)", config.nodes,
                Config::kMaxNodes);
  if (config.processors_per_node < 1 || config.processors_per_node > Config::kMaxProcessorsPerNode)
    return fail(
        "the number of processors a node is {}; it must be from 1 to {} (--procs-per-node or "
        "MULTIGRAIN_PROCS_PER_NODE)",
        config.processors_per_node, Config::kMaxProcessorsPerNode);
  if (config.clock != ClockKind::kCounted && config.nodes > Config::kMaxUncountedNodes)
    return fail(
        "the number of nodes is {}; it must be from 1 to {}, or to {} in counted time (--nodes or MULTIGRAIN_NODES, --clock "
        "or MULTIGRAIN_CLOCK)",
        config.nodes, Config::kMaxUncountedNodes, Config::kMaxNodes);
  if (config.processors() > Config::kMaxProcessors)
    return fail(
        "{} nodes of {} processors are {} processors; a machine has at most {} (--nodes or MULTIGRAIN_NODES, "
        "--procs-per-node or MULTIGRAIN_PROCS_PER_NODE)",
        config.nodes, config.processors_per_node, config.processors(), Config::kMaxProcessors);
  if (!std::has_single_bit(config.page_size) || config.page_size < Config::kMinTranslatedPageSize ||
      config.page_size > Config::kMaxPageSize)
    return fail(
        "the page size is {} bytes; it must be a power of two from {} to {}, or from {} where the program translates its "
        "accesses itself (--page-size or MULTIGRAIN_PAGE_SIZE; --mgs translation=compiled)",
        config.page_size, Config::kMinPageSize, Config::kMaxPageSize, Config::kMinTranslatedPageSize);
  if (config.region_size < kMinRegionSize || config.region_size > Config::kMaxRegionSize ||
      config.region_size % Config::kMaxPageSize != 0)
    return fail(
        "the shared region's size is {} bytes; it must be a multiple of 64K from 1M to 16T (--region-size or "
        "MULTIGRAIN_REGION_SIZE)",
        config.region_size);
  if (config.protocol != kAutomaticProtocol && find_protocol(&ProtocolTraits::name, config.protocol) == nullptr)
    return fail("the protocol is '{}'; it must be {} (--protocol or MULTIGRAIN_PROTOCOL)", config.protocol,
                protocol_names());
  const ProtocolTraits& protocol = config.traits();
  if (config.mgs.translation == MgsTranslation::kCompiled)
    if (Status translation = validate_translation(config); !translation) return translation;
  if (config.page_size < Config::kMinPageSize && !config.translates())
    return fail(
        "the page size is {} bytes, less than a page of this machine's; it must be a power of two from {} to {}, unless the "
        "program translates its accesses itself (--page-size or MULTIGRAIN_PAGE_SIZE; --mgs translation=compiled)",
        config.page_size, Config::kMinPageSize, Config::kMaxPageSize);
  if (!std::has_single_bit(config.line_size) || config.line_size < kMinLineSize || config.line_size > kMaxLineSize)
    return fail(
        "the line size is {} bytes; it must be a power of two from {} to {} (--line-size or MULTIGRAIN_LINE_SIZE)",
        config.line_size, kMinLineSize, kMaxLineSize);
  if (protocol.grain == Grain::kLine &&
      (config.line_size < protocol.min_line_size || config.line_size > protocol.max_line_size))
    return fail("the line size is {} bytes; under {} it must be {} (--line-size or MULTIGRAIN_LINE_SIZE)",
                config.line_size, protocol.name, protocol.line_sizes());
  if (config.block_size % config.line_size != 0 || config.block_size > config.page_size)
    return fail(
        "the block size is {} bytes; it must be a multiple of the line size of {} up to the page size of {} "
        "(--block-size or MULTIGRAIN_BLOCK_SIZE)",
        config.block_size, config.line_size, config.page_size);
  if (protocol.grain == Grain::kLine && config.nodes > kMaxLineNodes)
    return fail(
        "the protocol {} has room for {} nodes in a directory entry; {} were asked for (--nodes or "
        "MULTIGRAIN_NODES)",
        config.protocol, kMaxLineNodes, config.nodes);
  if (protocol.max_nodes != 0 && config.nodes > protocol.max_nodes)
    return fail(
        "the protocol {} has room for {} nodes in a directory entry; {} were asked for (--nodes or MULTIGRAIN_NODES)",
        protocol.name, protocol.max_nodes, config.nodes);
  if (Status placement = validate_placement(config); !placement) return placement;
  if (config.mgs.reads == MgsReads::kOneSided && config.nodes > Config::kMaxOneSidedReaders)
    return fail(
        "nodes read pages by themselves under mgs (reads=one-sided) on machines of at most {} nodes; {} were asked for (--mgs "
        "or MULTIGRAIN_MGS, --nodes or MULTIGRAIN_NODES)",
        Config::kMaxOneSidedReaders, config.nodes);
  if (config.fabric == FabricKind::kUcx && config.nodes > Config::kMaxUcxNodes)
    return fail(
        "the fabric ucx connects at most {} nodes; {} were asked for (--fabric or MULTIGRAIN_FABRIC, --nodes or "
        "MULTIGRAIN_NODES)",
        Config::kMaxUcxNodes, config.nodes);
  if (config.races && config.nodes > Config::kMaxRacesNodes)
    return fail("--races has a clock of at most {} nodes; {} were asked for (--nodes or MULTIGRAIN_NODES)",
                Config::kMaxRacesNodes, config.nodes);
  if (config.clock != ClockKind::kWall && config.fabric != FabricKind::kShm)
    return fail(
        "virtual time emulates the whole machine on this one, so it needs fabric shm and no hosts (--clock or "
        "MULTIGRAIN_CLOCK)");
  if (config.clock != ClockKind::kCounted && !config.machine_text.empty())
    return fail(
        "--machine prices what the counted clock counts; give --clock counted (--machine or MULTIGRAIN_MACHINE)");
  if (config.clock == ClockKind::kCounted && (config.clock_scale.program != 1 || config.clock_scale.protocol != 1))
    return fail(
        "--clock-scale scales CPU time, and counted time measures none: how fast processors are is the machine's to say "
        "(--clock-scale or MULTIGRAIN_CLOCK_SCALE, --machine or MULTIGRAIN_MACHINE)");
  if (config.caches && config.clock != ClockKind::kCounted)
    return fail("--caches on models caches in counted time; give --clock counted (--caches or MULTIGRAIN_CACHES)");
  if (config.caches && (config.traits().kind != ProtocolKind::kMgs || config.mgs_reads_one_sided()))
    return fail(
        "--caches on needs the protocol mgs without one-sided reads, whose pages move by messages alone, so that a node knows "
        "what its caches lose (--caches or MULTIGRAIN_CACHES, --protocol or MULTIGRAIN_PROTOCOL, --mgs)");
  if (config.seed && config.clock != ClockKind::kCounted)
    return fail(
        "--seed makes processors start late in counted time, so that runs differ; by the other clocks they differ anyway: "
        "give --clock counted, or leave it out (--seed or MULTIGRAIN_SEED)");
  if (config.perturb && !config.seed)
    return fail(
        "--perturb says how late processors start at most, and by which of many choices is for --seed to say: give a seed, "
        "too (--perturb or MULTIGRAIN_PERTURB)");
  if (config.races)
    if (Status races = validate_races(config); !races) return races;
  if (Status races = validate_check_races(config); !races) return races;
  if (config.check && config.clock != ClockKind::kWall)
    return fail(
        "--check and virtual time exclude each other: the emulated machine would pay for what is looked at (--clock or "
        "MULTIGRAIN_CLOCK)");
  if (config.home == HomePolicy::kNode)
    return fail("the default home is one node; it must be auto, interleaved, blocked or first-touch (MULTIGRAIN_HOME)");
  if (config.node.value >= config.nodes)
    return fail("this is node {} of {}; MULTIGRAIN_NODE must be below MULTIGRAIN_NODES (mgrun sets both)",
                config.node.value, config.nodes);
  return {};
}

std::vector<const char*> run_settings() {
  std::vector<const char*> names;
  for (const Setting& setting : settings())
    if (setting.scope == Setting::Scope::kRun) names.push_back(setting.variable);
  return names;
}

namespace {

// runtime/environment.h has three of these, and status/node_status.h, runtime/interpreter.h, runtime/node_references.h and
// base/fork_server.h one each.
constexpr std::string_view kToldToANode[] = {
    "MULTIGRAIN_NODE",        "MULTIGRAIN_JOB_FD",      "MULTIGRAIN_WIREUP",    "MULTIGRAIN_FRAMES_FDS",
    "MULTIGRAIN_CORES",       "MULTIGRAIN_PIN",         "MULTIGRAIN_STATUS_FD", "MULTIGRAIN_INTERPRETER",
    "MULTIGRAIN_RECORD_FILE", "MULTIGRAIN_FORK_SERVER", "MULTIGRAIN_RACES_FD"};

// These variables are read elsewhere: by the runtime, mgrun, the compilers and the Python tools.
constexpr std::string_view kOtherVariables[] = {
    "MULTIGRAIN_SPIN",  "MULTIGRAIN_PRIVATE_LIBRARIES", "MULTIGRAIN_SSH",   "MULTIGRAIN_PYTHON",
    "MULTIGRAIN_CLANG", "MULTIGRAIN_CLANGXX",           "MULTIGRAIN_RECORD"};

// Returns how many letters must be changed, put in or left out (Levenshtein's distance).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

bool is_told_to_a_node(std::string_view name) {
  return std::ranges::find(kToldToANode, name) != std::end(kToldToANode);
}

std::vector<std::string> unknown_variables(bool of_launcher) {
  std::vector<std::string_view> known(std::begin(kOtherVariables), std::end(kOtherVariables));
  known.insert(known.end(), std::begin(kToldToANode), std::end(kToldToANode));
  for (const Setting& setting : settings()) known.emplace_back(setting.variable);
  // If the caller was started inside a run (for instance mgrun by a node's program), it has inherited what that run
  // tells its nodes.
  const bool in_a_run = std::getenv("MULTIGRAIN_JOB_FD") != nullptr || std::getenv("MULTIGRAIN_WIREUP") != nullptr;
  std::vector<std::string> sentences;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("MULTIGRAIN_") || name.starts_with("MULTIGRAIN_TEST")) continue;
    if (of_launcher && !in_a_run && is_told_to_a_node(name)) {
      sentences.push_back(fmt::format("the variable {} is ignored: mgrun tells it to each node{}", name,
                                      name == "MULTIGRAIN_NODE" ? "; is MULTIGRAIN_NODES meant?" : ""));
      continue;
    }
    if (std::ranges::find(known, name) != known.end()) continue;
    const auto nearest = std::ranges::min(known, {}, [&](std::string_view other) { return distance(name, other); });
    sentences.push_back(fmt::format("the variable {} is ignored: Multigrain does not know it{}", name,
                                    distance(name, nearest) <= 4 ? fmt::format("; is {} meant?", nearest) : ""));
  }
  return sentences;
}

Result<Config> config_from_environment() {
  Config config;
  for (const Setting& setting : settings()) {
    // secure_getenv is used here and wherever else the runtime looks at its environment: a program with more rights
    // than its caller (setuid) obeys no variable of the caller's, such as MULTIGRAIN_STATS, which names a file to
    // write.
    const char* const text = secure_getenv(setting.variable);
    if (text == nullptr) continue;
    if (const Status status = setting.read(setting.variable, text, config); !status)
      return tl::unexpected<Error>(status.error());
  }
  if (const Status status = validate(config); !status) return tl::unexpected<Error>(status.error());
  if (config.nodes > 1 && (config.fabric == FabricKind::kUcx ? config.wireup.empty() : config.job_fd < 0))
    return fail(
        "MULTIGRAIN_NODES is {}, but nothing started the other nodes; start the program with mgrun --nodes {}, or "
        "unset the variable to run as one node",
        config.nodes, config.nodes);
  if (config.races) settle_races(config);
  if (config.translates()) settle_translation(config);
  return config;
}

}  // namespace multigrain
