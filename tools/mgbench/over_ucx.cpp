// mgbench --fabric ucx measures page faults and reading ahead over UCX, beside the figures of UCX's own benchmark over
// the same transport.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "primitives.h"
#include "ucx.h"

namespace multigrain::bench {
namespace {

// The targets are to fetch a page in at most 1.3 times UCX's time for the same messages, beside the fault, and to read
// ahead with at least 0.8 of UCX's bandwidth.
constexpr double kLatencyTarget = 1.3, kBandwidthTarget = 0.8;

struct UcxRow {
  std::string transport, what, floor_text;
  double ours = 0, floor = 0;  // microseconds, or MB/s
  double target = 0;           // 0: there is none
  bool is_rate = false;

  [[nodiscard]] const char* verdict() const {
    if (target == 0) return "";
    return (is_rate ? ours >= target : ours <= target) ? "met" : "missed";
  }
};

}  // namespace

int compare_with_ucx(const PrimitivesOptions& options, const Summaries& floors) {
  const size_t page_size = *parse_size(options.page_size);
  const double fault_us = floors.at("fault, read").p50 / 1000;
  std::vector<UcxRow> rows;
  for (const auto& transport : transports()) {
    const auto ucx = run_perftest(transport, page_size);
    if (!ucx) {
      fmt::print(stderr, "mgbench: {}\n", ucx.error().message);
      return 1;
    }
    const auto role = [&](const char* name, const char* prefetch) {
      return run_and_collect(
          {path_of_mgrun(), "--fabric", "ucx", "--nodes", "2", "--access", options.access, "--net", options.net,
           "--page-size", options.page_size, "--prefetch", prefetch, path_of_program("pages"), name,
           std::to_string(options.effort.pages), std::to_string(options.effort.rounds)},
          {{"UCX_TLS", transport.tls},
           {"UCX_NET_DEVICES", transport.devices},
           // The floor's processes always poll, so the nodes must poll as well where the two are compared.
           {"MULTIGRAIN_SPIN", std::string_view(name) == "faults" ? "1000000" : nullptr}});
    };
    const Summaries faults = role("faults", "0"), busy = role("faults-busy", "0"), scan = role("scan", "64");
    // This sends the same messages between buffers that, like pages, are not in the processor's cache.
    const Summaries walking =
        run_and_collect({path_of_mgbench(), "ucp-floor", std::to_string(page_size),
                         std::to_string(options.effort.pages), std::to_string(options.effort.rounds)},
                        {{"UCX_TLS", transport.tls}, {"UCX_NET_DEVICES", transport.devices}});
    const double fetch_us = faults.at("page fault, read").p50 / 1000;
    const auto latency = [&](const char* what, double ours, const char* floor, double exchange, bool has_target) {
      rows.push_back({transport.name, what, floor, ours, fault_us + exchange,
                      has_target ? fault_us + kLatencyTarget * exchange : 0});
    };
    const auto bandwidth = [&](double ours, const char* floor, double rate, bool has_target) {
      rows.push_back({transport.name, "64 MiB read ahead, MB/s", floor, ours, rate,
                      has_target ? kBandwidthTarget * rate : 0, true});
    };
    const double exchange_us = ucx->request_us + ucx->reply_us;
    latency("page fault, read", fetch_us, "fault + request + reply", exchange_us, true);
    latency("page fault, read", fetch_us, "the same between walking buffers", walking.at("request and page").p50 / 1000,
            true);
    latency("page fault, read, home computes", busy.at("page fault, read, home computes").p50 / 1000,
            "fault + request + reply", exchange_us, false);
    const double bytes = static_cast<double>(kScanBytes);
    const double rate = bytes * 1000 / scan.at("64 MiB read ahead").p50;
    bandwidth(rate, "messages of a page", ucx->message_MBps, true);
    bandwidth(rate, "the same between walking buffers", bytes * 1000 / walking.at("64 MiB of pages").p50, true);
    bandwidth(rate, "gets of a page, 32 at once", ucx->get_MBps, false);
  }
  if (options.json) {
    nlohmann::json out{{"version", 1}, {"fabric", "ucx"}, {"page_size", page_size}, {"fault_us", fault_us}};
    for (const UcxRow& row : rows)
      out["rows"].push_back({{"transport", row.transport},
                             {"what", row.what},
                             {row.is_rate ? "MB/s" : "us", row.ours},
                             {"floor", row.floor},
                             {"floor_is", row.floor_text},
                             {"target", row.target != 0 ? nlohmann::json(row.target) : nlohmann::json()},
                             {"verdict", row.verdict()}});
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("Multigrain over UCX beside ucx_perftest; microseconds (p50) or MB/s; pages of {} bytes, fault {:.2f}\n\n",
             page_size, fault_us);
  fmt::print("{:<16} {:<34} {:>9} {:>9} {:>7} {:>9} {:<7}  {}\n", "", "", "ours", "floor", "ratio", "target", "",
             "floor");
  for (const UcxRow& row : rows)
    fmt::print("{:<16} {:<34} {:>9.2f} {:>9.2f} {:>7.2f} {:>9} {:<7}  {}\n", row.transport, row.what, row.ours,
               row.floor, row.ours / row.floor, row.target != 0 ? fmt::format("{:.2f}", row.target) : "", row.verdict(),
               row.floor_text);
  return 0;
}

}  // namespace multigrain::bench
