// mgbench: what each primitive costs here, beside the floor that it cannot beat.
//
// It measures the floors itself (it is no Multigrain program: nothing of the runtime may be in their way), then runs
// mgbench-role under mgrun once for each role and collects what they print.

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/standard_output.h"
#include "checks.h"
#include "rights.h"
#include "roles.h"
#include "trace.h"
#include "ucx.h"

namespace {

using multigrain::bench::Effort;
using multigrain::bench::Role;
using multigrain::bench::Series;
using multigrain::bench::Summary;

struct Options {
  std::string access = "auto", net = "ideal", page_size = "4096", fabric = "shm", protocol = "mgs", model = "sc";
  std::string role, only, clock_scale;
  Effort effort;
  bool json = false, list = false;
};

using Summaries = std::map<std::string, Summary>;
using Environment = std::vector<std::pair<const char*, const char*>>;

// Runs a command with extra environment and returns what it printed. Ends the program if it fails.
Summaries run(const std::vector<std::string>& command, const Environment& environment) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) {
    std::perror("mgbench: pipe");
    std::exit(1);
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    // Whatever ends mgbench ends the run.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    for (const auto& [name, value] : environment)
      if (value != nullptr) setenv(name, value, 1);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    std::fprintf(stderr, "mgbench: cannot run %s: %s\n", argv[0], std::strerror(errno));
    _exit(2);
  }
  close(pipe_ends[1]);
  Summaries result;
  std::FILE* const in = fdopen(pipe_ends[0], "r");
  char line[512], name[256];
  while (std::fgets(line, sizeof line, in) != nullptr) {
    Summary s;
    if (std::sscanf(line, "%255[^\t]\t%lf\t%lf\t%zu", name, &s.p50, &s.p99, &s.count) == 4) result[name] = s;
  }
  std::fclose(in);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fprintf(stderr, "mgbench: %s failed (status %d)\n", command.back().c_str(), status);
    std::exit(1);
  }
  return result;
}

// --- The table: what is measured, and the sum of floors that it cannot be cheaper than.

struct Row {
  const char* name;
  std::vector<const char*> floor;  // added up
  const char* floor_text;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"local fault on a resident page", {"fault, resident"}, "fault + rights"},
      {"page fault, read", {"fault, read", "copy, other core's", "line round trip"}, "fault + copy + line"},
      {"page fault, write",
       {"fault, read", "copy, other core's", "copy", "line round trip"},
       "fault + copy + twin + line"},
      {"upgrade fault", {"fault, upgrade", "copy"}, "fault + twin"},
      {"page fault, read, home asleep", {"fault, read", "copy, other core's", "wake-up"}, "fault + copy + wake-up"},
      {"page fault, read, home computes", {"fault, read", "copy, other core's", "wake-up"}, "fault + copy + wake-up"},
      {"page fault, single-writer, read",
       {"fault, read", "rights, revoke", "copy, other core's", "copy, other core's", "wake-up round trip",
        "wake-up round trip"},
       "fault + revoke + 2 copies + 2 wake-ups"},
      {"page fault, single-writer, write",
       {"fault, read", "rights, revoke", "copy, other core's", "copy, other core's", "copy", "wake-up round trip",
        "wake-up round trip"},
       "the same + twin"},
      {"single-writer transition", {"line round trip", "line round trip"}, "2 lines"},
      {"release, 2 writers",
       {"line round trip", "line round trip", "rights, revoke", "copy"},
       "2 lines + revoke + diff"},
      {"release, 3 writers",
       {"wake-up round trip", "wake-up round trip", "rights, revoke", "copy"},
       "2 wake-ups + revoke + diff"},
      {"lock and unlock, held here last", {}, ""},
      {"lock, free on another node", {"line round trip"}, "line"},
      {"lock, held by another node for 3 us", {"line round trip"}, "line"},
      {"barrier, 2 nodes", {"line round trip"}, "line"},
      {"barrier, 4 nodes", {"wake-up round trip"}, "wake-up"},
      {"barrier, 8 nodes", {"wake-up round trip"}, "wake-up"},
      {"barrier, 512 pages written, 1 processor", {}, ""},
      {"barrier, 512 pages written, 2 processors, leader", {}, ""},
      {"barrier, 512 pages written, 2 processors, cooperative", {}, ""},
  };
  return all;
}

