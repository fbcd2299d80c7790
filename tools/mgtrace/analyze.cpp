// mgtrace analyze: how good a program's placement could be, and what keeps it from being so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis_options.h"
#include "commands.h"
#include "decisions.h"
#include "texts.h"

namespace multigrain::trace::tool {
namespace {

using nlohmann::json;

struct AnalyzeArguments {
  AnalysisOptions analysis;
  std::string json_output;
  std::string decisions;  // empty: none are looked at
  bool overwrite = false;
};

// A percentage with so many digits that matter, never as a power of ten.
std::string percent_text(double percent, int digits) {
  return percent >= std::pow(10, digits - 1) ? fmt::format("{:.0f}%", percent)
                                             : fmt::format("{:.{}g}%", percent, digits);
}

std::string spread_text(const json& spread) {
  if (spread.is_null()) return "";
  auto percent = [](const json& value) {
    return value.is_null() ? std::string("from 0") : "±" + percent_text(value.get<double>(), 2);
  };
  return fmt::format("  {} / {}", percent(spread["local"]), percent(spread["gap"]));
}

// The larger of the two spreads, to stand right behind a figure.
std::string larger_spread(const json& spread) {
  if (spread.is_null()) return "";
  double most = 0;
  for (const json& percent : spread) {
    if (percent.is_null()) return " from 0";
    most = std::max(most, percent.get<double>());
  }
  return " ±" + percent_text(most, 1);
}

// A figure of `entry`, of a MOVES if `moves` says so, with its spread.
std::string figure(const json& entry, const char* key, bool moves = false) {
  const json& value = moves ? entry["moves"][key] : entry[key];
  if (value.is_null()) return "-";
  const std::string text =
      value.is_number_float() ? fmt::format("{:.4f}", value.get<double>()) : fmt::format("{}", value.get<uint64_t>());
  return entry["spreads"].is_null() ? text : text + larger_spread(entry["spreads"][key]);
}

void print_caches(const json& out) {
  const json& caches = out["caches"];
  if (caches.is_null()) return;
  const json& trace = out["trace"];
  const auto of_all = [&](const json& count) {
    return fmt::format("{} ({:.3g}%)", count.get<uint64_t>(),
                       100 * count.get<double>() / trace["references"].get<double>());
  };
  fmt::print("\nCaches with lines of {} bytes; private references hit\n\n", caches["line"].get<unsigned>());
  fmt::print("{:<10} {:>10} {:>6} {:>24}\n", "level", "bytes", "ways", "references that hit");
  for (const json& level : caches["levels"])
    fmt::print("{:<10} {:>10} {:>6} {:>24}\n", level["shared"].get<bool>() ? "a node's" : "a core's",
               bytes_text(level["bytes"].get<uint64_t>()), level["ways"].get<unsigned>(), of_all(level["hits"]));
  fmt::print("{:<10} {:>10} {:>6} {:>24}\n", "memory", "", "", of_all(caches["misses"]));
  const json& own = caches["own"];
  fmt::print(
      "a core's own levels lacked lines {} times for the first time, {} times because they had replaced them, {} times "
      "because another core had written them\n",
      own["first"].get<uint64_t>(), own["replaced"].get<uint64_t>(), own["taken"].get<uint64_t>());
}

void print_machines(const json& out) {
  fmt::print("\nMCPR (mean cost per reference; 1: all references local, no block ever moves){}\n\n",
             out["caches"].is_null() ? "" : ", of references that miss the caches");
  const bool contention = !out["machines"][0]["results"][0]["contended_mcpr"].is_null();
  const auto contended = [&](const std::string& text) { return contention ? fmt::format(" {:>10}", text) : ""; };
  fmt::print("{:<14} {:>8} {:<16} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}{}{}\n", "machine", "block", "policy",
             "MCPR", "local", "global", "remote", "moves'", "moves'", "over", contended("MCPR with"),
             out["perturbation"].is_null() ? "" : "  spread");
  fmt::print("{:<14} {:>8} {:<16} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}{}{}\n", "", "", "", "", "", "", "",
             "overhead", "data", "optimal", contended("contention"),
             out["perturbation"].is_null() ? "" : "  local / gap");
  for (const json& entry : out["machines"]) {
    const json& machine = entry["machine"];
    for (const json& result : entry["results"]) {
      const json& areas = result["areas"];
      fmt::print("{:<14} {:>8} {:<16} {:>9.4f} {:>8.4f} {:>8.4f} {:>8.4f} {:>8.4f} {:>9.4f} {:>8}{}{}\n",
                 machine["name"].get<std::string>(), bytes_text(machine["block_size"].get<uint64_t>()),
                 result["policy"].get<std::string>(), result["mcpr"].get<double>(), areas["local"].get<double>(),
                 areas["global"].get<double>(), areas["remote"].get<double>(), areas["overhead"].get<double>(),
                 areas["data_transfer"].get<double>(),
                 result.contains("over_optimal") ? fmt::format("{:.3f}", result["over_optimal"].get<double>()) : "",
                 contention ? contended(fmt::format("{:.4f}", result["contended_mcpr"].get<double>())) : "",
                 spread_text(result["spread"]));
    }
  }
}

void print_variable_blocks(const json& out) {
  if (out["variable_blocks"].is_null()) return;
  for (const json& of : out["variable_blocks"]) {
    const auto best = [&](const char* key) {
      return *std::ranges::min_element(of["block_sizes"], {},
                                       [&](const json& size) { return size[key].get<double>(); });
    };
    const json one = best("mcpr"), separate = best("separate_mcpr");
    fmt::print(
        "\nBlocks of several sizes on {}: MCPR {:.4f} with the best size for each allocation\n"
        "  {:.4f} with {} for all, allocations in blocks of their own; {:.4f} with {} for all\n\n",
        of["machine"].get<std::string>(), of["mcpr"].get<double>(), separate["separate_mcpr"].get<double>(),
        bytes_text(separate["block_size"].get<uint64_t>()), one["mcpr"].get<double>(),
        bytes_text(one["block_size"].get<uint64_t>()));
    size_t common = 0;
    while (of["block_sizes"][common]["block_size"] != separate["block_size"]) ++common;
    fmt::print("{:<28} {:<24} {:>12} {:>10} {:>14} {:>14}\n", "allocation", "at", "references", "best size",
               "excess cost", "at the one size");
    constexpr size_t kMost = 10;
    for (size_t i = 0; i < std::min(kMost, of["groups"].size()); ++i) {
      const json& group = of["groups"][i];
      const auto name = group["name"].get<std::string>();
      fmt::print("{:<28} {:<24} {:>12} {:>10} {:>14.6g} {:>14.6g}\n",
                 !name.empty()             ? name
                 : group["site"].is_null() ? "(no allocation)"
                                           : site_text(group["site"]),
                 site_text(group["site"]), group["references"].get<uint64_t>(),
                 bytes_text(group["block_size"].get<uint64_t>()), group["excess"].get<double>(),
                 group["excesses"][common].get<double>());
    }
  }
}

// A table of numbers with block sizes (or other values) as columns.
void print_grid(const char* corner, const std::vector<std::string>& columns,
                const std::vector<std::pair<std::string, std::vector<std::string>>>& rows) {
  std::vector<size_t> width;
  size_t first = std::string_view(corner).size();
  for (const std::string& column : columns) width.push_back(column.size());
  for (const auto& [name, cells] : rows) {
    first = std::max(first, name.size());
    for (size_t i = 0; i < cells.size(); ++i) width[i] = std::max(width[i], cells[i].size());
  }
  fmt::print("{:<{}}", corner, first);
  for (size_t i = 0; i < columns.size(); ++i) fmt::print("  {:>{}}", columns[i], width[i]);
  fmt::print("\n");
  for (const auto& [name, cells] : rows) {
    fmt::print("{:<{}}", name, first);
    for (size_t i = 0; i < cells.size(); ++i) fmt::print("  {:>{}}", cells[i], width[i]);
    fmt::print("\n");
  }
}

void print_block_sizes(const json& out) {
  if (out["block_sizes"].empty()) return;
  std::vector<std::string> columns;
  std::vector<std::pair<std::string, std::vector<std::string>>> costs, moves;
  for (const json& entry : out["block_sizes"]) {
    const auto name = entry["machine"].get<std::string>();
    if (costs.empty() || costs.back().first != name) {
      costs.emplace_back(name, std::vector<std::string>());
      moves.emplace_back(name, std::vector<std::string>());
    }
    if (costs.size() == 1) columns.push_back(bytes_text(entry["block_size"].get<uint64_t>()));
    costs.back().second.push_back(fmt::format("{:.4g}{}", entry["mcpr"].get<double>(), larger_spread(entry["spread"])));
    moves.back().second.push_back(
        fmt::format("{:.4g}{}", entry["moves_per_block"].get<double>(), larger_spread(entry["moves_spread"])));
  }
  fmt::print("\nMCPR of optimal placement by block size\n\n");
  print_grid("machine", columns, costs);
  fmt::print("\nBlock moves a block in it\n\n");
  print_grid("machine", columns, moves);
}

void print_parameters(const json& out) {
  if (out["parameters"].empty()) return;
  fmt::print("\nOptimal placement as one parameter varies\n\n");
  fmt::print("{:<14} {:>8} {:<9} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12}\n", "machine", "block", "parameter",
             "value", "MCPR", "local", "global", "remote", "moves", "moves/block");
  for (const json& entry : out["parameters"]) {
    const json& areas = entry["areas"];
    fmt::print("{:<14} {:>8} {:<9} {:>12.5g} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.4f} {:>12.4g}{}\n",
               entry["machine"].get<std::string>(), bytes_text(entry["block_size"].get<uint64_t>()),
               entry["parameter"].get<std::string>(), entry["value"].get<double>(), entry["mcpr"].get<double>(),
               areas["local"].get<double>(), areas["global"].get<double>(), areas["remote"].get<double>(),
               areas["overhead"].get<double>() + areas["data_transfer"].get<double>(),
               entry["moves_per_block"].get<double>(), spread_text(entry["spread"]));
  }
}

void print_hot_blocks(const json& out, unsigned most) {
  for (const json& entry : out["machines"]) {
    if (entry["hot_blocks"].empty() || most == 0) continue;
    fmt::print("\nWhat costs most on {}: blocks by their optimal cost above that of local references\n\n",
               entry["machine"]["name"].get<std::string>());
    const bool perturbed = !out["perturbation"].is_null();
    const size_t wide = perturbed ? 22 : 14, narrow = perturbed ? 18 : 10;
    fmt::print("{:>18} {:>12} {:>{}} {:>{}} {:>7} {:>7}  {}\n", "address", "references", "excess cost", wide, "moves",
               narrow, "readers", "writers", "allocations; source lines");
    for (size_t i = 0; i < std::min<size_t>(most, entry["hot_blocks"].size()); ++i) {
      const json& hot = entry["hot_blocks"][i];
      std::string owners, sites;
      for (const json& owner : hot["owners"]) {
        auto name = owner["name"].get<std::string>();
        if (name.empty()) name = owner["site"].is_null() ? "(no allocation)" : site_text(owner["site"]);
        owners += (owners.empty() ? "" : ", ") + name;
        if (owners.size() > 40) break;
      }
      for (size_t s = 0; s < std::min<size_t>(3, hot["sites"].size()); ++s)
        sites += (s == 0 ? "" : ", ") + site_text(hot["sites"][s]["site"]);
      const std::string excess = fmt::format("{:.6g}{}", hot["cost"].get<double>() - hot["references"].get<double>(),
                                             perturbed ? larger_spread(hot["spreads"]["excess"]) : "");
      fmt::print("{:>18} {:>12} {:>{}} {:>{}} {:>7} {:>7}  {}; {}\n",
                 fmt::format("{:#x}", hot["address"].get<uint64_t>()), hot["references"].get<uint64_t>(), excess, wide,
                 figure(hot, "moves"), narrow, hot["readers"].get<unsigned>(), hot["writers"].get<unsigned>(), owners,
                 sites);
    }
  }
}

void print_tlbs(const json& out) {
  if (out["tlb"].is_null()) return;
  std::vector<std::string> columns;
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  for (const json& tlb : out["tlb"]["miss_rates"]) {
    rows.emplace_back(tlb["tlb"].get<std::string>(), std::vector<std::string>());
    for (const json& rate : tlb["rates"]) {
      if (rows.size() == 1) columns.push_back(bytes_text(rate["page_size"].get<uint64_t>()));
      rows.back().second.push_back(fmt::format("{:.3g}%", 100 * rate["rate"].get<double>()));
    }
  }
  fmt::print(
      "\nTLB misses a reference, by page size (the order of different processors' references does not matter)\n\n");
  print_grid("TLB", columns, rows);
  rows.clear();
  for (const json& entry : out["tlb"]["corrected"]) {
    for (const auto& [tlb, mcpr] : entry["corrected"].items()) {
      const std::string name = fmt::format("{} + {}", entry["machine"].get<std::string>(), tlb);
      auto row = std::ranges::find(rows, name, [](const auto& each) { return each.first; });
      if (row == rows.end()) row = rows.insert(rows.end(), {name, {}});
      row->second.push_back(fmt::format("{:.4g}", mcpr.get<double>()));
    }
  }
  if (rows.empty()) return;
  fmt::print("\nMCPR with the cost of TLB misses\n\n");
  print_grid("machine", columns, rows);
}

void print_false_sharing(const json& out) {
  const json& sharing = out["false_sharing"];
  if (sharing.is_null()) return;
  fmt::print(
      "\nFalse sharing, as a part of the MCPR, on machines without remote reference (words of {} bytes)\n"
      "bounds: by cost components; intervals and full duration: what merging, or no coherence, would save at least; by locks: "
      "intervals that end where locks and barriers say\n\n",
      sharing["word_size"].get<unsigned>());
  const bool perturbed = !out["perturbation"].is_null();
  if (perturbed) fmt::print("±: how much it differs at most when the trace is perturbed\n\n");
  const size_t width = perturbed ? 18 : 10, count_width = perturbed ? 18 : 12;
  fmt::print("{:<14} {:>8} {:>{}} {:>{}} {:>{}} {:>{}} {:>{}} {:>{}} {:>{}}\n", "machine", "block", "moves", width,
             "overhead", width, "data", width, "false sharing, bounds", 2 * width + 1, "intervals", width, "by locks",
             width, "full dur.", width);
  const size_t machines = out["machines"].size();
  for (size_t m = 0; m < machines; ++m) {
    for (const json& size : sharing["block_sizes"]) {
      const json& of = size["machines"][m];
      fmt::print("{:<14} {:>8} {:>{}}", of["machine"].get<std::string>(),
                 bytes_text(size["block_size"].get<uint64_t>()), figure(size, "moves"), width);
      for (const char* key :
           {"overhead", "data_transfer", "lower", "upper", "interval_lower", "lock_interval_lower", "full_duration"})
        fmt::print(" {:>{}}", figure(of, key), width);
      fmt::print("\n");
    }
  }

  const json& a = sharing["attribution"];
  const json& moves = a["moves"];
  fmt::print("\nWho causes it, at blocks of {}: {} block moves are useful, {} first copies, {} false sharing\n\n",
             bytes_text(a["block_size"].get<uint64_t>()), figure(a, "useful", true), figure(a, "cold", true),
             figure(a, "false", true));
  auto name_of = [&](const json& number) { return group_text(a, number); };
  const auto place = sharing["places"].get<std::string>();
  constexpr size_t kMost = 10;
  if (moves["false"] != 0) {
    fmt::print("{:<28} {:<24} {:>10} {:>{}} {:>{}} {:>{}}\n", "allocation", "at", "instances", "false moves",
               count_width, "caused", count_width, "useful", count_width);
    for (size_t i = 0; i < std::min(kMost, a["groups"].size()); ++i) {
      const json& group = a["groups"][i];
      fmt::print("{:<28} {:<24} {:>10} {:>{}} {:>{}} {:>{}}\n", name_of(group["group"]), site_text(group["site"]),
                 group["instances"].get<uint64_t>(), figure(group, "false", true), count_width,
                 figure(group, "culprit"), count_width, figure(group, "useful", true), count_width);
    }
    fmt::print("\n{:<28} {:>16} {:>8} {:<14} {:<14} {:>{}} {:>{}}\n", "bytes of", "offset", "bytes", "read by",
               "written by", "false moves", count_width, "caused", count_width);
    for (size_t i = 0; i < std::min(kMost, a["fields"].size()); ++i) {
      const json& field = a["fields"][i];
      const auto offset = field["offset"].get<uint64_t>();
      fmt::print("{:<28} {:>16} {:>8} {:<14} {:<14} {:>{}} {:>{}}\n", name_of(field["group"]),
                 field["group"] == 0 ? fmt::format("{:#x}", offset) : fmt::format("{}", offset),
                 field["bytes"].get<uint64_t>(), user_text(field["readers"], place), user_text(field["writers"], place),
                 figure(field, "victim"), count_width, figure(field, "culprit"), count_width);
    }
    fmt::print("\n{:<28} {:<24} {:<28} {:<24} {:>{}}\n", "a reference to", "at", "lost its block to a write of", "at",
               "false moves", count_width);
    for (size_t i = 0; i < std::min(kMost, a["causes"].size()); ++i) {
      const json& cause = a["causes"][i];
      fmt::print("{:<28} {:<24} {:<28} {:<24} {:>{}}\n", name_of(cause["victim_group"]),
                 site_text(cause["victim_site"]), name_of(cause["culprit_group"]), site_text(cause["culprit_site"]),
                 figure(cause, "moves"), count_width);
    }
    const size_t plan_width = perturbed ? 20 : 14;
    fmt::print("\n{:<28} {:<12} {:>{}} {:>{}} {:>{}} {:>14}\n", "with another layout of", "change", "moves before",
               plan_width, "moves after", plan_width, "saved MCPR", plan_width, "extra bytes");
    for (const json& plan : sharing["plans"])
      fmt::print("{:<28} {:<12} {:>{}} {:>{}} {:>{}} {:>14}\n",
                 plan["group"].is_null() ? "everything" : name_of(plan["group"]), plan["change"].get<std::string>(),
                 figure(plan, "moves_before"), plan_width, figure(plan, "moves_after"), plan_width,
                 figure(plan, "saved_mcpr"), plan_width, plan["extra_bytes"].get<uint64_t>());
  }
}

Result<int> run_analyze(const AnalyzeArguments& options) {
  const bool to_file = !options.json_output.empty() && options.json_output != "-";
  std::error_code ignored;
  if (to_file && std::filesystem::exists(options.json_output, ignored) && !options.overwrite)
    return fail("{} exists; give --force to replace it", options.json_output);

  const auto out = analyze_trace(options.analysis);
  if (!out) return tl::unexpected(out.error());
  if (!options.json_output.empty()) {
    const std::string text = out->dump(1, ' ', false, json::error_handler_t::replace) + "\n";
    if (!to_file) {
      fmt::print("{}", text);
      return 0;
    }
    std::FILE* file = std::fopen(options.json_output.c_str(), "w");
    if (file == nullptr) return fail_errno(errno, fmt::format("cannot write {}", options.json_output));
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written)
      return fail_errno(errno, fmt::format("cannot write {}", options.json_output));
  }
  const json& trace = (*out)["trace"];
  fmt::print("{}: {} references by {} processors, and {} private ones\n", options.analysis.input,
             trace["references"].get<uint64_t>(), trace["processors"].get<unsigned>(),
             trace["private_references"].get<uint64_t>());
  fmt::print("{}", sampling_text(trace["sampling"], "the counts below are of these"));
  if (!trace["map"].is_null())
    fmt::print("mapped to {} cores of {} nodes\n", trace["map"]["cores"].get<unsigned>(),
               trace["map"]["nodes"].get<unsigned>());
  print_caches(*out);
  print_machines(*out);
  print_block_sizes(*out);
  print_variable_blocks(*out);
  print_parameters(*out);
  print_tlbs(*out);
  print_hot_blocks(*out, options.analysis.hot_blocks);
  print_false_sharing(*out);
  return 0;
}

}  // namespace

Command add_analyze(CLI::App& app) {
  auto options = std::make_shared<AnalyzeArguments>();
  CLI::App* const command =
      app.add_subcommand("analyze", "compute the cost of optimal placement and of policies, and what causes it");
  command->add_option("trace", options->analysis.input, "the trace")->required()->type_name("TRACE");
  add_analysis_options(*command, options->analysis);
  command->add_option("--json", options->json_output, "write everything as JSON; -: print it instead of the tables")
      ->type_name("FILE");
  command->add_flag("-f,--force", options->overwrite, "replace that file if it exists");
  command
      ->add_option(
          "--decisions", options->decisions,
          "price the placement of the run that mgrun --record has recorded beside optimal placement and policies: its "
          "log of decisions; without a FILE: TRACE.decisions")
      ->expected(0, 1)
      ->default_str("-")
      ->type_name("FILE");
  return {command, [options]() -> Result<int> {
            if (options->decisions.empty()) return run_analyze(*options);
            return analyze_decisions({.analysis = options->analysis,
                                      .decisions = options->decisions,
                                      .json_output = options->json_output,
                                      .overwrite = options->overwrite});
          }};
}

}  // namespace multigrain::trace::tool
