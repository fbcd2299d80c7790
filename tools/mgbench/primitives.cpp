#include "primitives.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/protocols.h"
#include "calibrate.h"
#include "commands.h"
#include "counted.h"
#include "emulation/machines.h"

namespace multigrain::bench {
namespace {

constexpr int kInterrupted = 128 + SIGINT;

// A row of the table is a primitive and its floor, the sum of costs that the primitive cannot be cheaper than.
struct Row {
  const char* name;
  std::vector<const char*> floor;  // the summands
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
      {"reference to global memory, read", {}, ""},
      {"reference to global memory, atomic", {}, ""},
      {"reference to global memory by check, read", {}, ""},
      {"reference to global memory by check, atomic", {}, ""},
      {"reference to global memory, home asleep, read", {}, ""},
      {"reference to global memory, home asleep, atomic", {}, ""},
      {"reference to global memory by check, home asleep, read", {}, ""},
      {"reference to global memory by check, home asleep, atomic", {}, ""},
  };
  return all;
}

// Where memory is sequentially consistent a release has nothing to do, and there are no twins.
bool is_sequential(const std::string& protocol) {
  const ProtocolTraits* const traits = find_protocol(&ProtocolTraits::name, protocol);
  return traits != nullptr && traits->is_sequential;
}

// Tells whether the protocol has the row's primitive.
bool is_of(const Row& row, const std::string& protocol) {
  const std::string_view name = row.name;
  return !is_sequential(protocol) || (!name.starts_with("release") && name != "single-writer transition");
}

// Returns the summands of the row's floor under the protocol. Under hlrc no other processor has to be reached for a
// page or a release. Under sc the node that has a page to itself sends it to the requester directly, and under placement by the
// home, but an upgrade asks the home.
std::vector<const char*> floor_parts(const Row& row, const std::string& protocol) {
  std::vector<const char*> parts = row.floor;
  const std::string_view name = row.name;
  if (is_sequential(protocol)) {
    if (name.starts_with("page fault, single-writer") && protocol == "sc")
      return {"fault, read", "rights, revoke", "copy, other core's", "wake-up round trip"};
    if (name.starts_with("page fault") || name == "upgrade fault")
      std::erase_if(parts, [](std::string_view part) { return part == "copy"; });
    if (name == "upgrade fault") parts.push_back("line round trip");
  }
  if (protocol == "hlrc" && (name.starts_with("page fault") || name.starts_with("release")))
    std::erase_if(parts, [](std::string_view part) { return part.starts_with("line") || part.starts_with("wake"); });
  return parts;
}

std::string floor_text(const Row& row, const std::string& protocol) {
  if (protocol != "hlrc" && !is_sequential(protocol)) return row.floor_text;
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

void print_text(const Summaries& floors, const Summaries& measured, const PrimitivesOptions& options) {
  fmt::print("Multigrain primitives under {}, microseconds; access rights by {}, network {}, pages of {}\n\n",
             options.protocol, options.access, options.net, options.page_size);
  fmt::print("{:<36} {:>9} {:>9} {:>9} {:>7}   {}\n", "", "p50", "p99", "floor p50", "ratio", "floor");
  for (const Row& row : rows()) {
    const auto found = measured.find(row.name);
    if (found == measured.end() || !is_of(row, options.protocol)) continue;
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

void print_json(const Summaries& floors, const Summaries& measured, const PrimitivesOptions& options) {
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
    if (found == measured.end() || !is_of(row, options.protocol)) continue;
    nlohmann::json entry = object(found->second);
    entry["floor_p50_ns"] = floor_of(row, floors, &Summary::p50, options.protocol);
    entry["floor"] = floor_text(row, options.protocol);
    out["primitives"][row.name] = entry;
  }
  fmt::print("{}\n", out.dump(2));
}

Status check_only(const PrimitivesOptions& options) {
  if (!std::ranges::any_of(roles(), [&](const Role& role) {
        return std::string_view(role.name).find(options.only) != std::string_view::npos;
      }))
    return fail("--only: no role's name contains '{}' (mgbench --list names them)", options.only);
  return {};
}

void list_roles() {
  for (const Role& role : roles())
    fmt::print("{} on {} nodes of {}{}{}{}\n", role.name, role.nodes, role.processors,
               role.hlrc != nullptr ? ", hlrc, " : "", role.hlrc != nullptr ? role.hlrc : "",
               role.policy != nullptr ? ", placement" : "");
}

// Returns what is wrong with the options about the counted clock; nothing if they fit.
std::string mistake_about_the_clock(const CLI::App& app, const PrimitivesOptions& options) {
  if (options.clock.empty())
    return options.machine.empty() ? "" : "--machine prices what the counted clock counts; give --clock counted";
  for (const CLI::Option* const option : app.get_options())
    if (const std::string name = option->get_name();
        option->count() != 0 && name != "--clock" && name != "--machine" && name != "--json")
      return name + " has no meaning with --clock counted, which takes everything from --machine";
  return {};
}

int measure(const PrimitivesOptions& options) {
  if (const Status found = check_only(options); !found) {
    fmt::print(stderr, "mgbench: {}\n", found.error().message);
    return 2;
  }
  if (options.list) {
    list_roles();
    return 0;
  }
  if (options.protocol == "shasta") return measure_blocks(options);
  if (options.protocol == "dszoom") return measure_lines(options);
  std::vector<Role> chosen;
  for (const Role& role : roles())
    if (std::string_view(role.name).find(options.only) != std::string_view::npos &&
        (role.hlrc == nullptr || options.protocol == "hlrc") &&
        (role.policy == nullptr || options.protocol == "placement"))
      chosen.push_back(role);
  std::optional<ShownRuns> shown;
  if (options.fabric != "ucx") shown.emplace(1 + chosen.size());
  const std::string pages = std::to_string(options.effort.pages), rounds = std::to_string(options.effort.rounds);
  const Summaries floors = run_and_collect({path_of_mgbench(), "floors", "--access", options.access, "--page-size",
                                            options.page_size, "--pages", pages, "--rounds", rounds});
  if (options.fabric == "ucx") return compare_with_ucx(options, floors);
  const KeptOnInterrupt kept;
  Summaries measured;
  for (const Role& role : chosen) {
    if (KeptOnInterrupt::came()) break;
    // A row is the cost of one page by itself: pages that are fetched ahead, opened with their neighbours or kept up to date
    // where they are in use would not fault, and nor would pages that a policy of placement has put into global memory. The
    // barrier's rows are for all of the pages that a barrier finds.
    const std::string hlrc =
        std::string("fetch-ahead=0,") + (role.hlrc != nullptr ? role.hlrc : "runs=off,updates=off");
    std::vector<std::string> command{path_of_mgrun(),
                                     "--nodes",
                                     std::to_string(role.nodes),
                                     "--procs-per-node",
                                     std::to_string(role.processors),
                                     "--protocol",
                                     options.protocol,
                                     "--hlrc",
                                     hlrc,
                                     "--access",
                                     options.access,
                                     "--net",
                                     options.net,
                                     "--page-size",
                                     options.page_size,
                                     "--prefetch",
                                     "0"};
    if (options.protocol == "placement") {
      command.emplace_back("--policy");
      command.emplace_back(role.policy != nullptr ? role.policy : "always-migrate");
    }
    for (const std::string& argument : {path_of_program("pages"), std::string(role.name), pages, rounds})
      command.push_back(argument);
    const Summaries some = run_and_collect(command, {{"MULTIGRAIN_SPIN", role.spin_us}});
    measured.insert(some.begin(), some.end());
  }
  shown.reset();
  if (KeptOnInterrupt::came() && measured.empty()) return kInterrupted;
  if (options.json)
    print_json(floors, measured, options);
  else
    print_text(floors, measured, options);
  if (!KeptOnInterrupt::came()) return 0;
  fmt::print(stderr, "mgbench: interrupted: these are the rows that had been measured\n");
  return kInterrupted;
}

}  // namespace

Command add_primitives(CLI::App& app) {
  auto options = std::make_shared<PrimitivesOptions>();
  add_mgrun_option(app, "MULTIGRAIN_PROTOCOL", options->protocol,
                   "page protocols are measured without reading ahead, of dszoom misses of lines, and of shasta misses "
                   "of blocks, and locks");
  add_mgrun_option(app, "MULTIGRAIN_MODEL", options->model);
  add_mgrun_option(app, "MULTIGRAIN_CLOCK_SCALE", options->clock_scale,
                   "with it, shasta's locks and fetches are measured in virtual time");
  add_mgrun_option(app, "MULTIGRAIN_ACCESS", options->access);
  add_mgrun_option(app, "MULTIGRAIN_NET", options->net, "mgrun lists the names, mgbench does not");
  add_mgrun_option(app, "MULTIGRAIN_FABRIC", options->fabric,
                   "with ucx, page fetches and prefetching are measured over UCX's TCP and shared memory, beside "
                   "ucx_perftest");
  add_mgrun_option(app, "MULTIGRAIN_PAGE_SIZE", options->page_size);
  app.add_option(
         "--clock", options->clock,
         "counted: the tables of the MGS and the GeNIMA paper on an emulated machine, each row beside the paper's "
         "figure and the sum of its prices; only --machine and --json go with it")
      ->check(CLI::IsMember({"counted"}));
  app.add_option(
         "--machine", options->machine,
         fmt::format("with --clock counted, the machine: a name that mgrun --machine list shows, or a file (default "
                     "{})",
                     kDefaultMachine))
      ->type_name("NAME|FILE");
  app.add_option(
         "--calibrate", options->calibrate,
         "measure this machine, and write what it costs as a description of a machine for the counted clock (default: "
         "multigrain/here.json in XDG_DATA_HOME or ~/.local/share, which mgrun --machine here reads); goes with no "
         "other option")
      ->type_name("[FILE]")
      ->expected(0, 1);
  app.add_option("--pages", options->effort.pages, "pages touched in a round")->check(CLI::Range(8, 4096));
  app.add_option("--rounds", options->effort.rounds, "rounds")->check(CLI::Range(1, 10000));
  app.add_option("--only", options->only, "run the roles whose name contains this");
  app.add_flag("--json", options->json, "print JSON");
  app.add_flag("--list", options->list, "list the roles and exit");
  return {&app, [options, &app] {
            if (app.get_option("--calibrate")->count() != 0) {
              for (const CLI::Option* const option : app.get_options()) {
                if (option->count() == 0 || option->get_name() == "--calibrate") continue;
                fmt::print(
                    stderr,
                    "mgbench: {} has no meaning with --calibrate, which measures everything (mgbench --help lists "
                    "the options)\n",
                    option->get_name());
                return 2;
              }
              return calibrate(options->calibrate);
            }
            if (const std::string mistake = mistake_about_the_clock(app, *options); !mistake.empty()) {
              fmt::print(stderr, "mgbench: {} (mgbench --help lists the options)\n", mistake);
              return 2;
            }
            if (!options->clock.empty())
              return measure_counted(options->machine.empty() ? std::string(kDefaultMachine) : options->machine,
                                     options->json);
            return measure(*options);
          }};
}

}  // namespace multigrain::bench
