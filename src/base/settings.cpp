#include "base/settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/quantity.h"

namespace multigrain {
namespace {

// These read, into a member of Config, a whole number from `minimum` to `maximum`, or a value that one of config.h's
// parsers understands.
template <auto member, uint64_t minimum, uint64_t maximum>
Status whole(std::string_view name, std::string_view text, Config& config) {
  const std::optional<uint64_t> number = parse_whole(text, maximum);
  if (!number || *number < minimum)
    return fail("{} is '{}'; it must be a whole number from {} to {}", name, text, minimum, maximum);
  config.*member = static_cast<std::remove_reference_t<decltype(config.*member)>>(*number);
  return {};
}

template <auto member, auto parse>
Status parsed(std::string_view name, std::string_view text, Config& config) {
  auto value = parse(text);
  if (!value) return fail("{}: {}", name, value.error().message);
  config.*member = std::move(*value);
  return {};
}

Result<std::string> parse_name(std::string_view text) {
  return std::string(text);
}

Result<std::string> parse_text(std::string_view text) {
  if (text.empty()) return fail("it is set to nothing; unset it for the default");
  return std::string(text);
}

Result<std::string> parse_interface(std::string_view text) {
  if (text.starts_with('-')) return fail("'{}' does not name a network device", text);
  return parse_text(text);
}

Status read_stats(std::string_view name, std::string_view text, Config& config) {
  auto target = parse_stats(text);
  if (!target) return fail("{}: {}", name, target.error().message);
  config.stats = target->format;
  config.stats_file = std::move(target->file);
  return {};
}

// Nodes of a run that mgrun did not start may go to other folders before they use this one.
Result<std::string> parse_checkpoint_folder(std::string_view text) {
  if (text.empty()) return fail("it is set to nothing; name a folder");
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::absolute(text, failed);
  if (failed) return fail_errno(failed.value(), fmt::format("'{}'", text));
  return folder.string();
}

Result<Nanoseconds> parse_checkpoint_interval(std::string_view text) {
  constexpr Unit kUnits[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"min", 60e9}, {"h", 3600e9}};
  constexpr double kYear = 365 * 24 * 3600e9;
  const std::optional<double> ns = parse_quantity(text, kUnits);
  if (!ns || *ns > kYear)
    return fail(
        "'{}' is no time between checkpoints: it must be a time of at most a year such as 60s, in ms, s, min or h",
        text);
  return static_cast<Nanoseconds>(std::llround(*ns));
}

Status read_prefetch(std::string_view name, std::string_view text, Config& config) {
  config.prefetch_given = true;
  return whole<&Config::prefetch, 0, Config::kMaxPrefetch>(name, text, config);
}

Status read_network(std::string_view name, std::string_view text, Config& config) {
  config.network_given = true;
  return parsed<&Config::network, parse_network_model>(name, text, config);
}

Status read_policy(std::string_view name, std::string_view text, Config& config) {
  config.policy_given = true;
  return parsed<&Config::policy, parse_text>(name, text, config);
}

Status read_caches(std::string_view name, std::string_view text, Config& config) {
  if (text != "on" && text != "off") return fail("{} is '{}'; it must be on or off", name, text);
  config.caches = text == "on";
  return {};
}

Status read_seed(std::string_view name, std::string_view text, Config& config) {
  constexpr uint64_t kGreatest = std::numeric_limits<uint32_t>::max();
  const std::optional<uint64_t> number = parse_whole(text, kGreatest);
  if (!number) return fail("{} is '{}'; it must be a whole number from 0 to {}", name, text, kGreatest);
  config.seed = *number;
  return {};
}

Status read_races_memory(std::string_view name, std::string_view text, Config& config) {
  constexpr uint64_t kLeast = uint64_t{16} << 20;
  if (Status read = parsed<&Config::races_memory, parse_size>(name, text, config); !read) return read;
  if (config.races_memory < kLeast) return fail("{} is '{}'; it must be 16M at least", name, text);
  return {};
}

Result<Nanoseconds> parse_perturb(std::string_view text) {
  return parse_short_time("perturbation", text);
}

Status read_node(std::string_view name, std::string_view text, Config& config) {
  const std::optional<uint64_t> number = parse_whole(text, Config::kMaxNodes - 1);
  if (!number) return fail("{} is '{}'; it must be a whole number from 0 to {}", name, text, Config::kMaxNodes - 1);
  config.node = NodeId(static_cast<uint16_t>(*number));
  return {};
}

// Returns `begin` and what --protocol may be. "auto" is the default, and has `of_default` behind it. The result is text
// that a table of constants can point to; a text that is too long for it does not compile.
constexpr std::array<char, 256> protocol_list(std::string_view begin, std::string_view of_default,
                                              std::string_view separator) {
  std::array<char, 256> text{};
  size_t end = 0;
  const auto append = [&](std::string_view part) {
    for (const char c : part) text[end++] = c;
  };
  append(begin);
  append(kAutomaticProtocol);
  append(of_default);
  for (const ProtocolTraits& protocol : kProtocols) {
    append(separator);
    append(protocol.name);
  }
  return text;
}

constexpr auto kProtocolHelp = protocol_list(
    "coherence protocol: ",
    " (default; hlrc if the nodes share this machine and no network is emulated, from which pages of programs of mgcc "
    "may move to dszoom; else mgs)",
    ", ");
constexpr auto kProtocolChoices = protocol_list("", "", ",");

using Scope = Setting::Scope;

constexpr Setting kSettings[] = {
    {"MULTIGRAIN_NODES", Scope::kNode, whole<&Config::nodes, 1, Config::kMaxNodes>, "-n,--nodes", "N",
     "number of nodes (default 1; on hosts: as many as they take)"},
    {"MULTIGRAIN_PROCS_PER_NODE", Scope::kRun, whole<&Config::processors_per_node, 1, Config::kMaxProcessorsPerNode>,
     "-c,--procs-per-node", "C", "processors of each node (default 1)"},
    {"MULTIGRAIN_PROTOCOL", Scope::kRun, parsed<&Config::protocol, parse_name>, "--protocol", "NAME",
     kProtocolHelp.data(), kProtocolChoices.data()},
    {"MULTIGRAIN_LINE_SIZE", Scope::kRun, parsed<&Config::line_size, parse_size>, "--line-size", "BYTES",
     "size of a line: a power of two from 32 to 2048 under dszoom, 64 or 128 under shasta (default 64)"},
    {"MULTIGRAIN_BLOCK_SIZE", Scope::kRun, parsed<&Config::block_size, parse_size>, "--block-size", "BYTES",
     "what moves together under shasta unless an allocation says otherwise: lines, up to a page (default: objects of "
     "up to 1024 bytes as a whole, larger ones by lines)"},
    {"MULTIGRAIN_MODEL", Scope::kRun, parsed<&Config::model, parse_model>, "--model", "MODEL",
     "memory model of shasta: sc (default; sequential consistency) or rc (release consistency)", "sc,rc"},
    {"MULTIGRAIN_MGS", Scope::kRun, parsed<&Config::mgs, parse_mgs>, "--mgs", "LIST",
     "options of mgs: reads=auto|one-sided|message: a node reads a page by itself, or asks its home (default auto: "
     "one-sided if the nodes share this machine and no network is emulated); translation=hardware|compiled: faults find "
     "accesses, or code that mgcc -fmultigrain-translate has compiled; hand-on=auto|dirty|clean: a lock is handed on inside "
     "its node without a release, or after one"},
    {"MULTIGRAIN_HLRC", Scope::kRun, parsed<&Config::hlrc, parse_hlrc>, "--hlrc", "LIST",
     "options of hlrc: fetch-ahead=N (default 4), coalesce=on|off, lock=ticket|test-and-set, "
     "barrier=leader|cooperative, homes=follow|stay, runs=on|off, chains=on|off, updates=on|off, releases=deferred|at-once"},
    {"MULTIGRAIN_POLICY", Scope::kRun, read_policy, "--policy", "NAME[:PARAMETER=N...]",
     "which pages of placement are in the memories of the nodes that use them, and which are used from afar: ace (default), "
     "ace:invalidations=2, or another name that --policy list shows"},
    {"MULTIGRAIN_PAGE_SIZE", Scope::kRun, parsed<&Config::page_size, parse_size>, "--page-size", "BYTES",
     "unit of coherence: 4096 (default) to 65536, a power of two; from 1024 with --mgs translation=compiled"},
    {"MULTIGRAIN_REGION_SIZE", Scope::kRun, parsed<&Config::region_size, parse_size>, "--region-size", "BYTES",
     "shared address space (default 16T); used when touched"},
    {"MULTIGRAIN_FABRIC", Scope::kNode, parsed<&Config::fabric, parse_fabric>, "--fabric", "KIND",
     "what connects the nodes: shm (default; this machine's memory) or ucx (also between hosts)", "shm,ucx"},
    {"MULTIGRAIN_INTERFACE", Scope::kNode, parsed<&Config::interface, parse_interface>, "--interface", "DEVICES",
     "network devices that ucx uses, such as eth0 or mlx5_0:1 (default: those that ssh uses; lo on one machine)"},
    {"MULTIGRAIN_TIMEOUT", Scope::kRun, parsed<&Config::silence_limit, parse_silence_limit>, "--timeout", "SECONDS",
     "a node or host that is silent for longer counts as gone, a second later at most (default 4; 0: never)"},
    {"MULTIGRAIN_NET", Scope::kRun, read_network, "--net", "MODEL",
     "emulated network: ideal (default), another name that --net list shows, or figures such as "
     "latency=50us,bandwidth=96MB/s,occupancy=1us"},
    {"MULTIGRAIN_CLOCK", Scope::kRun, parsed<&Config::clock, parse_clock>, "--clock", "CLOCK",
     "wall (default): times are what happens here; virtual: what the emulated machine would take, by the CPU time "
     "measured here; counted: the same by what the program executes (mgcc -fmultigrain-count) and the prices of --machine",
     "wall,virtual,counted"},
    {"MULTIGRAIN_MACHINE", Scope::kRun, parsed<&Config::machine_text, parse_text>, "--machine", "NAME|FILE",
     "with --clock counted, what the emulated machine's instructions, protocol and network cost: a name that --machine "
     "list shows (default today-rdma), or a file with a description; --net replaces its network"},
    {"MULTIGRAIN_CACHES", Scope::kRun, read_caches, "--caches", "WHETHER",
     "with --clock counted, processors have the caches that --machine describes, and misses take time (mgs; programs of mgcc "
     "-fmultigrain-count=memory): on or off (default)",
     "on,off"},
    {"MULTIGRAIN_SEED", Scope::kRun, read_seed, "--seed", "NUMBER",
     "with --clock counted, processors start late, each by a part of --perturb that the seed chooses: other seeds give other "
     "runs (default: none starts late)"},
    {"MULTIGRAIN_PERTURB", Scope::kRun, parsed<&Config::perturb, parse_perturb>, "--perturb", "TIME",
     "with --seed, how late a processor starts at most (default: as much as --skew)"},
    {"MULTIGRAIN_CLOCK_SCALE", Scope::kRun, parsed<&Config::clock_scale, parse_clock_scale>, "--clock-scale", "FACTOR",
     "virtual time for each unit of CPU time here (default 1; 2 emulates processors half as fast; 5000,90: the "
     "program's code, the protocol's)"},
    {"MULTIGRAIN_SKEW", Scope::kRun, parsed<&Config::skew, parse_skew>, "--skew", "TIME",
     "how far a processor's virtual time may run ahead of the slowest's (default 20us)"},
    {"MULTIGRAIN_ACCESS", Scope::kRun, parsed<&Config::access, parse_access>, "--access", "HOW",
     "access rights by auto (default), userfault or mprotect", "auto,userfault,mprotect"},
    {"MULTIGRAIN_CALLS", Scope::kRun, parsed<&Config::calls, parse_calls>, "--calls", "HOW",
     "with --binary, how the program's system calls reach Multigrain: jump (default: places that make many are changed) or "
     "trap (its code stays as it is, and each call is a signal)",
     "jump,trap"},
    {"MULTIGRAIN_LOCAL_FILES", Scope::kRun, parsed<&Config::local_files, parse_folders>, "--local-files", "DIR",
     "with --binary on several nodes: each node reads files under DIR by itself; they are the same on every host, and "
     "nobody changes them during the run (may be given several times; DIR:DIR in the variable)",
     nullptr, true},
    {"MULTIGRAIN_HOME", Scope::kRun, parsed<&Config::home, parse_home>, "--home", "WHERE",
     "default home of pages: interleaved, blocked or first-touch; auto (default) is first-touch for memory that moves by "
     "lines, under hlrc, and on one machine; behind a network and in virtual time interleaved",
     "auto,interleaved,blocked,first-touch"},
    {"MULTIGRAIN_PREFETCH", Scope::kRun, read_prefetch, "--prefetch", "PAGES",
     "pages read ahead of a processor that faults on one page after the other (default 16; 0: none, and under dszoom "
     "lines move one by one)"},
    {"MULTIGRAIN_STATS", Scope::kRun, read_stats, "--stats", "FORMAT",
     "where the time went: none (default), text[:FILE] or json[:FILE]"},
    {"MULTIGRAIN_TIMELINE", Scope::kRun, parsed<&Config::timeline_file, parse_text>, "--timeline", "FILE",
     "what each processor did when: a page for browsers (FILE.html), or a trace for ui.perfetto.dev and chrome://tracing "
     "(any other name)"},
    {"MULTIGRAIN_CHECKPOINT", Scope::kRun, parsed<&Config::checkpoint, parse_checkpoint_folder>, "--checkpoint", "DIR",
     "where checkpoints are written, by mg_checkpoint() or else at barriers; the last one stays until the next is complete"},
    {"MULTIGRAIN_CHECKPOINT_EVERY", Scope::kRun, parsed<&Config::checkpoint_every, parse_checkpoint_interval>,
     "--every", "TIME",
     "with --checkpoint, how much time passes between two checkpoints at least, such as 60s (default 0: each call of "
     "mg_checkpoint(), or each barrier, writes one)"},
    {"MULTIGRAIN_RESTART", Scope::kRun, parsed<&Config::restart, parse_checkpoint_folder>, "--restart", "DIR",
     "go on from the checkpoint in DIR, with the same program, nodes and protocol"},
    {"MULTIGRAIN_VERBOSE", Scope::kRun, whole<&Config::verbose, 0, 1>, "--verbose", nullptr,
     "say what is started and how"},
    {"MULTIGRAIN_RACES", Scope::kRun, whole<&Config::races, 0, 1>, "--races", nullptr,
     "name data races between nodes, under hlrc: both accesses, with their lines; the exit status is then 66, if the "
     "program's is 0"},
    {"MULTIGRAIN_CHECK_RACES", Scope::kRun, whole<&Config::check_races, 0, 1>, "--check-races", nullptr,
     "name data races between processors, by each access of a program that was compiled with mgcc -fmultigrain-races, under any "
     "page protocol; nodes are on this machine; the exit status is then 66, if the program's is 0"},
    {"MULTIGRAIN_RACES_MEMORY", Scope::kRun, read_races_memory, "--races-memory", "BYTES",
     "with --check-races, the most memory that what is known of accesses may take (default: half of this machine's)"},
    {"MULTIGRAIN_CHECK", Scope::kRun, whole<&Config::check, 0, 1>, "--check", nullptr,
     "name mistakes: blocks of mg_alloc written beyond their end or after mg_free, locks taken in orders that can end in a "
     "deadlock or not let go, globals that another node than 0 writes, processors that are never started; the exit status is "
     "then 66, if the program's is 0"},
    // A launcher sets these for each node.
    {"MULTIGRAIN_WIREUP", Scope::kNode, parsed<&Config::wireup, parse_text>},
    {"MULTIGRAIN_NODE", Scope::kNode, read_node},
    {"MULTIGRAIN_JOB_FD", Scope::kNode, whole<&Config::job_fd, 0, std::numeric_limits<int>::max()>},
    {"MULTIGRAIN_RACES_FD", Scope::kNode, whole<&Config::races_fd, 0, std::numeric_limits<int>::max()>},
};

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

const Setting& setting_of(std::string_view variable) {
  const auto* const setting = std::ranges::find(kSettings, variable, &Setting::variable);
  MG_CHECK(setting != std::end(kSettings));
  return *setting;
}

std::string Setting::type_name() const {
  return choices == nullptr ? placeholder : fmt::format("{}:{{{}}}", placeholder, choices);
}

}  // namespace multigrain
