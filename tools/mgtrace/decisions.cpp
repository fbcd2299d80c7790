#include "decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "texts.h"
#include "trace/analysis/study.h"
#include "trace/analysis/study_json.h"
#include "trace/format/trace_file.h"
#include "trace/model/decisions.h"
#include "trace/model/optimal.h"
#include "trace/model/policy_costs.h"

namespace multigrain::trace::tool {
namespace {

using nlohmann::json;

struct Row {
  std::string name;
  std::string what;  // for people: what placed the pages
  CostParts parts;
};

// The machines: those of --machine, or the ACE; with blocks of the run's pages.
Result<std::vector<Machine>> machines_of(const AnalysisOptions& options, const DecisionLog& log) {
  std::vector<std::string> names = options.machines;
  if (names.empty()) names.emplace_back("ace");
  std::vector<Machine> machines;
  for (const std::string& name : names) {
    auto machine = find_machine(name);
    if (!machine) return tl::unexpected(machine.error());
    if (!machine->has_global())
      return fail(
          "--decisions: the machine {} has no global memory, in which the run had pages: give one that has (ace), or a file "
          "with g and G",
          machine->name);
    machines.push_back(machine->with_block_size(log.page_size));
  }
  return machines;
}

std::vector<std::string> policies_of(const AnalysisOptions& options, const Machine& machine) {
  std::vector<std::string> names;
  for (const std::string& given : options.policies) {
    if (given != "all") {
      names.push_back(given);
      continue;
    }
    for (const std::string& name : policy_names())
      if (policy_suits(name, machine)) names.push_back(name);
  }
  return names;
}

Result<std::unique_ptr<TraceFile>> open_trace(const AnalysisOptions& options) {
  return TraceFile::open(options.input, {.threads = 1, .allow_partial = false});
}

double part_of_local(const CostParts& parts) {
  return parts.references() == 0 ? 1 : static_cast<double>(parts.local) / static_cast<double>(parts.references());
}

// The rows of one machine: optimal, the run's own placement, its policy on the trace, and the other policies.
Result<std::vector<Row>> rows_of(const AnalysisOptions& options, const DecisionLog& log, const RunPlacement& run,
                                 const Machine& machine) {
  auto source = open_trace(options);
  if (!source) return tl::unexpected(source.error());
  OptimalOptions best;
  best.threads = options.threads;
  const auto optimum = optimal(**source, {&machine, 1}, best);
  if (!optimum) return tl::unexpected(optimum.error());

  auto same = policy_of_run(log);
  if (!same) return tl::unexpected(same.error());
  std::vector<PolicyRun> runs = {{machine, std::move(*same)}};
  std::vector<std::string> names;
  for (const std::string& name : policies_of(options, machine)) {
    auto policy = make_policy(name, machine);
    if (!policy) return tl::unexpected(policy.error());
    names.push_back(name);
    runs.push_back({machine, std::move(*policy)});
  }
  source = open_trace(options);
  if (!source) return tl::unexpected(source.error());
  PolicyOptions simulation;
  simulation.threads = options.threads;
  const auto simulated = evaluate(**source, runs, simulation);
  if (!simulated) return tl::unexpected(simulated.error());

  std::vector<Row> rows = {{"optimal", "the best placement of the trace", optimum->front().parts},
                           {"run", fmt::format("the run itself, under {}", log.policy), run.parts},
                           {"replay", fmt::format("{} again, on the trace", log.policy), simulated->front().parts}};
  for (size_t i = 0; i < names.size(); ++i)
    rows.push_back({names[i], "simulated on the trace", (*simulated)[i + 1].parts});
  return rows;
}

json as_json(const Machine& machine, const std::vector<Row>& rows) {
  json out = {{"machine", to_json(machine)}, {"placements", json::array()}};
  const double best = rows[0].parts.mcpr(machine);
  for (const Row& row : rows)
    out["placements"].push_back({{"name", row.name},
                                 {"what", row.what},
                                 {"mcpr", row.parts.mcpr(machine)},
                                 {"over_optimal", row.parts.mcpr(machine) / best},
                                 {"local", part_of_local(row.parts)},
                                 {"parts", parts_json(row.parts)}});
  const double run = rows[1].parts.mcpr(machine), replay = rows[2].parts.mcpr(machine);
  out["gap"] = {{"all", run - best}, {"policy", replay - best}, {"interleaving_and_other", run - replay}};
  return out;
}

void print(const json& out) {
  for (const json& entry : out["machines"]) {
    fmt::print("\n{}: MCPR of placements of pages of {} bytes\n\n", entry["machine"]["name"].get<std::string>(),
               out["page_size"].get<uint64_t>());
    fmt::print("{:<18} {:>9} {:>8} {:>9} {:>12} {:>12}  {}\n", "placement", "MCPR", "over", "local", "other", "pages",
               "");
    fmt::print("{:<18} {:>9} {:>8} {:>9} {:>12} {:>12}  {}\n", "", "", "optimal", "part", "references", "moved", "");
    for (const json& row : entry["placements"]) {
      const json& parts = row["parts"];
      fmt::print("{:<18} {:>9.4f} {:>8.3f} {:>9.4f} {:>12} {:>12}  {}\n", row["name"].get<std::string>(),
                 row["mcpr"].get<double>(), row["over_optimal"].get<double>(), row["local"].get<double>(),
                 parts["global"].get<uint64_t>() + parts["remote"].get<uint64_t>(),
                 parts["remote_moves"].get<uint64_t>() + parts["global_moves"].get<uint64_t>(),
                 row["what"].get<std::string>());
    }
    const json& gap = entry["gap"];
    fmt::print(
        "\nThe run is {:.4f} above optimal: {:+.4f} by its policy, {:+.4f} by the order in which things happened, and other "
        "causes\n",
        gap["all"].get<double>(), gap["policy"].get<double>(), gap["interleaving_and_other"].get<double>());
  }
  if (const json& sampling = out["sampling"]; !sampling.is_null()) {
    fmt::print("\n{}", sampling_text(sampling, "counts are those of the bursts"));
    fmt::print("{} moves of pages between bursts are in no count, since no burst refers to what they did\n",
               out["moves_between_bursts"].get<uint64_t>());
  }
  if (const uint64_t moves = out["moves_without_references"].get<uint64_t>(); moves != 0)
    fmt::print("{} of the pages that the run moved were moved for accesses that are not in the trace\n", moves);
}

}  // namespace

Result<int> analyze_decisions(const DecisionsArguments& arguments) {
  const AnalysisOptions& options = arguments.analysis;
  if (options.perturb != 0 || options.false_sharing || !options.tlbs.empty() || !options.parameters.empty() ||
      !options.block_sizes.empty() || options.all_machines || options.partial)
    return fail(
        "--decisions prices the placement of a run, with its pages: of the other options it takes --machine, --policy, --threads, "
        "--json and --force");
  if (!arguments.json_output.empty() && arguments.json_output != "-" && !arguments.overwrite &&
      std::filesystem::exists(arguments.json_output))
    return fail("{} exists; give --force to replace it", arguments.json_output);
  const auto log = read_decisions(arguments.decisions == "-" ? decisions_path(options.input) : arguments.decisions);
  if (!log) return tl::unexpected(log.error());
  const auto machines = machines_of(options, *log);
  if (!machines) return tl::unexpected(machines.error());
  auto source = open_trace(options);
  if (!source) return tl::unexpected(source.error());
  const auto run = follow(*log, **source);
  if (!run) return tl::unexpected(run.error());
  const Sampling sampling = (*source)->header().sampling;
  source->reset();

  json out = {{"trace", options.input},
              {"program", log->program},
              {"policy", log->policy},
              {"nodes", log->nodes},
              {"page_size", log->page_size},
              {"references", run->references},
              {"private_references", run->private_references},
              {"writes", run->writes},
              {"global_references", run->parts.global},
              {"global_writes", run->global_writes},
              {"decisions", run->decisions},
              {"moves_without_references", run->unreferenced_moves},
              {"moves_between_bursts", run->moves_between_bursts},
              {"sampling", sampling_json(sampling)},
              {"machines", json::array()}};
  for (const Machine& machine : *machines) {
    const auto rows = rows_of(options, *log, *run, machine);
    if (!rows) return tl::unexpected(rows.error());
    out["machines"].push_back(as_json(machine, *rows));
  }
  if (!arguments.json_output.empty()) {
    const std::string text = out.dump(2) + "\n";
    if (arguments.json_output == "-") {
      fmt::print("{}", text);
      return 0;
    }
    if (Status written = write_output_file(arguments.json_output, text); !written)
      return tl::unexpected(written.error());
  }
  fmt::print("{}: {} references of {} nodes, and {} private ones; {} decisions of the policy {}\n", options.input,
             run->references, log->nodes, run->private_references, run->decisions, log->policy);
  print(out);
  return 0;
}

}  // namespace multigrain::trace::tool
