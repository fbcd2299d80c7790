#include "counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "emulation/machines.h"

namespace multigrain::bench {
namespace {

// Two samples of the same may end in different nanoseconds.
constexpr double kRounding = 2;

Summaries run(const MachineDescription& machine, const char* protocol, const char* nodes, const char* what) {
  return run_and_collect({path_of_mgrun(), "--clock", "counted", "--machine", compact(machine), "--nodes", nodes,
                          "--procs-per-node", "1", "--protocol", protocol, "--mgs", "reads=message", "--page-size",
                          "4096", "--prefetch", "0", path_of_program("counted"), what});
}

// The paper's MGS: pages of 1 KiB, which compiled code translates. Two processors of a node have tables of their own.
Summaries run_translated(const MachineDescription& machine) {
  return run_and_collect({path_of_mgrun(), "--clock", "counted", "--machine", compact(machine), "--nodes", "4",
                          "--procs-per-node", "2", "--protocol", "mgs", "--mgs", "translation=compiled", "--page-size",
                          "1024", path_of_program("counted"), "pages"});
}

Summaries run_lines(const MachineDescription& machine, const char* protocol, const char* nodes, const char* what) {
  return run_and_collect({path_of_mgrun(), "--clock", "counted", "--machine", compact(machine), "--nodes", nodes,
                          "--procs-per-node", "1", "--protocol", protocol, "--line-size", "64", "--page-size", "4096",
                          path_of_program("counted-fine"), what});
}

// Misses of the caches that the machine has.
Summaries run_caches(const MachineDescription& machine) {
  return run_and_collect({path_of_mgrun(), "--clock", "counted", "--machine", compact(machine), "--caches", "on",
                          "--nodes", "1", "--procs-per-node", "8", "--protocol", "mgs", "--page-size", "4096",
                          path_of_program("caches")});
}

// Whether the samples of each row are the same.
bool agree(const Summaries& measured) {
  bool all = true;
  for (const auto& [name, samples] : measured) {
    if (samples.p99 - samples.p50 <= kRounding) continue;
    fmt::print(stderr, "mgbench: {}: two samples in counted time differ, {} and {} ns\n", name, samples.p50,
               samples.p99);
    all = false;
  }
  return all;
}

double percent(const CountedRow& row) {
  return 100 * (row.here - *row.paper) / *row.paper;
}

std::string figure(double value, const std::string& unit) {
  if (unit == "cycles") return fmt::format("{:.0f}", value);
  return unit == "us" ? fmt::format("{:.3f}", value) : fmt::format("{:.1f}", value);
}

void print_text(const CountedTable& table) {
  const bool has_paper = std::ranges::any_of(table.rows, [](const CountedRow& row) { return row.paper.has_value(); });
  fmt::print("\n{}\n\n{:<34}", table.title, "");
  if (has_paper) fmt::print(" {:>9}", "paper");
  fmt::print(" {:>9}", "here");
  if (has_paper) fmt::print(" {:>8}", "");
  fmt::print(" {:>9}", "sum");
  fmt::print("   {:<6}  steps\n", "");
  for (const CountedRow& row : table.rows) {
    fmt::print("{:<34}", row.name);
    if (has_paper) fmt::print(" {:>9}", row.paper ? fmt::format("{:g}", *row.paper) : "");
    fmt::print(" {:>9}", figure(row.here, row.unit));
    if (has_paper) fmt::print(" {:>8}", row.paper ? fmt::format("{:+.1f} %", percent(row)) : "");
    fmt::print(" {:>9}", figure(row.sum, row.unit));
    fmt::print("   {:<6}  {}\n", row.unit, row.steps);
  }
  fmt::print("\n");
  for (const std::string& note : table.notes) fmt::print("* {}\n", note);
}

nlohmann::json to_json(const CountedTable& table) {
  nlohmann::json out{{"title", table.title}, {"rows", nlohmann::json::array()}, {"notes", table.notes}};
  for (const CountedRow& row : table.rows) {
    nlohmann::json entry{
        {"name", row.name}, {"unit", row.unit}, {"here", row.here}, {"sum", row.sum}, {"steps", row.steps}};
    if (row.paper) {
      entry["paper"] = *row.paper;
      entry["difference_percent"] = percent(row);
    }
    out["rows"].push_back(entry);
  }
  return out;
}

}  // namespace

int measure_counted(const std::string& machine_text, bool json) {
  const auto machine = read_machine(machine_text);
  if (!machine) {
    fmt::print(stderr, "mgbench: --machine: {}\n", machine.error().message);
    return 2;
  }
  // A file of the same name may have other figures.
  const auto is = [&](std::string_view name) { return machine_text == name; };
  const bool is_alewife = is("alewife");
  const std::string genima = is("genima-myrinet") || is("genima-origin") ? machine_text : "";

  const bool is_translated = machine->instructions.translation.has_value();
  std::optional<ShownRuns> shown(std::in_place, 5 + (machine->caches ? 1 : 0));
  const Summaries pages = is_translated ? run_translated(*machine) : run(*machine, "mgs", "4", "pages");
  const Summaries locks = run(*machine, "hlrc", "2", "locks");
  const RemoteOperations operations = measure_remote_operations(*machine);
  const Summaries dszoom = run_lines(*machine, "dszoom", "3", "lines");
  const Summaries shasta = run_lines(*machine, "shasta", "3", "lines");
  const Summaries shasta_locks = run_lines(*machine, "shasta", "2", "locks");
  const Summaries misses = machine->caches ? run_caches(*machine) : Summaries{};
  shown.reset();
  std::vector<CountedTable> tables;
  if (machine->caches) tables.push_back(hardware_table(*machine, is_alewife, misses));
  tables.push_back(mgs_table(*machine, is_translated, is_alewife, pages));
  tables.push_back(genima_table(*machine, genima, operations, pages, locks));
  tables.push_back(dszoom_table(*machine, is("dszoom-e6000"), dszoom));
  tables.push_back(shasta_table(*machine, is("alphaserver-4100"), shasta, shasta_locks));
  if (json) {
    nlohmann::json out{{"version", 1}, {"clock", "counted"}, {"machine", machine->name}};
    for (const CountedTable& table : tables) out["tables"][table.key] = to_json(table);
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}: {}\n", machine->name, machine->what);
    for (const CountedTable& table : tables) print_text(table);
  }
  const std::array<bool, 6> samples = {agree(misses), agree(pages),  agree(locks),
                                       agree(dszoom), agree(shasta), agree(shasta_locks)};
  return std::ranges::all_of(samples, [](bool same) { return same; }) ? 0 : 1;
}

}  // namespace multigrain::bench