// What the row cannot be cheaper than under the protocol: under hlrc no other processor has to be reached for a page or
// a release.
std::vector<const char*> floor_parts(const Row& row, const std::string& protocol) {
  std::vector<const char*> parts = row.floor;
  const std::string_view name = row.name;
  if (protocol == "hlrc" && (name.starts_with("page fault") || name.starts_with("release")))
    std::erase_if(parts, [](std::string_view part) { return part.starts_with("line") || part.starts_with("wake"); });
  return parts;
}

std::string floor_text(const Row& row, const std::string& protocol) {
  if (protocol != "hlrc") return row.floor_text;
  std::string text;
  for (const char* part : floor_parts(row, protocol)) text += (text.empty() ? "" : " + ") + std::string(part);
  return text;
}

double floor_of(const Row& row, const Summaries& floors, double Summary::* quantile, const std::string& protocol) {
  double sum = 0;
  for (const char* part : floor_parts(row, protocol)) {
    const auto found = floors.find(part);
    if (found != floors.end()) sum += found->second.*quantile;
  }
  return sum;
}

void print_text(const Summaries& floors, const Summaries& measured, const Options& options) {
  fmt::print("Multigrain primitives under {}, microseconds; access rights by {}, network {}, pages of {}\n\n",
             options.protocol, options.access, options.net, options.page_size);
  fmt::print("{:<36} {:>9} {:>9} {:>9} {:>7}   {}\n", "", "p50", "p99", "floor p50", "ratio", "floor");
  for (const Row& row : rows()) {
    const auto found = measured.find(row.name);
    if (found == measured.end()) continue;
    const double floor = floor_of(row, floors, &Summary::p50, options.protocol);
    fmt::print("{:<36} {:>9.2f} {:>9.2f} ", row.name, found->second.p50 / 1000, found->second.p99 / 1000);
    if (floor > 0)
      fmt::print("{:>9.2f} {:>7.2f}   {}\n", floor / 1000, found->second.p50 / floor,
                 floor_text(row, options.protocol));
    else
      fmt::print("\n");
  }
  fmt::print("\nFloors\n");
  for (const auto& [name, s] : floors) fmt::print("{:<36} {:>9.2f} {:>9.2f}\n", name, s.p50 / 1000, s.p99 / 1000);
}

void print_json(const Summaries& floors, const Summaries& measured, const Options& options) {
  const auto object = [](const Summary& s) {
    return nlohmann::json{{"p50_ns", s.p50}, {"p99_ns", s.p99}, {"samples", s.count}};
  };
  nlohmann::json out{{"version", 1},
                     {"protocol", options.protocol},
                     {"access", options.access},
                     {"network", options.net},
                     {"page_size", options.page_size},
                     {"primitives", nlohmann::json::object()},
                     {"floors", nlohmann::json::object()}};
  for (const auto& [name, s] : floors) out["floors"][name] = object(s);
  for (const Row& row : rows()) {
    const auto found = measured.find(row.name);
    if (found == measured.end()) continue;
    nlohmann::json entry = object(found->second);
    entry["floor_p50_ns"] = floor_of(row, floors, &Summary::p50, options.protocol);
    entry["floor"] = floor_text(row, options.protocol);
    out["primitives"][row.name] = entry;
  }
  fmt::print("{}\n", out.dump(2));
}

// --- Over UCX: each transport beside ucx_perftest, one after the other in one run.

// What is aimed at: a page fetched in at most 1.3 times UCX's time for the messages that it takes, beside the fault;
// and read ahead with at least 0.8 of its bandwidth.
constexpr double kLatencyTarget = 1.3, kBandwidthTarget = 0.8;

struct UcxRow {
  std::string transport, what, floor_text;
  double ours = 0, floor = 0;  // microseconds, or MB/s
  double target = 0;           // 0: none
  bool is_rate = false;

  [[nodiscard]] const char* verdict() const {
    if (target == 0) return "";
    return (is_rate ? ours >= target : ours <= target) ? "met" : "missed";
  }
};

