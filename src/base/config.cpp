#include "base/config.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace multigrain {
namespace {

// Longer delays than this are typing mistakes, and would look like a run that hangs.
constexpr double kMaxDelayNs = 10e9;
constexpr uint64_t kMinRegionSize = uint64_t{1} << 20;
constexpr uint64_t kMaxRegionSize = uint64_t{16} << 40;
// MGS's LAN: 1000 cycles of its 20 MHz processors for a message between nodes (mgs.txt, section 5.3).
constexpr Nanoseconds kLanLatencyNs = 50'000;

struct Unit {
  std::string_view name;
  double factor;
};
constexpr double kMaxSilenceSeconds = 3600;
constexpr Unit kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}};
constexpr Unit kRateUnits[] = {{"B/s", 1e-9}, {"KB/s", 1e-6}, {"MB/s", 1e-3}, {"GB/s", 1}};

// from_chars, because strtod would read "1,5" or "1.5" according to the locale of the program that we live in.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || std::signbit(number)) return std::nullopt;
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const Unit& unit : units) {
    if (rest == unit.name) return number * unit.factor;
  }
  return std::nullopt;
}

Result<Nanoseconds> parse_delay(std::string_view key, std::string_view text) {
  const std::optional<double> ns = parse_quantity(text, kTimeUnits);
  if (!ns || *ns > kMaxDelayNs)
    return fail("network model: {} is '{}'; it must be a time of at most 10 s such as 50us, in ns, us or ms", key,
                text);
  return static_cast<Nanoseconds>(std::llround(*ns));
}

Result<double> parse_bandwidth(std::string_view text) {
  const std::optional<double> rate = parse_quantity(text, kRateUnits);
  if (!rate || *rate <= 0)
    return fail(
        "network model: bandwidth is '{}'; it must be a rate above 0 such as 96MB/s, in B/s, KB/s, MB/s or GB/s (leave "
        "it out for unlimited bandwidth)",
        text);
  return *rate;
}

std::optional<uint64_t> parse_whole(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::string_view> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string_view(value);
}

// Reads a whole number into `target`, which keeps its default if the variable is not set. Ranges that depend on other
// settings are validate()'s; here the number must only fit.
template <typename T>
Status read_whole(const char* name, T& target, uint64_t minimum, uint64_t maximum) {
  const std::optional<std::string_view> text = variable(name);
  if (!text) return {};
  const std::optional<uint64_t> number = parse_whole(*text);
  if (!number || *number < minimum || *number > maximum)
    return fail("{} is '{}'; it must be a whole number from {} to {}", name, *text, minimum, maximum);
  target = static_cast<T>(*number);
  return {};
}

// Reads a value with a parser of its own. The parser's sentence follows the variable's name.
template <typename T, typename Parse>
Status read_with(const char* name, T& target, Parse&& parse) {
  const std::optional<std::string_view> text = variable(name);
  if (!text) return {};
  auto value = parse(*text);
  if (!value) return fail("{}: {}", name, value.error().message);
  target = std::move(*value);
  return {};
}

}  // namespace

Result<NetworkModel> parse_network_model(std::string_view text) {
  if (text == "ideal") return NetworkModel{};
  if (text == "lan") return NetworkModel{.latency_ns = kLanLatencyNs};
  NetworkModel model;
  bool has_latency = false, has_bandwidth = false, has_occupancy = false;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const bool known = key == "latency" || key == "bandwidth" || key == "occupancy";
    if (equals == std::string_view::npos || !known)
      return fail(
          "network model '{}' is not understood at '{}'; it must be ideal, lan, or a list such as "
          "latency=50us,bandwidth=96MB/s,occupancy=1us",
          text, item);
    bool& seen = key == "latency" ? has_latency : key == "bandwidth" ? has_bandwidth : has_occupancy;
    if (seen) return fail("network model '{}' gives {} twice", text, key);
    seen = true;
    const std::string_view value = item.substr(equals + 1);
    if (key == "bandwidth") {
      const Result<double> rate = parse_bandwidth(value);
      if (!rate) return tl::unexpected<Error>(rate.error());
      model.bytes_per_ns = *rate;
    } else {
      const Result<Nanoseconds> delay = parse_delay(key, value);
      if (!delay) return tl::unexpected<Error>(delay.error());
      (key == "latency" ? model.latency_ns : model.occupancy_ns) = *delay;
    }
    if (comma == std::string_view::npos) return model;
    rest.remove_prefix(comma + 1);
  }
}

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

Result<AccessMechanism> parse_access(std::string_view text) {
  if (text == "auto") return AccessMechanism::kAutomatic;
  if (text == "userfault") return AccessMechanism::kUserfault;
  if (text == "mprotect") return AccessMechanism::kMprotect;
  return fail("access mechanism is '{}'; it must be auto, userfault or mprotect", text);
}

Result<HomePolicy> parse_home(std::string_view text) {
  if (text == "interleaved") return HomePolicy::kInterleaved;
  if (text == "blocked") return HomePolicy::kBlocked;
  if (text == "first-touch") return HomePolicy::kFirstTouch;
  return fail("default home is '{}'; it must be interleaved, blocked or first-touch", text);
}

