// mgtrace record: runs a program and writes the trace of its references.
#include "record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sampling.h"
#include "commands.h"
#include "progress.h"
#include "trace/format/trace_writer.h"
#include "trace/record/recorder.h"
#include "trace/record/single_step.h"

namespace multigrain::trace::tool {
namespace {

// What is printed at the end.
struct Summary {
  RunResult run;
  double baseline_seconds = 0;
  const char* baseline = "not measured";
  RecordingFacts facts;
  Sampling sampling;
  unsigned processors = 0;
  uint64_t references = 0;
  uint64_t file_bytes = 0;
  uint64_t instructions = 0;  // single-stepped
  uint64_t gathers = 0;       // of these, how many have references that are not known
};

void print(const RecordArguments& options, const Summary& summary) {
  if (options.quiet) return;
  const double dilation = summary.baseline_seconds > 0 ? summary.run.seconds / summary.baseline_seconds : 0;
  const double bytes_per_reference =
      summary.references == 0 ? 0 : static_cast<double>(summary.file_bytes) / static_cast<double>(summary.references);
  if (options.json) {
    nlohmann::json out = {{"trace", options.output},
                          {"processors", summary.processors},
                          {"references", summary.references},
                          {"private_references", summary.facts.private_references},
                          {"stack_references", summary.facts.stack_references},
                          {"spins_left_out", summary.facts.spins},
                          {"dropped", summary.facts.dropped},
                          {"file_bytes", summary.file_bytes},
                          {"bytes_per_reference", bytes_per_reference},
                          {"seconds", summary.run.seconds},
                          {"baseline_seconds", summary.baseline_seconds},
                          {"baseline", summary.baseline},
                          {"dilation", dilation},
                          {"exit_status", summary.run.exit_status},
                          {"stopped", summary.facts.stopped}};
    if (summary.sampling.is_on()) {
      out["sampling"] = {{"burst", summary.sampling.burst},
                         {"interval", summary.sampling.interval},
                         {"scale", summary.sampling.scale}};
    }
    if (options.single_step) out["instructions"] = summary.instructions, out["gathers"] = summary.gathers;
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{}: {} references of {} processors, {} private ones; {} bytes, {:.2f} a reference\n", options.output,
             summary.references, summary.processors, summary.facts.private_references, summary.file_bytes,
             bytes_per_reference);
  if (const Sampling& sampling = summary.sampling; sampling.is_on()) {
    fmt::print("sampled: bursts of {} in each {} of a processor's references; one of {:.4g} is in the trace\n",
               sampling.burst, sampling.interval, sampling.scale);
  }
  if (summary.facts.stack_references != 0) {
    fmt::print("{} references are to variables on stacks that several threads use\n", summary.facts.stack_references);
  }
  if (summary.facts.spins != 0) fmt::print("{} reads of busy waiting were left out\n", summary.facts.spins);
  if (summary.facts.dropped != 0) {
    fmt::print("{} references of signal handlers could not be recorded\n", summary.facts.dropped);
  }
  if (options.single_step) {
    fmt::print("{} instructions were stepped through; references inside system calls are not seen\n",
               summary.instructions);
    if (summary.gathers != 0)
      fmt::print("{} of them gather or scatter; what these refer to is not in the trace\n", summary.gathers);
  }
  if (dilation > 0) {
    fmt::print("dilation: {:.1f} ({:.3f} s recorded, {:.3f} s {})\n", dilation, summary.run.seconds,
               summary.baseline_seconds, summary.baseline);
  } else {
    fmt::print("dilation: not measured ({:.3f} s recorded)\n", summary.run.seconds);
  }
}

// What is to be said of a run that did not end as it should.
void warn(const RecordArguments& options, const std::string& program, const Summary& summary) {
  if (!summary.facts.stopped.empty()) {
    fmt::print(stderr, "mgtrace: recording stopped before the program did, because {}; '{}' holds what precedes\n",
               summary.facts.stopped, options.output);
  }
  if (summary.run.signal != 0) {
    fmt::print(stderr, "mgtrace: '{}' was ended by signal {} ({}); '{}' holds what precedes\n", program,
               summary.run.signal, strsignal(summary.run.signal), options.output);
  }
}

Result<int> record_compiled(const RecordArguments& options, const std::vector<std::string>& command) {
  RecordOptions record;
  if (!options.sample.empty()) {
    const auto bursts = parse_sampling(options.sample);
    if (!bursts) return tl::unexpected(bursts.error());
    record.bursts = *bursts;
  }
  record.command = command;
  record.max_references = options.limit;
  record.scratch_directory = options.scratch;
  record.baseline = options.baseline;
  auto recording = record_program(record);
  if (!recording) return tl::unexpected(recording.error());
  MergedTrace& trace = *recording->trace;
  auto writer =
      TraceWriter::create(options.output, trace.header(), {.overwrite = options.overwrite, .level = options.level});
  if (!writer) return tl::unexpected(writer.error());
  {
    Progress progress("merging", "references", trace.capacity());
    for (;;) {
      auto batch = trace.next();
      if (!batch) return tl::unexpected(batch.error());
      if (batch->references.empty() && batch->events.empty()) break;
      if (const TraceHeader& header = trace.header(); header.sites.size() != (*writer)->header().sites.size() ||
                                                      header.names.size() != (*writer)->header().names.size())
        (*writer)->update_header(header);
      if (auto status = (*writer)->append(*batch); !status) return tl::unexpected(status.error());
      progress.update(batch->first);
    }
  }
  Summary summary;
  summary.references = (*writer)->references();
  if (auto status = (*writer)->finish(); !status) return tl::unexpected(status.error());
  summary.file_bytes = (*writer)->bytes();
  summary.run = recording->run;
  summary.facts = trace.facts();
  summary.sampling = trace.header().sampling;
  summary.processors = trace.header().processors;
  if (!record.baseline.empty()) {
    summary.baseline_seconds = recording->baseline.seconds;
    std::error_code ignored;
    const bool is_itself =
        record.baseline == command.front() || std::filesystem::equivalent(record.baseline, command.front(), ignored);
    summary.baseline = is_itself ? "instrumented, with recording off" : "without instrumentation";
  }
  print(options, summary);
  warn(options, command.front(), summary);
  return summary.run.exit_status != 0 ? summary.run.exit_status : (summary.facts.stopped.empty() ? 0 : 1);
}

Result<int> record_stepped(const RecordArguments& options, const std::vector<std::string>& command) {
  Summary summary;
  if (!options.baseline.empty()) {
    std::vector<std::string> untraced = command;
    untraced.front() = options.baseline;
    auto run = run_command(untraced, true);
    if (!run) return tl::unexpected(run.error());
    summary.baseline_seconds = run->seconds;
    summary.baseline = "without tracing";
  }
  TraceHeader header;
  header.program = fmt::format("{}", fmt::join(command, " "));
  header.recorder = "mgtrace record --single-step";
  header.sites.emplace_back();
  header.names.emplace_back();
  auto writer = TraceWriter::create(options.output, header, {.overwrite = options.overwrite, .level = options.level});
  if (!writer) return tl::unexpected(writer.error());
  Progress progress("stepping", "references", options.limit);
  auto stepped = single_step(command, {.max_references = options.limit}, **writer,
                             [&](uint64_t references) { progress.update(references); });
  if (!stepped) return tl::unexpected(stepped.error());
  summary.run = stepped->run;
  summary.facts = stepped->facts;
  summary.instructions = stepped->instructions;
  summary.gathers = stepped->gathers;
  summary.processors = stepped->processors;
  if (summary.baseline_seconds > 0) (*writer)->set_dilation(stepped->run.seconds / summary.baseline_seconds);
  summary.references = (*writer)->references();
  if (auto status = (*writer)->finish(); !status) return tl::unexpected(status.error());
  summary.file_bytes = (*writer)->bytes();
  print(options, summary);
  warn(options, command.front(), summary);
  return summary.run.exit_status != 0 ? summary.run.exit_status : (summary.facts.stopped.empty() ? 0 : 1);
}

}  // namespace

Result<int> record_trace(RecordArguments options, const std::vector<std::string>& command) {
  // Before the program runs, not after.
  if (!options.overwrite && std::filesystem::exists(options.output))
    return fail("{} exists; give --force to replace it", options.output);
  if (options.single_step && !options.sample.empty()) {
    return fail(
        "--sample is for programs that 'mgtrace cc' has built; --single-step stops at each instruction, recorded or not");
  }
  if (options.scratch.empty()) {
    options.scratch = std::filesystem::path(options.output).parent_path().string();
    if (options.scratch.empty()) options.scratch = ".";
  }
  return options.single_step ? record_stepped(options, command) : record_compiled(options, command);
}

void add_sample_option(CLI::App& command, RecordArguments& options) {
  command
      .add_option("--sample", options.sample,
                  "Record bursts: of each INTERVAL of a processor's references BURST that follow each other, all "
                  "processors at a time")
      ->type_name("BURST/INTERVAL");
}

Command add_record(CLI::App& app) {
  CLI::App* const sub = app.add_subcommand(
      "record", "Run a program and write the trace of its references: mgtrace record [OPTIONS] PROGRAM [ARGUMENTS...]");
  const auto options = std::make_shared<RecordArguments>();
  sub->add_option("-o,--output", options->output, "The trace to write")->capture_default_str();
  sub->add_flag("-f,--force", options->overwrite, "Replace the trace if it exists");
  sub->add_flag("--single-step", options->single_step,
                "Record an unmodified program, instruction by instruction: thousands of times slower");
  sub->add_option(
         "--baseline", options->baseline,
         "To measure dilation, run this first, with the same arguments and without input and output: a build of "
         "PROGRAM without instrumentation, or PROGRAM itself")
      ->type_name("PROGRAM");
  sub->add_option("--limit", options->limit, "Stop recording after about so many references");
  add_sample_option(*sub, *options);
  sub->add_option(
      "--scratch", options->scratch,
      "Folder for the recording (up to 16 bytes a reference) while the program runs; the output's by default");
  sub->add_option("--level", options->level, "Compression, 1 to 19")->check(CLI::Range(1, 19))->capture_default_str();
  sub->add_flag("--json", options->json, "Print the summary as JSON");
  sub->prefix_command();
  return {sub, [sub, options]() -> Result<int> {
            const std::vector<std::string> command = sub->remaining();
            if (command.empty())
              return fail("there is no program to record: mgtrace record [OPTIONS] PROGRAM [ARGUMENTS...]");
            if (command.front().starts_with("-")) return fail("there is no option '{}'", command.front());
            return record_trace(*options, command);
          }};
}

}  // namespace multigrain::trace::tool
