#include "analysis_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "progress.h"
#include "trace/analysis/study.h"
#include "trace/format/trace_file.h"

namespace multigrain::trace::tool {
namespace {

using nlohmann::json;

// "4096", "4K", "4KiB", "2M", "2MiB".
Result<uint64_t> read_block_size(std::string_view text) {
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (unit == "K" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (error != std::errc() || (shift == 0 && !unit.empty()) || bytes > Machine::kMaxBlockSize)
    return fail("'{}' is no block size: give bytes, or a number with K or M, such as 4K", text);
  bytes <<= shift;
  if (!std::has_single_bit(bytes) || bytes < Machine::kMinBlockSize || bytes > Machine::kMaxBlockSize)
    return fail("blocks of {} bytes cannot be: a block size is a power of two from {} to {}", text,
                Machine::kMinBlockSize, Machine::kMaxBlockSize);
  return bytes;
}

Result<StudyOptions> study_options(const AnalysisOptions& options) {
  StudyOptions study;
  if (options.all_machines) {
    study.machines = known_machines();
  } else if (options.machines.empty()) {
    study.machines = default_machines();
  }
  for (const std::string& name : options.machines) {
    auto machine = find_machine(name);
    if (!machine) return tl::unexpected(machine.error());
    study.machines.push_back(*machine);
  }
  for (const std::string& text : options.block_sizes) {
    auto bytes = read_block_size(text);
    if (!bytes) return tl::unexpected(bytes.error());
    study.block_sizes.push_back(*bytes);
  }
  if (options.block_sizes.empty()) {
    for (uint64_t bytes = 32; bytes <= 8192; bytes *= 2) study.block_sizes.push_back(bytes);
    study.block_sizes.push_back(uint64_t{64} << 10);
    study.block_sizes.push_back(uint64_t{2} << 20);
  }
  std::ranges::sort(study.block_sizes);
  const auto twice = std::ranges::unique(study.block_sizes);
  study.block_sizes.erase(twice.begin(), twice.end());
  if (options.word_bytes > study.block_sizes.front())
    return fail("words of {} bytes do not fit into blocks of {}; leave such blocks out or give a smaller --word",
                options.word_bytes, study.block_sizes.front());
  auto attribution = read_block_size(options.attribution_block_size);
  if (!attribution) return tl::unexpected(attribution.error());
  if (*attribution < options.word_bytes)
    return fail("words of {} bytes do not fit into blocks of {}", options.word_bytes, *attribution);
  study.attribution_block_size = *attribution;
  for (const std::string& text : options.tlbs) {
    if (text == "all") {
      std::ranges::copy(tlb_designs(), std::back_inserter(study.tlbs));
      continue;
    }
    auto design = parse_tlb_design(text);
    if (!design) return tl::unexpected(design.error());
    study.tlbs.push_back(*design);
  }
  study.policies = options.policies;
  study.parameters = options.parameters;
  study.false_sharing = options.false_sharing;
  study.word_bytes = options.word_bytes;
  study.merge_ratio = options.merge_ratio;
  study.perturbations = options.perturb;
  study.seed = options.seed;
  study.hot_blocks = options.hot_blocks;
  study.map = options.map;
  study.variable_blocks = options.variable_blocks;
  study.contention = options.contention;
  auto line = read_block_size(options.cache_line);
  if (!line) return tl::unexpected(line.error());
  auto caches = parse_caches(options.caches, *line);
  if (!caches) return tl::unexpected(caches.error());
  study.caches = *caches;
  study.threads = options.threads;
  return study;
}

// This process's command line, as a shell takes it.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text;
  bool first = true;
  for (std::string argument; std::getline(file, argument, '\0'); first = false) {
    if (first) argument = "mgtrace";
    constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./,:@%";
    if (argument.empty() || argument.find_first_not_of(kPlain) != std::string::npos) {
      std::string quoted = "'";
      for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      argument = quoted + "'";
    }
    text += (first ? "" : " ") + argument;
  }
  return text;
}

}  // namespace

void add_map_option(CLI::App& command, std::string& map) {
  command
      .add_option("--map", map,
                  "where threads run, as THREADS:NODE or THREADS:NODE.CORE, such as 0-3:0,4-7:1; or block:NODES, or "
                  "cyclic:NODES, or block:NODESxCORES; default: each thread is a core and a node")
      ->type_name("MAP")
      ->check([](const std::string& text) { return text.empty() ? std::string("an empty map says nothing") : ""; });
}

void add_caches_option(CLI::App& command, std::string& caches, const char* otherwise) {
  command
      .add_option(
          "--caches", caches,
          fmt::format("caches in front of the memories, as SIZE:WAYS,...,shared:SIZE:WAYS; or today ({}), or none; "
                      "default: {}",
                      kCachesOfToday, otherwise))
      ->type_name("CACHES");
}

void add_analysis_options(CLI::App& command, AnalysisOptions& options) {
  CLI::Option* const machine =
      command.add_option("--machine", options.machines,
                         "a machine's name, or a .json file; default: cache-lines and two-socket, which are of today");
  machine->delimiter(',')->type_name("NAME");
  command.add_flag("--all-machines", options.all_machines, "all machines known by name")->excludes(machine);
  add_map_option(command, options.map);
  add_caches_option(command, options.caches, "none");
  command.add_option("--cache-line", options.cache_line, "bytes of a line of these caches; default 64")
      ->type_name("BYTES");
  command.add_option("--block-size", options.block_sizes, "sizes of the sweep; default 32 to 8K, 64K, 2M")
      ->delimiter(',')
      ->type_name("BYTES");
  command
      .add_option(
          "--policy", options.policies,
          "policies to compare with optimal placement, or all; with parameters as in platinum:t1=2500:t2=250000")
      ->delimiter(',')
      ->type_name("NAME");
  command.add_option("--vary", options.parameters, "sweep parameters of the machines: R, r, G, g, o_s")
      ->delimiter(',')
      ->type_name("NAME");
  command.add_flag("--false-sharing", options.false_sharing, "how much of the cost it is, and which data cause it");
  command
      .add_option("--attribute-at", options.attribution_block_size,
                  "block size for that; default 64, a cache line of today")
      ->type_name("BYTES");
  command.add_option("--word", options.word_bytes, "bytes of a word for that; default 4")
      ->check(CLI::IsMember({1u, 2u, 4u, 8u, 16u}))
      ->type_name("BYTES");
  command.add_option("--merge-cost", options.merge_ratio, "of a copy, in block moves, for its intervals; default 1")
      ->check(CLI::NonNegativeNumber)
      ->type_name("M");
  command.add_flag("--variable-blocks", options.variable_blocks,
                   "the best of the block sizes for each allocation, and what that would save");
  command.add_flag("--contention", options.contention,
                   "a price for waiting where several processors want one memory, by a queueing model");
  command.add_option("--tlb", options.tlbs, "TLBs to simulate: a name, SETSxWAYS[@MISS_COST], or all")
      ->delimiter(',')
      ->type_name("TLB");
  command.add_option("--perturb", options.perturb, "repeat with N local and N gap perturbations, and print the spread")
      ->check(CLI::Range(0, 100))
      ->type_name("N");
  command.add_option("--seed", options.seed, "of the perturbations; default 1")->type_name("N");
  command.add_option("--hot-blocks", options.hot_blocks, "how many blocks to list for each machine; default 10")
      ->check(CLI::Range(0, 10000))
      ->type_name("N");
  command.add_flag("--partial", options.partial, "analyze what precedes the damage of a damaged trace");
  command.add_option("--threads", options.threads, "that compute optimal placements; default 1")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
}

Result<json> analyze_trace(const AnalysisOptions& options) {
  auto study = study_options(options);
  if (!study) return tl::unexpected(study.error());
  // One reader tells how long the trace is, so that the bar can tell how much is left.
  const ReadOptions read{.threads = 1, .allow_partial = options.partial};
  auto first = TraceFile::open(options.input, read);
  if (!first) return tl::unexpected(first.error());
  const uint64_t references = (*first)->references();
  first->reset();
  std::string damage;
  const OpenTrace open = [&]() -> Result<std::unique_ptr<TraceSource>> {
    auto file = TraceFile::open(options.input, read);
    if (!file) return tl::unexpected(file.error());
    if (!(*file)->damage().empty()) damage = (*file)->damage();
    return std::unique_ptr<TraceSource>(std::move(*file));
  };
  std::optional<Progress> progress;
  std::string pass;
  study->progress = [&](std::string_view name, uint64_t done) {
    if (!progress || pass != name) {
      pass = name;
      progress.reset();
      progress.emplace(pass, "references", references);
    }
    progress->update(done);
  };
  auto out = multigrain::trace::study(open, *study);
  progress.reset();
  if (!out) return tl::unexpected(out.error());
  (*out)["trace"]["file"] = options.input;
  (*out)["command"] = command_line();
  if (damage.empty()) return out;
  (*out)["trace"]["damage"] = damage;
  fmt::print(stderr, "mgtrace: {}: {}; what precedes it was analyzed\n", options.input, damage);
  return out;
}

}  // namespace multigrain::trace::tool
