// mgbench checks measures what compiled access checks cost the workloads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "commands.h"

namespace multigrain::bench {
namespace {

namespace fs = std::filesystem;

// The folders under workloads/ (workloads/CMakeLists.txt) have the workloads compiled in these ways: plainly, with
// polls and all optimisations of the checks, without polls, with one of the optimisations switched off, and with all of
// them switched off.
constexpr std::array kWays = {"plain",   "fine",     "no-polls",     "no-loops",    "no-nests",
                              "no-rows", "no-batch", "no-group",     "no-narrow",   "no-expand",
                              "no-hold", "no-pages", "no-arguments", "no-versions", "no-all"};

constexpr double kNotMeasured = std::numeric_limits<double>::infinity();

// The goals for the geometric mean and the worst of the ratios. The papers' own figures are in docs/user/mgcc.md.
struct Goal {
  const char* way;
  const char* what;
  double mean, worst;
};
constexpr std::array kGoals = {Goal{"no-polls", "checks", 1.22, 1.5}, Goal{"fine", "checks and polls", 1.25, 1.6}};

struct WorkloadRow {
  std::string name;
  std::map<std::string, double> seconds;  // the shortest run of each way

  [[nodiscard]] double ratio(const std::string& way) const {
    const auto plain = seconds.find("plain");
    const auto with = seconds.find(way);
    return plain == seconds.end() || with == seconds.end() ? kNotMeasured : with->second / plain->second;
  }
};

// Runs a workload. Returns the time that it reports for its parallel section, or kNotMeasured.
double run_once(const fs::path& mgrun, const fs::path& program, const std::string& size) {
  ChildStart start;
  start.command = {mgrun, "--nodes", "1", "--procs-per-node", "1", program, "--size", size};
  start.parent_death_signal = SIGTERM;
  const auto output = run_and_read(start);
  if (!output || !output->succeeded()) return kNotMeasured;
  double seconds = kNotMeasured;
  std::istringstream lines(output->text);
  for (std::string line; std::getline(lines, line);) std::sscanf(line.c_str(), "parallel: %lf", &seconds);
  return seconds;
}

double geometric_mean(const std::vector<WorkloadRow>& rows, const std::string& way) {
  double sum = 0;
  for (const WorkloadRow& row : rows) sum += std::log(row.ratio(way));
  return std::exp(sum / static_cast<double>(rows.size()));
}

void print_text(const std::vector<WorkloadRow>& rows, const std::string& size, unsigned rounds) {
  fmt::print(
      "Time on one processor, divided by that of the same source compiled plainly; --size {}, the shortest of {} "
      "runs.\n\n",
      size, rounds);
  fmt::print("{:<20} {:>10}", "", "plain, ms");
  for (const char* way : kWays)
    if (way != std::string_view("plain")) fmt::print(" {:>12}", way == std::string_view("fine") ? "checks" : way);
  fmt::print("\n");
  const auto cell = [](double ratio) { return std::isfinite(ratio) ? fmt::format("{:.2f}", ratio) : std::string("-"); };
  for (const WorkloadRow& row : rows) {
    fmt::print("{:<20} {:>10.3f}", row.name, row.seconds.at("plain") * 1e3);
    for (const char* way : kWays)
      if (way != std::string_view("plain")) fmt::print(" {:>12}", cell(row.ratio(way)));
    fmt::print("\n");
  }
  fmt::print("{:<20} {:>10}", "geometric mean", "");
  for (const char* way : kWays)
    if (way != std::string_view("plain")) fmt::print(" {:>12}", cell(geometric_mean(rows, way)));
  fmt::print("\n\n");
  for (const Goal& goal : kGoals) {
    const auto worst = std::max_element(rows.begin(), rows.end(), [&](const WorkloadRow& a, const WorkloadRow& b) {
      return a.ratio(goal.way) < b.ratio(goal.way);
    });
    if (!std::isfinite(worst->ratio(goal.way))) continue;
    fmt::print("The goal for {} is a mean of at most {:.2f}, and none above {:.1f}: ", goal.what, goal.mean,
               goal.worst);
    fmt::print("mean {:.2f}, worst {} with {:.2f}.\n", geometric_mean(rows, goal.way), worst->name,
               worst->ratio(goal.way));
  }
}

void print_json(const std::vector<WorkloadRow>& rows, const std::string& size, unsigned rounds) {
  nlohmann::json out = {{"size", size}, {"rounds", rounds}, {"workloads", nlohmann::json::array()}};
  for (const WorkloadRow& row : rows) {
    nlohmann::json entry = {{"name", row.name}, {"seconds", row.seconds}};
    for (const char* way : kWays)
      if (std::isfinite(row.ratio(way))) entry["ratio"][way] = row.ratio(way);
    out["workloads"].push_back(entry);
  }
  for (const char* way : kWays)
    if (const double mean = geometric_mean(rows, way); std::isfinite(mean)) out["geometric_mean"][way] = mean;
  fmt::print("{}\n", out.dump(2));
}

struct ChecksOptions {
  std::string size = "paper", only, folder;
  unsigned rounds = 9;
  bool json = false;
};

int measure_checks(const ChecksOptions& options) {
  const fs::path self = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path workloads = options.folder.empty() ? self / "workloads" : fs::path(options.folder);
  std::vector<WorkloadRow> rows;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(workloads / "plain", none)) {
    const std::string name = entry.path().filename();
    if (name.find(options.only) != std::string::npos && fs::exists(workloads / "fine" / name))
      rows.push_back({name, {}});
  }
  if (rows.empty()) {
    std::fprintf(
        stderr,
        "mgbench checks: there is no workload in '%s' and '%s': build the target check_workloads (ninja -C build "
        "check_workloads), which takes some minutes\n",
        (workloads / "plain").c_str(), (workloads / "fine").c_str());
    return 2;
  }
  std::sort(rows.begin(), rows.end(), [](const WorkloadRow& a, const WorkloadRow& b) { return a.name < b.name; });
  for (WorkloadRow& row : rows) {
    // The ways take turns, so that a disturbance of the machine hits all of them alike.
    for (unsigned round = 0; round < options.rounds; ++round) {
      for (const char* way : kWays) {
        const fs::path program = workloads / way / row.name;
        if (!fs::exists(program)) continue;
        const double seconds = run_once(self / "mgrun", program, options.size);
        if (!std::isfinite(seconds)) {
          std::fprintf(stderr, "mgbench checks: %s failed, or did not say how long it took\n", program.c_str());
          return 1;
        }
        const auto [at, first] = row.seconds.try_emplace(way, seconds);
        if (!first) at->second = std::min(at->second, seconds);
      }
    }
  }
  if (options.json)
    print_json(rows, options.size, options.rounds);
  else
    print_text(rows, options.size, options.rounds);
  return 0;
}

}  // namespace

Command add_checks(CLI::App& app) {
  auto options = std::make_shared<ChecksOptions>();
  CLI::App* const command =
      app.add_subcommand("checks", "what compiled access checks cost the workloads on one processor");
  command->add_option("--size", options->size, "the workloads' size: test, paper (default) or large")
      ->check(CLI::IsMember({"test", "paper", "large"}));
  command->add_option("--rounds", options->rounds, "runs of each program, of which the shortest counts")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--only", options->only, "only workloads whose name contains this");
  command->add_option("--workloads", options->folder,
                      "the folder with plain/, fine/ and the others (default: workloads beside mgbench)");
  command->add_flag("--json", options->json, "for machines");
  return {command, [options] { return measure_checks(*options); }};
}

}  // namespace multigrain::bench
