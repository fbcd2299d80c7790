#include "line_study.h"

#include "analysis_options.h"
#include "trace/model/machine.h"

namespace multigrain::trace::tool {

void add_line_study_options(CLI::App& command, LineStudyOptions& options) {
  command
      .add_option("--machine", options.machine,
                  "a machine's name, or a .json file; default: cache-lines, a socket of today")
      ->type_name("NAME");
  command.add_option("--line", options.line_size, "bytes of a line; default 64")->type_name("BYTES");
  command.add_option("--word", options.word_bytes, "bytes of a word; default 4")
      ->check(CLI::IsMember({1u, 2u, 4u, 8u, 16u}))
      ->type_name("BYTES");
  command.add_flag("--partial", options.partial, "analyze what precedes the damage of a damaged trace");
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
  const auto machine = find_machine(options.machine);
  if (!machine) return tl::unexpected(machine.error());
  auto study = analyze_trace(analysis);
  if (!study) return tl::unexpected(study.error());
  LineStudy out{.study = std::move(*study)};
  out.move_ns = machine->remote_move.at(out.attribution()["block_size"].get<uint64_t>()) * machine->unit_ns;
  const nlohmann::json& counts = out.study["trace"];
  const double references = counts["references"].get<double>() + counts["private_references"].get<double>();
  out.all_ns = out.study["machines"][0]["results"][0]["mcpr"].get<double>() * references * machine->unit_ns;
  return out;
}

}  // namespace multigrain::trace::tool