int compare_with_ucx(const Options& options, const Summaries& floors, const std::string& mgrun,
                     const std::string& program, const std::string& ucp) {
  const size_t page_size = *multigrain::parse_size(options.page_size);
  const double fault_us = floors.at("fault, read").p50 / 1000;
  std::vector<UcxRow> rows;
  for (const auto& transport : multigrain::bench::transports()) {
    const auto ucx = multigrain::bench::run_perftest(transport, page_size);
    if (!ucx) {
      fmt::print(stderr, "mgbench: {}\n", ucx.error().message);
      return 1;
    }
    const auto role = [&](const char* name, const char* prefetch) {
      return run({mgrun, "--fabric", "ucx", "--nodes", "2", "--access", options.access, "--net", options.net,
                  "--page-size", options.page_size, "--prefetch", prefetch, program, name,
                  std::to_string(options.effort.pages), std::to_string(options.effort.rounds)},
                 {{"UCX_TLS", transport.tls},
                  {"UCX_NET_DEVICES", transport.devices},
                  // The floor's processes poll for as long as it takes; so do ours where that is what is compared.
                  {"MULTIGRAIN_SPIN", std::string_view(name) == "faults" ? "1000000" : nullptr}});
    };
    const Summaries faults = role("faults", "0"), busy = role("faults-busy", "0"), scan = role("scan", "64");
    // The same messages between buffers that are not in the cache, as pages are not.
    const Summaries walking = run(
        {ucp, std::to_string(page_size), std::to_string(options.effort.pages), std::to_string(options.effort.rounds)},
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
    const double bytes = static_cast<double>(multigrain::bench::kScanBytes);
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

// --- Lines: a miss beside what it cannot do without, and false sharing under each protocol.

// What is aimed at: the protocol's own part of a load that misses, and how much faster than pages lines are where each
// has one writer.
constexpr double kHandlingTargetNs = 500, kFalseSharingTarget = 5;

int compare_lines(const Options& options, const std::string& mgrun, const std::string& program) {
  const auto lines = [&](const char* what, const char* nodes, const char* protocol) {
    return run({mgrun, "--nodes", nodes, "--protocol", protocol, "--net", options.net, "--access", options.access,
                "--page-size", options.page_size, program, what, std::to_string(options.effort.rounds)},
               {});
  };
  const Summaries misses = lines("misses", "3", "dszoom");
  constexpr const char* kFloor = "two remote atomics and a copy";
  constexpr const char* kSharing = "one writer a line, 4 a page";
  const double floor = misses.at(kFloor).p50;
  const double dszoom = lines("false-sharing", "4", "dszoom").at(kSharing).p50;
  const double mgs = lines("false-sharing", "4", "mgs").at(kSharing).p50;
  const double hlrc = lines("false-sharing", "4", "hlrc").at(kSharing).p50;
  const double faster = std::min(mgs, hlrc) / dszoom;
  // Handling: beyond the floor, and beyond what the emulated network adds to the round trip.
  const double round_trip = 2.0 * static_cast<double>(multigrain::parse_network_model(options.net)->latency_ns);
  const double handling = misses.at("load miss, 2 hops").p50 - floor - round_trip;
  if (options.json) {
    nlohmann::json out{{"version", 1}, {"protocol", "dszoom"}, {"network", options.net}};
    for (const auto& [name, s] : misses)
      out["lines"][name] = {{"p50_ns", s.p50}, {"p99_ns", s.p99}, {"samples", s.count}};
    out["handling_of_2_hops_ns"] = {{"p50", handling}, {"target", kHandlingTargetNs}};
    out["false_sharing_ns"] = {{"dszoom", dszoom}, {"mgs", mgs}, {"hlrc", hlrc}, {"target_ratio", kFalseSharingTarget}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("Misses of lines under dszoom, microseconds; network {}\n\n{:<36} {:>9} {:>9} {:>9}\n", options.net, "",
             "p50", "p99", "- floor");
  for (const char* name : {"load miss, 2 hops", "load miss, 3 hops", "upgrade", "store miss, 2 hops",
                           "store miss, 3 hops", "false miss of a load", "store, a hit", kFloor}) {
    const Summary& s = misses.at(name);
    fmt::print("{:<36} {:>9.3f} {:>9.3f} {:>9.3f}\n", name, s.p50 / 1000, s.p99 / 1000, (s.p50 - floor) / 1000);
  }
  const auto verdict = [](bool met) { return met ? "met" : "missed"; };
  fmt::print(
      "\nProtocol handling of a load miss of 2 hops: {:.3f} us beside its floor and its round trip; at most {:.1f}: "
      "{}\n",
      handling / 1000, kHandlingTargetNs / 1000, verdict(handling <= kHandlingTargetNs));
  fmt::print("False sharing, one writer a line and four a page, 4 nodes, us a page and round with its share of a "
             "barrier: dszoom {:.2f}, mgs {:.2f}, hlrc {:.2f}: {:.1f} times faster; at least {:.0f}: {}\n",
             dszoom / 1000, mgs / 1000, hlrc / 1000, faster, kFalseSharingTarget,
             verdict(faster >= kFalseSharingTarget));
  return 0;
}

// --- Blocks: what [Shasta] measures (section 6.1, Table 1), and what larger blocks bring.

constexpr double kFetchTargetNs = 2000, kFenceTargetNs = 20, kStreamTarget = 5;

int measure_blocks(const Options& options, const std::string& mgrun, const std::string& program) {
  const auto blocks = [&](const char* what, unsigned rounds) {
    std::vector<std::string> command = {mgrun,       "--nodes",       "2",     "--protocol", "shasta",   "--model",
                                        options.model, "--net",       options.net, "--access", options.access};
    if (!options.clock_scale.empty())
      command.insert(command.end(), {"--clock", "virtual", "--clock-scale", options.clock_scale});
    command.insert(command.end(), {program, what, std::to_string(rounds)});
    if (!options.clock_scale.empty()) command.emplace_back("virtual");
    return run(command, {});
  };
  Summaries all = blocks("fetch", options.effort.rounds);
  all.merge(blocks("locks", options.effort.rounds));
  // The emulated machine has no targets, and 16 MiB take it long.
  const bool has_targets = options.clock_scale.empty();
  double ratio = 0;
  if (has_targets) {
    // A reading of 16 MiB is many measurements in one.
    all.merge(blocks("stream", std::max(1u, options.effort.rounds / 4)));
    ratio = all.at("16 MiB read, blocks of 64").p50 / all.at("16 MiB read, blocks of 2048").p50;
  }
  const double fetch = all.at("64 bytes, two hops, the home polls").p50;
  const double fence = all.at("fence, nothing outstanding").p50;
  if (options.json) {
    nlohmann::json out{{"version", 1}, {"protocol", "shasta"}, {"model", options.model}, {"network", options.net}};
    if (!has_targets) out["clock_scale"] = options.clock_scale;
    for (const auto& [name, s] : all)
      out["blocks"][name] = {{"p50_ns", s.p50}, {"p99_ns", s.p99}, {"samples", s.count}};
    if (has_targets) out["stream_ratio"] = {{"p50", ratio}, {"target", kStreamTarget}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("Blocks under shasta, microseconds{}; model {}, network {}\n\n{:<44} {:>10} {:>10}\n",
             has_targets ? "" : " of processors slower by " + options.clock_scale, options.model,
             options.net, "", "p50", "p99");
  for (const auto& [name, s] : all) fmt::print("{:<44} {:>10.3f} {:>10.3f}\n", name, s.p50 / 1000, s.p99 / 1000);
  if (!has_targets) return 0;
  const auto verdict = [](bool met) { return met ? "met" : "missed"; };
  fmt::print("\n64 bytes from a home that polls: {:.2f} us; at most {:.1f}: {}\n", fetch / 1000, kFetchTargetNs / 1000,
             verdict(fetch <= kFetchTargetNs));
  fmt::print("A fence with nothing outstanding: {:.0f} ns; at most {:.0f}: {}\n", fence, kFenceTargetNs,
             verdict(fence <= kFenceTargetNs));
  fmt::print("16 MiB by blocks of 2,048 bytes: {:.1f} times as fast as by 64; at least {:.0f}: {}\n", ratio,
             kStreamTarget, verdict(ratio >= kStreamTarget));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  multigrain::fail_if_output_is_lost("mgbench");
  if (argc > 1 && std::string_view(argv[1]) == "checks") return multigrain::bench::measure_checks(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "trace") return multigrain::bench::measure_traces(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "rights") return multigrain::bench::measure_rights(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "fabric") {
    // A program of its own, which lives beside this one.
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mgbench-fabric";
    execv(program.c_str(), argv + 1);
    fmt::print(stderr, "mgbench: cannot run {}: {}\n", program, std::strerror(errno));
    return 2;
  }
  Options options;
  CLI::App app{
      "Measures what each Multigrain primitive costs on this machine, beside the floor that it cannot beat here: the "
      "bare fault, copy, cache line and wake-up, measured in the same run."};
  app.footer(
      "Other measurements, each with a --help of its own:\n"
      "  mgbench fabric    the operations of the ucx fabric by themselves, over what UCX_TLS says\n"
      "  mgbench checks    what compiled checks cost the workloads\n"
      "  mgbench rights    what changing access rights costs\n"
      "  mgbench trace     what recording and analysing a trace costs");
  app.add_option("--protocol", options.protocol,
                 "mgs or hlrc, without reading ahead; dszoom: misses of lines; or shasta: misses of blocks, and locks")
      ->check(CLI::IsMember({"mgs", "hlrc", "dszoom", "shasta"}));
  app.add_option("--model", options.model, "the memory model of shasta: sc (default), tso or rc")
      ->check(CLI::IsMember({"sc", "tso", "rc"}));
  app.add_option("--clock-scale", options.clock_scale,
                 "shasta's locks and fetches in virtual time, on processors slower by this, as for mgrun");
  app.add_option("--access", options.access, "how access rights are changed: auto, userfault, mprotect");
  app.add_option("--net", options.net, "the network to emulate, as for mgrun");
  app.add_option("--fabric", options.fabric,
                 "shm, or ucx: page fetches and prefetching over UCX's TCP and shared memory, beside ucx_perftest");
  app.add_option("--page-size", options.page_size, "bytes, a power of two from 4096 to 65536");
  app.add_option("--pages", options.effort.pages, "pages touched in a round")->check(CLI::Range(8, 4096));
  app.add_option("--rounds", options.effort.rounds, "rounds")->check(CLI::Range(1, 10000));
  app.add_option("--only", options.only, "run the roles whose name contains this");
  app.add_flag("--json", options.json, "print JSON");
  app.add_flag("--list", options.list, "list the roles and exit");
  app.add_option("--role", options.role, "floors: measure those alone")->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "mgbench: {}\n", error.what());
    return 2;
  }

  const auto page_size = multigrain::parse_size(options.page_size);
  const auto access = multigrain::parse_access(options.access);
  const auto network = multigrain::parse_network_model(options.net);
  const auto fabric = multigrain::parse_fabric(options.fabric);
  if (page_size) {
    multigrain::Config config;
    config.page_size = *page_size;
    if (const auto valid = multigrain::validate(config); !valid) {
      fmt::print(stderr, "mgbench: --page-size: {}\n", valid.error().message);
      return 2;
    }
  }
  for (const std::string& message : {fabric ? "" : fabric.error().message, page_size ? "" : page_size.error().message,
                                     access ? "" : access.error().message, network ? "" : network.error().message}) {
    if (message.empty()) continue;
    fmt::print(stderr, "mgbench: {}\n", message);
    return 2;
  }

  if (options.role == "floors") {
    multigrain::bench::print_series(multigrain::bench::measure_floors(*access, *page_size, options.effort));
    return 0;
  }
  if (options.list) {
    for (const Role& role : multigrain::bench::roles())
      fmt::print("{} on {} nodes of {}{}{}\n", role.name, role.nodes, role.processors,
                 role.hlrc != nullptr ? ", hlrc, " : "", role.hlrc != nullptr ? role.hlrc : "");
    return 0;
  }

  if (!std::ranges::any_of(multigrain::bench::roles(), [&](const Role& role) {
        return std::string_view(role.name).find(options.only) != std::string_view::npos;
      })) {
    fmt::print(stderr, "mgbench: --only: no role's name contains '{}' (mgbench --list names them)\n", options.only);
    return 2;
  }

  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string mgrun = self.parent_path() / "mgrun";
  if (options.protocol == "shasta") return measure_blocks(options, mgrun, self.parent_path() / "mgbench-blocks");
  if (options.protocol == "dszoom") return compare_lines(options, mgrun, self.parent_path() / "mgbench-lines");
  const std::string program = self.parent_path() / "mgbench-role";
  const std::string pages = std::to_string(options.effort.pages), rounds = std::to_string(options.effort.rounds);
  const Summaries floors = run({self, "--role", "floors", "--access", options.access, "--page-size", options.page_size,
                                "--pages", pages, "--rounds", rounds},
                               {});
  if (options.fabric == "ucx")
    return compare_with_ucx(options, floors, mgrun, program, self.parent_path() / "mgbench-ucp");
  Summaries measured;
  for (const Role& role : multigrain::bench::roles()) {
    if (std::string(role.name).find(options.only) == std::string::npos) continue;
    if (role.hlrc != nullptr && options.protocol != "hlrc") continue;
    const std::string hlrc = std::string("fetch-ahead=0") + (role.hlrc != nullptr ? "," : "") +
                             (role.hlrc != nullptr ? role.hlrc : "");
    const Summaries some = run({mgrun, "--nodes", std::to_string(role.nodes), "--procs-per-node",
                                std::to_string(role.processors), "--protocol", options.protocol, "--hlrc", hlrc,
                                "--access", options.access, "--net", options.net, "--page-size",
                                options.page_size, "--prefetch", "0", program, role.name, pages, rounds},
                               {{"MULTIGRAIN_SPIN", role.spin_us}});
    measured.insert(some.begin(), some.end());
  }
  if (options.json)
    print_json(floors, measured, options);
  else
    print_text(floors, measured, options);
  return 0;
}
