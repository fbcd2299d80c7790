// mgtrace import: makes a trace of another tool's text.
#include "trace/import/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "commands.h"
#include "output.h"
#include "progress.h"

namespace multigrain::trace::tool {
namespace {

struct ImportArguments {
  std::string input, format;
  std::string program;
  ImportOptions import;
  OutputOptions output;
  bool no_instructions = false;
};

struct Format {
  std::string_view name;  // and the extension of a file
  Result<std::unique_ptr<ImportSource>> (*open)(const std::string&, ImportOptions);
};
constexpr Format kFormats[] = {
    {"lackey", open_lackey}, {"drmemtrace", open_drmemtrace}, {"perf", open_perf}, {"csv", open_csv}};

std::vector<std::string> names_of_formats() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

Result<int> run_import(const ImportArguments& options) {
  std::string format = options.format;
  if (format.empty()) {
    const std::string extension = std::filesystem::path(options.input).extension();
    if (!extension.empty()) format = extension.substr(1);
  }
  ImportOptions import = options.import;
  import.count_instructions = !options.no_instructions;
  const auto* const kind = std::ranges::find(kFormats, format, &Format::name);
  if (kind == std::end(kFormats))
    return fail("the name {} does not say what it is; say --format {}", options.input,
                fmt::join(names_of_formats(), ", "));
  auto source = kind->open(options.input, import);
  if (!source) return tl::unexpected<Error>(source.error());
  TraceHeader header = (*source)->header();
  header.program = options.program;
  auto writer = TraceWriter::create(options.output.path, header, options.output.write);
  if (!writer) return tl::unexpected<Error>(writer.error());
  Progress progress("Importing", "bytes", (*source)->bytes_total());
  while (true) {
    const auto batch = (*source)->next();
    if (!batch) return tl::unexpected<Error>(batch.error());
    if (batch->references.empty() && batch->events.empty()) break;
    // What names the batch's sites is known by now.
    header = (*source)->header();
    header.program = options.program;
    (*writer)->update_header(header);
    if (Status status = (*writer)->append(*batch); !status) return tl::unexpected<Error>(status.error());
    progress.update((*source)->bytes_read());
  }
  if (Status status = (*writer)->finish(); !status) return tl::unexpected<Error>(status.error());
  return 0;
}

}  // namespace

Command add_import(CLI::App& app) {
  auto options = std::make_shared<ImportArguments>();
  CLI::App* const command = app.add_subcommand("import", "make a trace of another tool's text or of a CSV file");
  command->add_option("input", options->input, "the text; - for standard input")->required()->type_name("FILE");
  command
      ->add_option(
          "--format", options->format,
          "lackey (valgrind --tool=lackey --trace-mem=yes), drmemtrace (DynamoRIO's -tool view), perf "
          "(perf script -F tid,time,event,addr,data_src,ip,sym of perf mem record) or csv; by default what FILE's "
          "extension says")
      ->type_name("NAME")
      ->check(CLI::IsMember(names_of_formats()));
  command->add_option("--processors", options->import.processors, "how many there are; by default as many as are met")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  command->add_option("--program", options->program, "the command that was traced, to be kept in the trace")
      ->type_name("TEXT");
  command->add_flag("--no-instructions", options->no_instructions,
                    "lackey, drmemtrace: do not count instruction fetches as private references");
  add_output_options(*command, options->output);
  return {command, [options] { return run_import(*options); }};
}

}  // namespace multigrain::trace::tool
