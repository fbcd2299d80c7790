#include "line_study.h"

#include <cmath>

#include "analysis_options.h"
#include "trace/model/machine.h"

namespace multigrain::trace::tool {

void add_line_study_options(CLI::App& command, LineStudyOptions& options) {
  command
      .add_option("--machine", options.machine,
                  "a machine's name, or a .json file; default: cache-lines, a socket of today")
      ->type_name("NAME");
  add_map_option(command, options.map);
  add_caches_option(command, options.caches, "today, where lines move between the caches of cores");
  command.add_option("--line", options.line_size, "bytes of a line; default 64")->type_name("BYTES");
  command.add_option("--word", options.word_bytes, "bytes of a word; default 4")
      ->check(CLI::IsMember({1u, 2u, 4u, 8u, 16u}))
      ->type_name("BYTES");
  command.add_flag("--partial", options.partial, "analyze what precedes the damage of a damaged trace");
}

uint64_t LineStudy::of_run(const nlohmann::json& count) const {
  const auto of_trace = count.get<uint64_t>();
  return scale == 1 ? of_trace : static_cast<uint64_t>(std::llround(scale * static_cast<double>(of_trace)));
}

Result<LineStudy> study_lines(const std::string& trace, const LineStudyOptions& options) {
  AnalysisOptions analysis;
  analysis.input = trace;
  analysis.machines = {options.machine};
  analysis.block_sizes = {options.line_size};
  analysis.attribution_block_size = options.line_size;
  analysis.word_bytes = options.word_bytes;
  analysis.false_sharing = true;
  analysis.partial = options.partial;
  analysis.map = options.map;
  const auto machine = find_machine(options.machine);
  if (!machine) return tl::unexpected(machine.error());
  const bool of_cores = machine->memory == MemoryOf::kCore;
  if (!of_cores && !options.caches.empty() && options.caches != "none")
    return fail("the machine '{}' moves blocks between nodes, and its lines are not those of --caches", machine->name);
  analysis.caches = !options.caches.empty() ? options.caches : of_cores ? "today" : "none";
  analysis.cache_line = options.line_size;
  auto study = analyze_trace(analysis);
  if (!study) return tl::unexpected(study.error());
  LineStudy out{.study = std::move(*study)};
  const nlohmann::json& caches = out.study["caches"];
  if (!caches.is_null()) {
    out.caches.line_bytes = caches["line"].get<uint64_t>();
    for (const nlohmann::json& level : caches["levels"])
      if (!level["shared"].get<bool>())
        out.caches.levels.push_back({.bytes = level["bytes"].get<uint64_t>(), .ways = level["ways"].get<unsigned>()});
  }
  const nlohmann::json& counts = out.study["trace"];
  if (const nlohmann::json& sampling = counts["sampling"]; !sampling.is_null())
    out.scale = sampling["scale"].get<double>();
  const double references = counts["references"].get<double>() + counts["private_references"].get<double>();
  if (references == 0) return out;
  const double move = out.attribution()["mcpr_per_move"].get<double>();
  const double all_units_ns = references * out.study["machines"][0]["machine"]["unit_ns"].get<double>();
  out.mcpr = 1 + move / out.scale * static_cast<double>(out.all_moves());
  out.move_ns = move * all_units_ns;
  out.all_ns = out.mcpr * all_units_ns * out.scale;
  return out;
}

}  // namespace multigrain::trace::tool
