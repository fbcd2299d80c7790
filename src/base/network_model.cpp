#include "base/network_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/quantity.h"

namespace multigrain {
namespace {

// A longer delay is a typing mistake, and would look like a run that hangs.
constexpr double kMaxDelayNs = 10e9;
constexpr Unit kRateUnits[] = {{"B/s", 1e-9}, {"KB/s", 1e-6}, {"MB/s", 1e-3}, {"GB/s", 1}};

constexpr NetworkPreset kPresets[] = {
    {"ideal", {}, "nothing is added to what messages cost here", "none"},
    {"mgs",
     {.latency_ns = 50'000},
     "MGS's emulated LAN of 1998",
     "the MGS paper, section 5.3: 1000 cycles at 20 MHz for each message between nodes. "
     "Section 4.2.2: a fixed latency, with no contention for the LAN or a node's interface to it, hence no bandwidth"},
    {"lan", {.latency_ns = 50'000}, "another name of mgs", "the same"},
    {"myrinet",
     {.latency_ns = 14'000, .bytes_per_ns = 0.096},
     "VMMC on Myrinet, 200 MHz Pentium Pro nodes",
     "the GeNIMA emulation paper, table I: a one-word send takes 14 us one way, ping-pong reaches 96 MB/s. (4 KiB "
     "measured "
     "46 us one way; the model, which does not pipeline, makes 57.) Notifications, which GeNIMA avoids, cost 42 us: "
     "add handler=42us for a protocol that is interrupted"},
    {"origin2000",
     {.latency_ns = 110, .bytes_per_ns = 0.555},
     "VMMC on the SGI Origin2000",
     "the GeNIMA emulation paper, table I: 0.11 us one way for a word, 7 us for 4 KiB, 555 MB/s"},
    {"dszoom",
     {.latency_ns = 1'000},
     "a user-level network with remote put and get",
     "the DSZOOM paper, section 3.2.1: about 2 us added to each remote access (there and back), no bandwidth limit"},
    {"dszoom-15us",
     {.latency_ns = 7'500},
     "the fastest software DSM known to DSZOOM",
     "the DSZOOM paper, section 3.2.1: a remote access of 15 us (there and back), its agent's occupancy not modelled"},
    {"memory-channel",
     {.latency_ns = 4'000, .bytes_per_ns = 0.06},
     "DEC Memory Channel between AlphaServers",
     "the Shasta paper, section 6.1: about 4 us one way between user processes, 60 MB/s a link"},
    {"tcp-10g",
     {.latency_ns = 24'000, .bytes_per_ns = 1.25},
     "Linux TCP over 10 Gb/s Ethernet",
     "Belay et al. [IX], OSDI 2014, section 5: NetPIPE takes 24 us one way for 64 bytes over Linux; the line's rate"},
    {"tcp-100g",
     {.latency_ns = 24'000, .bytes_per_ns = 5.25},
     "Linux TCP over 100 Gb/s Ethernet",
     "latency as tcp-10g's, since it is the kernel's; Cai et al. [HostStack], SIGCOMM 2021: 42 Gb/s a core"},
    {"roce",
     {.latency_ns = 1'000, .bytes_per_ns = 12.5},
     "RDMA over 100 Gb/s Ethernet",
     "Kalia et al. [eRPC], NSDI 2019, section 6: an RDMA read of 2.0 us on ConnectX-5 Ethernet (there and back); the "
     "line's rate"},
    {"infiniband",
     {.latency_ns = 850, .bytes_per_ns = 50},
     "InfiniBand NDR",
     "the same section of the same paper: an RDMA read of 1.7 us over InfiniBand (there and back); the InfiniBand "
     "Trade Association's roadmap: NDR x4 is 400 Gb/s"},
    {"cxl2-pool",
     {.latency_ns = 90, .bytes_per_ns = 32},
     "memory of a CXL 2 pool of 16 sockets",
     "Li et al. [Pond], ASPLOS 2023, section 4: a load of 180 ns (there and back); PCIe 5.0 x8 carries 32 GB/s"},
    {"cxl3-pool",
     {.latency_ns = 135, .bytes_per_ns = 64},
     "memory of a CXL 3 pool behind a switch",
     "the same section: loads beyond 270 ns (there and back) with a switch on the way; PCIe 6.0 x8 carries 64 GB/s"},
    {"numa",
     {.latency_ns = 71, .bytes_per_ns = 34},
     "the other socket of the same machine",
     "Li et al. [Pond], section 3: a load of 142 ns from the other socket of a Xeon 8157M (there and back); McCalpin "
     "on Stack Overflow: 34 GB/s of reads over the two UPI links of a Xeon 8160"},
};

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

const NetworkPreset* find_preset(std::string_view name) {
  const auto* const found = std::ranges::find(kPresets, name, &NetworkPreset::name);
  return found == std::end(kPresets) ? nullptr : found;
}

Status not_understood(std::string_view text, std::string_view item) {
  return fail(
      "network model '{}' is not understood at '{}'; it must be ideal, lan, another name that mgrun --net list shows, "
      "or a list such as latency=50us,bandwidth=96MB/s,occupancy=1us",
      text, item);
}

// Reads "key=value" into the model. `seen` has a flag for each key.
Status read_figure(std::string_view text, std::string_view item, NetworkModel& model, bool (&seen)[4]) {
  constexpr std::string_view kKeys[] = {"latency", "bandwidth", "occupancy", "handler"};
  const size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  const auto* const known = std::ranges::find(kKeys, key);
  if (equals == std::string_view::npos || known == std::end(kKeys)) return not_understood(text, item);
  bool& again = seen[known - kKeys];
  if (again) return fail("network model '{}' gives {} twice", text, key);
  again = true;
  const std::string_view value = item.substr(equals + 1);
  if (key == "bandwidth") {
    const Result<double> rate = parse_bandwidth(value);
    if (!rate) return tl::unexpected<Error>(rate.error());
    model.bytes_per_ns = *rate;
    return {};
  }
  const Result<Nanoseconds> delay = parse_delay(key, value);
  if (!delay) return tl::unexpected<Error>(delay.error());
  (key == "latency" ? model.latency_ns : key == "occupancy" ? model.occupancy_ns : model.handler_ns) = *delay;
  return {};
}

// Writes the value in the largest unit of which it is at least one, with the fewest decimals that read back as the same
// number.
std::string format_quantity(double value, std::span<const Unit> units) {
  const Unit* best = units.data();
  for (const Unit& unit : units) {
    if (value >= unit.factor) best = &unit;
  }
  // Dividing by 1e-3 leaves a rest such as 96.00000000000001. Twelve digits hold every figure that a user writes.
  std::string number = fmt::format("{:.12f}", value / best->factor);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number + std::string(best->name);
}

}  // namespace

std::span<const NetworkPreset> network_presets() {
  return kPresets;
}

Result<NetworkModel> parse_network_model(std::string_view text) {
  NetworkModel model;
  bool seen[4] = {};
  std::string_view rest = text;
  for (bool first = true;; first = false) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const NetworkPreset* const preset = first ? find_preset(item) : nullptr;
    if (preset != nullptr) {
      model = preset->model;
    } else if (const Status status = read_figure(text, item, model, seen); !status) {
      return tl::unexpected<Error>(status.error());
    }
    if (comma == std::string_view::npos) return model;
    rest.remove_prefix(comma + 1);
  }
}

std::string format_network_model(const NetworkModel& model) {
  std::string out;
  const auto add = [&out](std::string_view key, double value, std::span<const Unit> units) {
    if (value != 0) out += fmt::format("{}{}={}", out.empty() ? "" : ",", key, format_quantity(value, units));
  };
  add("latency", static_cast<double>(model.latency_ns), kTimeUnits);
  add("bandwidth", model.bytes_per_ns, kRateUnits);
  add("occupancy", static_cast<double>(model.occupancy_ns), kTimeUnits);
  add("handler", static_cast<double>(model.handler_ns), kTimeUnits);
  return out.empty() ? "ideal" : out;
}

std::string render_network_presets() {
  std::string out = "Networks that --net knows by name. Latency is one way; a remote operation takes two.\n\n";
  for (const NetworkPreset& preset : kPresets) {
    out += fmt::format("{:<16}{}\n{:<16}{}\n", preset.name, format_network_model(preset.model), "", preset.what);
    // Sources are sentences, which are broken at 100 columns.
    constexpr size_t kWidth = 100 - 16;
    std::string_view rest = preset.source;
    for (bool first = true; !rest.empty(); first = false) {
      const size_t width = first ? kWidth - 8 : kWidth;
      size_t end = rest.size() <= width ? rest.size() : rest.rfind(' ', width);
      if (end == std::string_view::npos) end = rest.size();
      out += fmt::format("{:<16}{}{}\n", "", first ? "Source: " : "", rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    out += "\n";
  }
  out +=
      "A name can be refined (--net myrinet,latency=20us), and a network of your own written out:\n"
      "--net latency=50us,bandwidth=96MB/s,occupancy=1us,handler=5us, where occupancy is the time that a message "
      "holds\n"
      "its sender's link whatever its size, and handler what running its handler costs the receiver (virtual time "
      "only).\n";
  return out;
}

}  // namespace multigrain
