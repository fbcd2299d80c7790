// mgtrace sharing: which data make cache lines move between cores for nothing, who does that, and what would end it. One
// screen.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/temporary_folder.h"
#include "commands.h"
#include "line_study.h"
#include "record.h"
#include "texts.h"
#include "trace/format/trace_file.h"

namespace multigrain::trace::tool {
namespace {

using nlohmann::json;

struct SharingArguments {
  LineStudyOptions lines;
  unsigned top = 5;
  bool as_json = false;
  RecordArguments record;  // for a program
  std::string output;      // keep the program's trace there; empty: do not
};

// Of each thing that is ranked, so many parts are listed.
constexpr size_t kParts = 3;
// Less than so many per cent of what all references cost does not matter.
constexpr double kLittle = 1;
// A layout that does not save so much of an object's useless moves is no repair.
constexpr double kWorthwhile = 0.5;

// "written by several processors, read by processor 1" of a field.
std::string users_text(const json& field, const std::string& place) {
  const std::string readers = user_text(field["readers"], place), writers = user_text(field["writers"], place);
  const std::string several = fmt::format("several {}s", place);
  if (readers == writers) return "read and written by " + (readers == "several" ? several : readers);
  const auto side = [&](const char* verb, const std::string& user) {
    return user == "none" ? fmt::format("not {}", verb)
                          : fmt::format("{} by {}", verb, user == "several" ? several : user);
  };
  return side("written", writers) + ", " + side("read", readers);
}

std::string cost_text(const LineStudy& lines, uint64_t moves) {
  return lines.move_ns == 0 ? "" : fmt::format(", {}", time_text(static_cast<double>(moves) * lines.move_ns));
}

// What another layout of the group would save.
void print_repair(const LineStudy& lines, const json& group) {
  const auto useless = static_cast<double>(group["moves"]["false"].get<uint64_t>() + group["culprit"].get<uint64_t>()) /
                       2;  // of the trace
  const json* best = nullptr;
  for (const json& plan : lines.study["false_sharing"]["plans"]) {
    if (plan["group"].is_null() || plan["group"] != group["group"]) continue;
    if (best == nullptr || plan["moves_after"].get<uint64_t>() < (*best)["moves_after"].get<uint64_t>()) best = &plan;
  }
  if (best == nullptr) return;
  const auto before = (*best)["moves_before"].get<double>(), after = (*best)["moves_after"].get<double>();
  if (before - after < kWorthwhile * useless) {
    fmt::print("   repair: none of the layouts that were tried helps much\n");
    return;
  }
  const auto change = (*best)["change"].get<std::string>();
  const char* const what =
      change == "separate"     ? "begin each block on a line of its own, and let nothing else be in its last line"
      : change == "pad fields" ? "give each of these a line of its own (alignas, padding)"
                               : "put together what one processor uses, each processor's part on lines of its own";
  fmt::print("   repair: {}: {} moves instead of {}, {} bytes more\n", what,
             count_text(lines.of_run((*best)["moves_after"])), count_text(lines.of_run((*best)["moves_before"])),
             count_text((*best)["extra_bytes"].get<uint64_t>()));
}

void print_group(const LineStudy& lines, unsigned rank, const json& group) {
  const json& attribution = lines.attribution();
  const json& number = group["group"];
  const auto instances = group["instances"].get<uint64_t>();
  const uint64_t useless = lines.of_run(group["moves"]["false"]);
  std::string where;
  if (number != 0 && !group["site"].is_null()) where = fmt::format(", of {}", site_text(group["site"], true));
  if (number != 0 && group["bytes"].get<uint64_t>() != 0) {
    where += instances == 1 ? fmt::format(", {} bytes", count_text(group["bytes"].get<uint64_t>()))
                            : fmt::format(", {} blocks, {} bytes", count_text(instances),
                                          count_text(group["bytes"].get<uint64_t>()));
  }
  const json& across = group["across_nodes"];
  fmt::print("\n{}  {}{}\n   {} useless moves{}{}; {} useful ones\n", rank, group_text(attribution, number), where,
             count_text(useless), cost_text(lines, useless),
             across.is_null() ? "" : fmt::format(", {} of them between nodes", count_text(lines.of_run(across))),
             count_text(lines.of_run(group["moves"]["useful"])));
  size_t listed = 0;
  for (const json& field : attribution["fields"]) {
    if (field["group"] != number) continue;
    if (listed++ == kParts) {
      fmt::print("   ... more fields\n");
      break;
    }
    const auto offset = field["offset"].get<uint64_t>();
    const auto last = offset + field["bytes"].get<uint64_t>() - 1;
    const std::string range =
        number == 0 ? fmt::format("{:#x}-{:#x}", offset, last) : fmt::format("{}-{}", offset, last);
    fmt::print("   bytes {:<16} {}: loses its line {} times, takes it {} times\n", range,
               users_text(field, lines.study["false_sharing"]["places"].get<std::string>()),
               count_text(lines.of_run(field["victim"])), count_text(lines.of_run(field["culprit"])));
  }
  listed = 0;
  for (const json& cause : attribution["causes"]) {
    if (cause["victim_group"] != number) continue;
    if (listed++ == kParts) break;
    const std::string taker =
        cause["culprit_group"] == number ? "" : fmt::format(" ({})", group_text(attribution, cause["culprit_group"]));
    fmt::print("   {} wants the line that {}{} has written: {} times\n", site_text(cause["victim_site"], true),
               site_text(cause["culprit_site"], true), taker, count_text(lines.of_run(cause["moves"])));
    const std::string wants = callers_text(cause["victim_site"]), writes = callers_text(cause["culprit_site"]);
    if (!wants.empty()) fmt::print("      wants it: {}\n", wants);
    if (!writes.empty()) fmt::print("      has written: {}\n", writes);
  }
  print_repair(lines, group);
}

void print_sharing(const LineStudy& lines, const std::string& trace, unsigned top) {
  const json& of = lines.study["trace"];
  const json& map = of["map"];
  fmt::print("{}: {} references of {} processors{}; lines of {} bytes{}\n", trace,
             count_text(lines.of_run(of["references"])), of["processors"].get<unsigned>(),
             map.is_null()
                 ? ""
                 : fmt::format(" on {} cores of {} nodes", map["cores"].get<unsigned>(), map["nodes"].get<unsigned>()),
             lines.attribution()["block_size"].get<uint64_t>(),
             lines.move_ns == 0 ? "" : fmt::format(", {} a move", time_text(lines.move_ns)));
  fmt::print("{}", sampling_text(of["sampling"], "counts are those of the bursts times that, as an estimate"));
  if (!lines.caches.empty()) {
    std::string sizes;
    for (const CacheLevel& level : lines.caches.levels)
      sizes += fmt::format("{}{}{} ({} ways)", sizes.empty() ? "" : ", ", bytes_text(level.bytes),
                           level.bytes < 1024 ? " bytes" : "", level.ways);
    const uint64_t replaced = lines.of_run(lines.attribution()["replaced"]);
    fmt::print("Each core has caches of {}; {}.\n", sizes,
               replaced == 0
                   ? "they replace none of the lines that move"
                   : fmt::format("{} fetches of lines that they had replaced do not count", count_text(replaced)));
  }
  const uint64_t useless = lines.moves("false");
  if (useless == 0) {
    fmt::print(
        "No false sharing: of {} moves of written lines, {} bring data that another processor wrote, and {} are first "
        "copies.\n",
        count_text(lines.all_moves()), count_text(lines.moves("useful")), count_text(lines.moves("cold")));
    return;
  }
  fmt::print("False sharing: {} of {} moves of written lines are useless", count_text(useless),
             count_text(lines.all_moves()));
  if (lines.move_ns == 0) {
    fmt::print(".\n");
  } else {
    const double cost = static_cast<double>(useless) * lines.move_ns;
    const double percent = 100 * cost / lines.all_ns;
    fmt::print(", an estimated {}: {:.{}f} % of what all references cost{}.\n", time_text(cost), percent,
               percent < 10 ? 1 : 0, percent < kLittle ? ", which is little" : "");
  }
  if (const json& across = lines.attribution()["across_nodes"]; !across.is_null())
    fmt::print("{} of the useless moves are between nodes, where a move takes longer than the estimate says.\n",
               count_text(lines.of_run(across)));
  std::vector<json> groups;
  for (const json& group : lines.attribution()["groups"])
    if (group["moves"]["false"] != 0) groups.push_back(group);
  std::ranges::sort(groups, [](const json& a, const json& b) {
    const auto key = [](const json& x) { return x["moves"]["false"].get<uint64_t>(); };
    return std::pair(key(b), a["group"].get<uint64_t>()) < std::pair(key(a), b["group"].get<uint64_t>());
  });
  for (unsigned i = 0; i < std::min<size_t>(top, groups.size()); ++i) print_group(lines, i + 1, groups[i]);
  if (groups.size() > top) fmt::print("\n{} more; --top N lists more of them\n", groups.size() - top);
}

Result<int> run_sharing(SharingArguments options, const std::vector<std::string>& words) {
  if (words.empty()) return fail("give a trace, or a program and its arguments");
  if (words.front().starts_with("-")) return fail("there is no option '{}'", words.front());
  std::string trace = words.front();
  int status = 0;
  std::optional<TemporaryFolder> scratch;
  if (!TraceFile::begins_as_trace(trace)) {
    if (options.output.empty()) {
      scratch.emplace("mgtrace");
      if (scratch->path().empty())
        return fail("cannot make a folder for the program's trace; give --output a file to write it to");
    }
    trace = scratch ? (scratch->path() / "trace.mgt").string() : options.output;
    options.record.output = trace;
    options.record.quiet = true;
    const auto recorded = record_trace(options.record, words);
    if (!recorded) return tl::unexpected(recorded.error());
    status = *recorded;
  } else if (words.size() > 1) {
    return fail("'{}' is a trace, and has no arguments", trace);
  }
  const auto lines = study_lines(trace, options.lines);
  if (!lines) return tl::unexpected(lines.error());
  if (options.as_json) {
    fmt::print("{}\n", lines->study.dump(1, ' ', false, json::error_handler_t::replace));
  } else {
    print_sharing(*lines, words.front(), options.top);
  }
  return status;
}

}  // namespace

Command add_sharing(CLI::App& app) {
  CLI::App* const sub = app.add_subcommand(
      "sharing",
      "Name the data that make cache lines move between cores for nothing: mgtrace sharing [OPTIONS] TRACE, or PROGRAM "
      "[ARGUMENTS...], which is recorded first");
  const auto options = std::make_shared<SharingArguments>();
  add_line_study_options(*sub, options->lines);
  sub->add_option("--top", options->top, "how many allocations to list; default 5")->type_name("N");
  sub->add_option("-o,--output", options->output, "keep the program's trace there")->type_name("TRACE");
  sub->add_flag("-f,--force", options->record.overwrite, "replace that trace if it exists");
  sub->add_flag("--single-step", options->record.single_step,
                "record an unmodified program, instruction by instruction: thousands of times slower");
  sub->add_option("--limit", options->record.limit, "stop recording after about so many references")->type_name("N");
  add_sample_option(*sub, options->record);
  sub->add_flag("--json", options->as_json, "print the whole study as JSON");
  sub->prefix_command();
  return {sub, [sub, options] { return run_sharing(*options, sub->remaining()); }};
}

}  // namespace multigrain::trace::tool
