// mgbench checks measures what compiled access checks cost the workloads, and those who compile them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "commands.h"
#include "compile_cost.h"

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

// The goals for what the compiler takes with checks, and for the code, over those without.
constexpr double kGoalCompile = 3, kGoalCode = 2.5;
// As the workloads are compiled.
constexpr const char* kOptions = "-O3";

template <typename Ratio>
double geometric_mean_of(const std::vector<CompileRow>& rows, Ratio&& ratio) {
  double sum = 0;
  for (const CompileRow& row : rows) sum += std::log(ratio(row));
  return std::exp(sum / static_cast<double>(rows.size()));
}

double time_ratio(const CompileRow& row) {
  return row.seconds / row.plain_seconds;
}
double code_ratio(const CompileRow& row) {
  return static_cast<double>(row.bytes) / static_cast<double>(row.plain_bytes);
}

void print_compilation(const std::vector<CompileRow>& rows, const std::string& options, unsigned rounds) {
  fmt::print(
      "Compilation with checks, divided by that of the same source without; {}, the shortest of {}. Code is what is in "
      "sections that are executed.\n\n",
      options, rounds);
  fmt::print("{:<20} {:>10} {:>10} {:>12} {:>10}\n", "", "plain, ms", "checks", "code, bytes", "checks");
  for (const CompileRow& row : rows)
    fmt::print("{:<20} {:>10.0f} {:>10.2f} {:>12} {:>10.2f}\n", row.name, row.plain_seconds * 1e3, time_ratio(row),
               row.plain_bytes, code_ratio(row));
  const auto worst = [&](auto&& ratio) {
    return *std::ranges::max_element(rows,
                                     [&](const CompileRow& a, const CompileRow& b) { return ratio(a) < ratio(b); });
  };
  fmt::print("{:<20} {:>10} {:>10.2f} {:>12} {:>10.2f}\n\n", "geometric mean", "", geometric_mean_of(rows, time_ratio),
             "", geometric_mean_of(rows, code_ratio));
  fmt::print("The goal for compile time is at most {:.1f}: worst {} with {:.2f}. ", kGoalCompile,
             worst(time_ratio).name, time_ratio(worst(time_ratio)));
  fmt::print("The goal for code is at most {:.1f}: worst {} with {:.2f}.\n", kGoalCode, worst(code_ratio).name,
             code_ratio(worst(code_ratio)));
}

nlohmann::json to_json(const std::vector<CompileRow>& rows) {
  nlohmann::json out = {
      {"files", nlohmann::json::array()},
      {"geometric_mean",
       {{"time", geometric_mean_of(rows, time_ratio)}, {"code", geometric_mean_of(rows, code_ratio)}}}};
  for (const CompileRow& row : rows)
    out["files"].push_back({{"name", row.name},
                            {"seconds", {{"plain", row.plain_seconds}, {"checks", row.seconds}}},
                            {"code_bytes", {{"plain", row.plain_bytes}, {"checks", row.bytes}}}});
  return out;
}

void print_json(const std::vector<WorkloadRow>& rows, const std::vector<CompileRow>& compiled, const std::string& size,
                unsigned rounds) {
  nlohmann::json out = {{"size", size}, {"rounds", rounds}, {"workloads", nlohmann::json::array()}};
  for (const WorkloadRow& row : rows) {
    nlohmann::json entry = {{"name", row.name}, {"seconds", row.seconds}};
    for (const char* way : kWays)
      if (std::isfinite(row.ratio(way))) entry["ratio"][way] = row.ratio(way);
    out["workloads"].push_back(entry);
  }
  for (const char* way : kWays)
    if (const double mean = geometric_mean(rows, way); std::isfinite(mean)) out["geometric_mean"][way] = mean;
  if (!compiled.empty()) out["compilation"] = to_json(compiled);
  fmt::print("{}\n", out.dump(2));
}

struct ChecksOptions {
  std::string size = "paper", only, folder, with = kOptions;
  std::vector<std::string> compile;
  unsigned rounds = 9;
  bool json = false;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// Returns what the front end has made of the workloads' sources, where they were built.
std::vector<std::string> workloads_to_compile(const fs::path& self, const std::string& only) {
  std::vector<std::string> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(self / "../workloads", none))
    if (entry.path().extension() == ".bc" && entry.path().stem().string().find(only) != std::string::npos)
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

int measure_compiler(const ChecksOptions& options) {
  const fs::path self = fs::read_symlink("/proc/self/exe").parent_path();
  const auto rows = measure_compilation(self, options.compile, words_of(options.with), options.rounds);
  if (!rows) {
    std::fprintf(stderr, "mgbench checks: %s\n", rows.error().message.c_str());
    return 1;
  }
  if (options.json)
    fmt::print("{}\n", to_json(*rows).dump(2));
  else
    print_compilation(*rows, options.with, options.rounds);
  return 0;
}

int measure_checks(const ChecksOptions& options) {
  if (!options.compile.empty()) return measure_compiler(options);
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
  const std::vector<std::string> sources = workloads_to_compile(self, options.only);
  const auto compiled = measure_compilation(self, sources, words_of(options.with), 1);
  if (!compiled) {
    std::fprintf(stderr, "mgbench checks: %s\n", compiled.error().message.c_str());
    return 1;
  }
  if (options.json) {
    print_json(rows, *compiled, options.size, options.rounds);
    return 0;
  }
  print_text(rows, options.size, options.rounds);
  if (compiled->empty()) return 0;
  fmt::print("\n");
  print_compilation(*compiled, options.with, 1);
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
  command->add_option("--compile", options->compile,
                      "measure what checks cost when these files are compiled instead: C, C++ or LLVM bitcode");
  command->add_option("--with", options->with, "options of the compiler for --compile, such as '-O2 -Iinclude'");
  command->add_flag("--json", options->json, "for machines");
  return {command, [options] { return measure_checks(*options); }};
}

}  // namespace multigrain::bench
