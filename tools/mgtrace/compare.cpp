// mgtrace compare: two traces of one program, before and after a change: what does it save?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>

#include "commands.h"
#include "line_study.h"
#include "texts.h"

namespace multigrain::trace::tool {
namespace {

using nlohmann::json;

struct CompareArguments {
  std::string before, after;
  LineStudyOptions lines;
  unsigned top = 10;
  bool as_json = false;
};

struct Moves {
  uint64_t useless = 0, useful = 0;
};

// What is the same thing in both traces: an allocation's name, and the file and function that made it. Lines move when a
// program is changed.
using Thing = std::tuple<std::string, std::string, std::string>;

std::map<Thing, Moves> things_of(const LineStudy& lines) {
  std::map<Thing, Moves> things;
  const json& attribution = lines.attribution();
  for (const json& group : attribution["groups"]) {
    const json& site = group["site"];
    std::string file, function;
    if (!site.is_null()) {
      file = std::filesystem::path(site["file"].get<std::string>()).filename().string();
      function = site["function"].get<std::string>();
    }
    // Without a name of its own, an allocation is called by its line.
    const auto name = group["name"].get<std::string>();
    Moves& moves = things[{name.empty() ? group_text(attribution, group["group"]) : name, file, function}];
    moves.useless += lines.of_run(group["moves"]["false"]);
    moves.useful += lines.of_run(group["moves"]["useful"]);
  }
  return things;
}

std::string thing_text(const Thing& thing) {
  const auto& [name, file, function] = thing;
  if (file.empty() || name.starts_with(file)) return name;
  return fmt::format("{} ({})", name, file);
}

// "-99.99 %", "+3 %".
std::string change_text(double before, double after) {
  if (before == after) return "same";
  if (before == 0) return "new";
  const double percent = 100 * (after - before) / before;
  return fmt::format("{:+.{}f} %", percent, std::abs(percent) < 10 || (percent < -99 && after != 0) ? 1 : 0);
}

void print_row(std::string_view what, uint64_t before, uint64_t after) {
  fmt::print("{:<40} {:>16} {:>16} {:>10}\n", what, count_text(before), count_text(after),
             change_text(static_cast<double>(before), static_cast<double>(after)));
}

void print_comparison(const CompareArguments& options, const LineStudy& before, const LineStudy& after) {
  fmt::print("before: {}\nafter:  {}\nlines of {} bytes{}\n\n", options.before, options.after,
             before.attribution()["block_size"].get<uint64_t>(),
             before.move_ns == 0 ? "" : fmt::format(", {} a move", time_text(before.move_ns)));
  for (const LineStudy* lines : {&before, &after}) {
    const std::string text =
        sampling_text(lines->study["trace"]["sampling"], "counts are those of the bursts times that, as an estimate");
    if (!text.empty()) fmt::print("{}: {}\n", lines == &before ? options.before : options.after, text);
  }
  fmt::print("{:<40} {:>16} {:>16} {:>10}\n", "", "before", "after", "");
  print_row("processors", before.study["trace"]["processors"].get<uint64_t>(),
            after.study["trace"]["processors"].get<uint64_t>());
  print_row("references", before.of_run(before.study["trace"]["references"]),
            after.of_run(after.study["trace"]["references"]));
  print_row("moves of written lines", before.all_moves(), after.all_moves());
  print_row("  useless (false sharing)", before.moves("false"), after.moves("false"));
  print_row("  that bring another processor's data", before.moves("useful"), after.moves("useful"));
  print_row("  first copies", before.moves("cold"), after.moves("cold"));
  fmt::print("{:<40} {:>16.4g} {:>16.4g} {:>10}\n", "mean cost of a reference (1: never moves)", before.mcpr,
             after.mcpr, change_text(before.mcpr, after.mcpr));

  const std::map<Thing, Moves> old_things = things_of(before), new_things = things_of(after);
  std::vector<std::tuple<uint64_t, Thing, Moves, Moves>> rows;  // the larger number of useless moves first
  std::map<Thing, Moves> all = old_things;
  all.insert(new_things.begin(), new_things.end());
  for (const auto& [thing, ignored] : all) {
    const auto was = old_things.find(thing), is = new_things.find(thing);
    const Moves old_moves = was == old_things.end() ? Moves{} : was->second;
    const Moves new_moves = is == new_things.end() ? Moves{} : is->second;
    const uint64_t most = std::max(old_moves.useless, new_moves.useless);
    if (most != 0) rows.emplace_back(most, thing, old_moves, new_moves);
  }
  std::ranges::sort(rows, [](const auto& a, const auto& b) {
    return std::tuple(std::get<0>(b), std::get<1>(a)) < std::tuple(std::get<0>(a), std::get<1>(b));
  });
  if (!rows.empty()) fmt::print("\n{:<40} {:>16} {:>16} {:>10}\n", "useless moves of", "before", "after", "");
  for (size_t i = 0; i < std::min<size_t>(options.top, rows.size()); ++i) {
    const auto& [most, thing, old_moves, new_moves] = rows[i];
    print_row(thing_text(thing), old_moves.useless, new_moves.useless);
  }
  if (rows.size() > options.top) fmt::print("{} more; --top N lists more of them\n", rows.size() - options.top);

  const auto saved = static_cast<double>(before.all_moves()) - static_cast<double>(after.all_moves());
  fmt::print("\n");
  if (saved == 0) {
    fmt::print("Both move lines equally often.\n");
    return;
  }
  fmt::print("The second has {} {} moves{}.\n", count_text(static_cast<uint64_t>(std::abs(saved))),
             saved > 0 ? "fewer" : "more",
             before.move_ns == 0
                 ? ""
                 : fmt::format(": an estimated {} of all processors' time {}",
                               time_text(std::abs(saved) * before.move_ns), saved > 0 ? "saved" : "lost"));
}

Result<int> run_compare(const CompareArguments& options) {
  const auto before = study_lines(options.before, options.lines);
  if (!before) return tl::unexpected(before.error());
  const auto after = study_lines(options.after, options.lines);
  if (!after) return tl::unexpected(after.error());
  if (options.as_json) {
    fmt::print("{}\n", json{{"before", before->study}, {"after", after->study}}.dump(1, ' ', false,
                                                                                     json::error_handler_t::replace));
    return 0;
  }
  print_comparison(options, *before, *after);
  return 0;
}

}  // namespace

Command add_compare(CLI::App& app) {
  const auto options = std::make_shared<CompareArguments>();
  CLI::App* const sub = app.add_subcommand(
      "compare", "What a change of a program has done to its cache lines: two traces beside each other");
  sub->add_option("before", options->before, "the trace before the change")->required()->type_name("TRACE");
  sub->add_option("after", options->after, "the trace after it")->required()->type_name("TRACE");
  add_line_study_options(*sub, options->lines);
  sub->add_option("--top", options->top, "how many allocations to list; default 10")->type_name("N");
  sub->add_flag("--json", options->as_json, "print both studies as JSON");
  return {sub, [options] { return run_compare(*options); }};
}

}  // namespace multigrain::trace::tool