Result<FabricKind> parse_fabric(std::string_view text) {
  if (text == "shm") return FabricKind::kShm;
  if (text == "ucx") return FabricKind::kUcx;
  return fail("fabric is '{}'; it must be shm (nodes on one machine) or ucx (also on several hosts)", text);
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

Status validate(const Config& config) {
  if (config.nodes < 1 || config.nodes > Config::kMaxNodes)
    return fail("the number of nodes is {}; it must be from 1 to {} (--nodes or MULTIGRAIN_NODES)", config.nodes,
                Config::kMaxNodes);
  if (config.processors_per_node < 1 || config.processors_per_node > Config::kMaxProcessorsPerNode)
    return fail(
        "the number of processors a node is {}; it must be from 1 to {} (--procs-per-node or "
        "MULTIGRAIN_PROCS_PER_NODE)",
        config.processors_per_node, Config::kMaxProcessorsPerNode);
  if (!std::has_single_bit(config.page_size) || config.page_size < Config::kMinPageSize ||
      config.page_size > Config::kMaxPageSize)
    return fail(
        "the page size is {} bytes; it must be a power of two from {} to {} (--page-size or MULTIGRAIN_PAGE_SIZE)",
        config.page_size, Config::kMinPageSize, Config::kMaxPageSize);
  if (config.region_size < kMinRegionSize || config.region_size > kMaxRegionSize ||
      config.region_size % Config::kMaxPageSize != 0)
    return fail(
        "the shared region's size is {} bytes; it must be a multiple of 64K from 1M to 16T (--region-size or "
        "MULTIGRAIN_REGION_SIZE)",
        config.region_size);
  if (config.protocol != "mgs")
    return fail("the protocol is '{}'; it must be mgs (--protocol or MULTIGRAIN_PROTOCOL)", config.protocol);
  if (config.home == HomePolicy::kNode)
    return fail("the default home is one node; it must be interleaved, blocked or first-touch (MULTIGRAIN_HOME)");
  if (config.node.value >= config.nodes)
    return fail("this is node {} of {}; MULTIGRAIN_NODE must be below MULTIGRAIN_NODES (mgrun sets both)",
                config.node.value, config.nodes);
  return {};
}

Result<Config> config_from_environment() {
  Config config;
  StatsTarget stats;
  Status status;
  const auto then = [&status](auto&& read) {
    if (status) status = read();
  };
  const auto protocol = [](std::string_view text) -> Result<std::string> { return std::string(text); };
  then([&] { return read_whole("MULTIGRAIN_NODES", config.nodes, 1, Config::kMaxNodes); });
  then([&] {
    return read_whole("MULTIGRAIN_PROCS_PER_NODE", config.processors_per_node, 1, Config::kMaxProcessorsPerNode);
  });
  then([&] { return read_with("MULTIGRAIN_PAGE_SIZE", config.page_size, parse_size); });
  then([&] { return read_with("MULTIGRAIN_REGION_SIZE", config.region_size, parse_size); });
  then([&] { return read_with("MULTIGRAIN_PROTOCOL", config.protocol, protocol); });
  then([&] { return read_with("MULTIGRAIN_ACCESS", config.access, parse_access); });
  then([&] { return read_with("MULTIGRAIN_NET", config.network, parse_network_model); });
  then([&] { return read_with("MULTIGRAIN_STATS", stats, parse_stats); });
  then([&] { return read_with("MULTIGRAIN_HOME", config.home, parse_home); });
  then([&] { return read_whole("MULTIGRAIN_PREFETCH", config.prefetch, 0, Config::kMaxPrefetch); });
  then([&] { return read_whole("MULTIGRAIN_VERBOSE", config.verbose, 0, 1); });
  const auto text_of = [](std::string_view text) -> Result<std::string> {
    if (text.empty()) return fail("it is set to nothing; unset it for the default");
    return std::string(text);
  };
  then([&] { return read_with("MULTIGRAIN_FABRIC", config.fabric, parse_fabric); });
  then([&] { return read_with("MULTIGRAIN_INTERFACE", config.interface, text_of); });
  then([&] { return read_with("MULTIGRAIN_TIMEOUT", config.silence_limit, parse_silence_limit); });
  then([&] { return read_with("MULTIGRAIN_WIREUP", config.wireup, text_of); });
  then([&] { return read_whole("MULTIGRAIN_NODE", config.node.value, 0, Config::kMaxNodes - 1); });
  then([&] { return read_whole("MULTIGRAIN_JOB_FD", config.job_fd, 0, std::numeric_limits<int>::max()); });
  then([&] { return validate(config); });
  if (!status) return tl::unexpected<Error>(status.error());
  if (config.nodes > 1 && (config.fabric == FabricKind::kUcx ? config.wireup.empty() : config.job_fd < 0))
    return fail(
        "MULTIGRAIN_NODES is {}, but nothing started the other nodes; start the program with mgrun --nodes {}, or "
        "unset the variable to run as one node",
        config.nodes, config.nodes);
  config.stats = stats.format;
  config.stats_file = std::move(stats.file);
  return config;
}

}  // namespace multigrain
