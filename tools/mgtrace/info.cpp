// mgtrace info: what a trace is of, and how large.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "progress.h"
#include "trace/analysis/study_json.h"
#include "trace/format/trace_file.h"

namespace multigrain::trace::tool {
namespace {

struct InfoArguments {
  std::string input;
  bool full = false, json = false, blocks = false;
  unsigned threads = 1;
};

constexpr std::array<const char*, 8> kEventNames = {"private", "allocate", "free",  "acquire",
                                                    "release", "barrier",  "start", "end"};

// What only reading everything can tell.
struct Counts {
  struct Processor {
    uint64_t reads = 0, writes = 0, private_references = 0;
  };
  std::vector<Processor> processors;
  std::array<uint64_t, 8> events{};
  uint64_t lowest = ~uint64_t{0}, highest = 0;
  uint64_t runs = 0;
  // From the start of a second processor to the end of the last but one: of a recorded program, what its threads do
  // together, after one of them prepared it and before one looks at the result. Empty if no such events say so.
  uint64_t parallel_begin = 0, parallel_end = 0;
};

Result<Counts> count(TraceFile& file) {
  Counts counts;
  counts.processors.resize(file.header().processors);
  Progress progress("Reading", "references", file.references());
  unsigned last = ~0u;
  unsigned running = 0;
  bool begun = false;
  while (true) {
    const auto batch = file.next();
    if (!batch) return tl::unexpected<Error>(batch.error());
    if (batch->references.empty() && batch->events.empty()) break;
    for (const Reference& reference : batch->references) {
      Counts::Processor& processor = counts.processors[reference.processor];
      ++(reference.access == Access::kRead ? processor.reads : processor.writes);
      counts.lowest = std::min(counts.lowest, reference.address);
      counts.highest = std::max(counts.highest, reference.address + (reference.size - 1u));
      counts.runs += reference.processor != last;
      last = reference.processor;
    }
    for (const Event& event : batch->events) {
      ++counts.events[static_cast<size_t>(event.kind)];
      if (event.kind == EventKind::kPrivate) counts.processors[event.processor].private_references += event.value;
      if (event.kind == EventKind::kStart && ++running == 2 && !begun) {
        begun = true;
        counts.parallel_begin = counts.parallel_end = event.position;
      }
      if (event.kind == EventKind::kEnd && running > 0 && --running == 1 && begun) counts.parallel_end = event.position;
    }
    progress.update(batch->first + batch->references.size());
  }
  return counts;
}

void print_json(const TraceFile& file, const InfoArguments& options, const Counts* counts) {
  const TraceHeader& header = file.header();
  nlohmann::json out{{"version", 1},
                     {"format_version", file.version()},
                     {"program", header.program},
                     {"recorder", header.recorder},
                     {"dilation", header.dilation == 0 ? nlohmann::json() : nlohmann::json(header.dilation)},
                     {"processors", header.processors},
                     {"sampling", sampling_json(header.sampling)},
                     {"references", file.references()},
                     {"events", file.events()},
                     {"sites", header.sites.size() - 1},
                     {"names", header.names.size() - 1},
                     {"bytes", file.file_bytes()},
                     {"blocks", file.blocks().size()},
                     {"damage", file.damage().empty() ? nlohmann::json() : nlohmann::json(file.damage())}};
  if (options.blocks) {
    out["block_list"] = nlohmann::json::array();
    for (const BlockInfo& block : file.blocks())
      out["block_list"].push_back({{"number", block.number},
                                   {"offset", block.offset},
                                   {"first", block.first},
                                   {"references", block.references},
                                   {"events", block.events},
                                   {"bytes", block.compressed_bytes}});
  }
  if (counts != nullptr) {
    out["per_processor"] = nlohmann::json::array();
    for (const Counts::Processor& processor : counts->processors)
      out["per_processor"].push_back(
          {{"reads", processor.reads}, {"writes", processor.writes}, {"private", processor.private_references}});
    for (size_t i = 0; i < kEventNames.size(); ++i) out["per_event"][kEventNames[i]] = counts->events[i];
    out["runs"] = counts->runs;
    if (counts->parallel_end > counts->parallel_begin)
      out["parallel"] = {{"begin", counts->parallel_begin}, {"end", counts->parallel_end}};
    else
      out["parallel"] = nullptr;
    if (file.references() != 0) {
      out["lowest_address"] = counts->lowest;
      out["highest_address"] = counts->highest;
    }
  }
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_text(const TraceFile& file, const InfoArguments& options, const Counts* counts) {
  const TraceHeader& header = file.header();
  const auto per_reference = [&file](uint64_t bytes) {
    return file.references() == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(file.references());
  };
  fmt::print("program      {}\n", header.program.empty() ? "not known" : header.program);
  fmt::print("recorder     {}\n", header.recorder.empty() ? "not known" : header.recorder);
  if (const Sampling& sampling = header.sampling; sampling.is_on())
    fmt::print("sampled      bursts of {} in each {} of a processor's references; one of {:.4g} is here\n",
               sampling.burst, sampling.interval, sampling.scale);
  if (header.dilation != 0) fmt::print("dilation     {:.1f} times the untraced run\n", header.dilation);
  fmt::print("processors   {}\n", header.processors);
  fmt::print("references   {}\n", file.references());
  fmt::print("events       {}\n", file.events());
  fmt::print("sites        {}\n", header.sites.size() - 1);
  fmt::print("allocations  {} names\n", header.names.size() - 1);
  fmt::print("file         {} bytes in {} blocks, {:.3f} bytes a reference; format version {}\n", file.file_bytes(),
             file.blocks().size(), per_reference(file.file_bytes()), file.version());
  if (!file.damage().empty()) fmt::print("damage       {}\n", file.damage());
  if (counts != nullptr) {
    if (file.references() != 0) {
      fmt::print("addresses    {:#x} to {:#x}\n", counts->lowest, counts->highest);
      fmt::print("runs         {}, of {:.1f} references of one processor\n", counts->runs,
                 static_cast<double>(file.references()) / static_cast<double>(counts->runs));
    }
    if (counts->parallel_end > counts->parallel_begin)
      fmt::print("parallel     references {} to {}: mgtrace filter --references {}-{}\n", counts->parallel_begin,
                 counts->parallel_end, counts->parallel_begin, counts->parallel_end);
    fmt::print("\n{:>9} {:>14} {:>14} {:>8} {:>14}\n", "processor", "reads", "writes", "reads %", "private");
    for (size_t i = 0; i < counts->processors.size(); ++i) {
      const Counts::Processor& processor = counts->processors[i];
      const uint64_t all = processor.reads + processor.writes;
      fmt::print("{:>9} {:>14} {:>14} {:>8.1f} {:>14}\n", i, processor.reads, processor.writes,
                 all == 0 ? 0 : 100 * static_cast<double>(processor.reads) / static_cast<double>(all),
                 processor.private_references);
    }
    for (size_t i = 0; i < kEventNames.size(); ++i)
      if (counts->events[i] != 0) fmt::print("{:>9} {:>14}\n", kEventNames[i], counts->events[i]);
  }
  if (options.blocks) {
    fmt::print("\n{:>6} {:>14} {:>14} {:>10} {:>10} {:>10}\n", "block", "at byte", "first", "references", "events",
               "bytes");
    for (const BlockInfo& block : file.blocks())
      fmt::print("{:>6} {:>14} {:>14} {:>10} {:>10} {:>10}\n", block.number, block.offset, block.first,
                 block.references, block.events, block.compressed_bytes);
  }
}

Result<int> run_info(const InfoArguments& options) {
  // A damaged trace is described as far as it goes; the exit status tells.
  auto file = TraceFile::open(options.input, {.threads = options.threads, .allow_partial = true});
  if (!file) return tl::unexpected<Error>(file.error());
  std::optional<Counts> counts;
  if (options.full) {
    auto counted = count(**file);
    if (!counted) return tl::unexpected<Error>(counted.error());
    counts = std::move(*counted);
  }
  if (options.json)
    print_json(**file, options, counts ? &*counts : nullptr);
  else
    print_text(**file, options, counts ? &*counts : nullptr);
  if ((*file)->damage().empty()) return 0;
  return fail("{}: {}", options.input, (*file)->damage());
}

}  // namespace

Command add_info(CLI::App& app) {
  auto options = std::make_shared<InfoArguments>();
  CLI::App* const command = app.add_subcommand("info", "say what a trace is of and how large it is");
  command->add_option("trace", options->input, "the trace")->required()->type_name("TRACE");
  command->add_flag("--full", options->full, "read all of it: check every block, count by processor and event");
  command->add_flag("--blocks", options->blocks, "list the blocks");
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("--threads", options->threads, "that decode ahead; default 1")
      ->type_name("N")
      ->check(CLI::Range(0, 256));
  return {command, [options] { return run_info(*options); }};
}

}  // namespace multigrain::trace::tool
