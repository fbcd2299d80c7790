// mgbench trace measures what it costs on this machine to write a trace, to read it and to analyse it.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "commands.h"
#include "trace/format/trace_file.h"
#include "trace/format/trace_writer.h"
#include "trace/model/optimal.h"
#include "trace_kernels.h"

namespace multigrain::bench {
namespace {

using trace::TraceFile;
using trace::TraceWriter;

struct TraceOptions {
  uint64_t references = 200'000'000;
  unsigned processors = 8, longest_run = 16, threads = 1, repeats = 1;
  int level = 3;
  std::string input, directory;
  bool json = false, by_kernel = false, placement = true;
};

struct Measurement {
  std::string name;
  uint64_t references = 0;
  double bytes_per_reference = 0;
  double write_per_us = 0;         // references a microsecond, which is million a second
  double decode_per_us = 0;        // by one thread's processor time
  double decode_ahead_per_us = 0;  // by the clock, with threads that decode ahead
};

// A measurement of optimal placement. One thread reads the file and computes; for the last two figures two threads do.
struct PlacementMeasurement {
  std::string name;
  size_t machines = 1;
  double per_us = 0;         // by processor time, reading included
  double mcpr = 0;           // the first machine's MCPR
  double bytes_a_block = 0;  // for the machine that needs the most
  double limit = 0;          // 64, and 8 for each processor
  double clock_per_us = 0;   // by the clock, one thread
  double two_per_us = 0;     // by the clock, two threads; 0: not measured
  // The rate that two threads would reach on two idle cores, computed from their common processor time as if it were
  // split evenly. It is a better estimate than the clock's if other processes use the cores.
  double two_even_per_us = 0;
};

// A temporary file, which the destructor removes.
class Scratch {
 public:
  explicit Scratch(const std::string& directory) {
    std::string name = (std::filesystem::path(directory) / "mgbench-trace-XXXXXX").string();
    const int fd = mkstemp(name.data());
    if (fd >= 0) {
      close(fd);
      path_ = name;
    }
  }
  ~Scratch() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Returns the processor time of this thread, which does not depend on other processes that use the core.
Nanoseconds thread_ns() {
  return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

// Returns the processor time of all threads of the process.
Nanoseconds process_ns() {
  return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

double per_us(uint64_t count, Nanoseconds ns) {
  return ns == 0 ? 0 : static_cast<double>(count) * 1000 / static_cast<double>(ns);
}

// Reads a whole trace as an analysis does. The sum keeps the compiler from leaving the work out.
Result<double> decode_rate(const std::string& path, unsigned threads) {
  auto file = TraceFile::open(path, {.threads = threads});
  if (!file) return tl::unexpected<Error>(file.error());
  const auto clock = threads == 0 ? thread_ns : monotonic_ns;
  const Nanoseconds start = clock();
  uint64_t sum = 0, count = 0;
  while (true) {
    const auto batch = (*file)->next();
    if (!batch) return tl::unexpected<Error>(batch.error());
    if (batch->references.empty() && batch->events.empty()) break;
    count += batch->references.size();
    for (size_t i = 0; i < batch->references.size(); i += 64) sum += batch->references[i].address;
  }
  const Nanoseconds end = clock();
  if (count != (*file)->references() || (sum == 0 && count > 0)) return fail("{} lost references", path);
  return per_us(count, end - start);
}

Status measure_file(const std::string& path, const TraceOptions& options, Measurement& result) {
  auto file = TraceFile::open(path);
  if (!file) return tl::unexpected<Error>(file.error());
  result.references = (*file)->references();
  result.bytes_per_reference =
      static_cast<double>((*file)->file_bytes()) / static_cast<double>(std::max<uint64_t>(1, result.references));
  for (unsigned i = 0; i < options.repeats; ++i) {
    const auto here = decode_rate(path, 0);
    if (!here) return tl::unexpected<Error>(here.error());
    result.decode_per_us = std::max(result.decode_per_us, *here);
    const auto ahead = decode_rate(path, options.threads);
    if (!ahead) return tl::unexpected<Error>(ahead.error());
    result.decode_ahead_per_us = std::max(result.decode_ahead_per_us, *ahead);
  }
  return {};
}

struct PlacementRun {
  Nanoseconds processor = 0, clock = 0;
  std::vector<trace::OptimalResult> results;
};

Result<PlacementRun> run_placement(const std::string& path, const std::vector<trace::Machine>& machines,
                                   trace::OptimalOptions options, unsigned threads) {
  auto file = TraceFile::open(path);
  if (!file) return tl::unexpected<Error>(file.error());
  options.threads = threads;
  const Nanoseconds start = monotonic_ns(), processor = process_ns();
  auto results = trace::optimal(**file, machines, options);
  if (!results) return tl::unexpected<Error>(results.error());
  return PlacementRun{
      .processor = process_ns() - processor, .clock = monotonic_ns() - start, .results = std::move(*results)};
}

Result<std::vector<PlacementMeasurement>> measure_placement(const std::string& path) {
  using trace::Machine;
  struct Case {
    const char* name;
    std::vector<Machine> machines;
    trace::OptimalOptions options;
    bool sweep = false;
  };
  const auto ace = trace::find_machine("ace");
  if (!ace) return tl::unexpected<Error>(ace.error());
  trace::OptimalOptions no_replication;
  no_replication.replication = false;
  Case sweep{.name = "5 machines x 9 block sizes", .machines = {}, .options = {}, .sweep = true};
  for (uint64_t bytes = 32; bytes <= 8192; bytes *= 2)
    for (const Machine& machine : trace::chapter6_machines()) sweep.machines.push_back(machine.with_block_size(bytes));
  const Case cases[] = {
      {.name = "numa, 4 KiB", .machines = {trace::numa_machine()}, .options = {}},
      {.name = "numa, 64 bytes", .machines = {trace::numa_machine(64)}, .options = {}},
      {.name = "numa, 4 KiB, no replication", .machines = {trace::numa_machine()}, .options = no_replication},
      {.name = "dsm, 4 KiB", .machines = {trace::dsm_machine()}, .options = {}},
      {.name = "ace, 4 KiB", .machines = {*ace}, .options = {}},
      sweep,
  };
  std::vector<PlacementMeasurement> measurements;
  for (const Case& each : cases) {
    const auto one = run_placement(path, each.machines, each.options, 1);
    if (!one) return tl::unexpected<Error>(one.error());
    const trace::OptimalResult& first = one->results.front();
    PlacementMeasurement m;
    m.name = each.name;
    m.machines = each.machines.size();
    m.per_us = per_us(first.references, one->processor);
    m.clock_per_us = per_us(first.references, one->clock);
    m.mcpr = first.mcpr;
    m.limit = 64 + 8 * static_cast<double>(first.machine.processors);
    for (const trace::OptimalResult& result : one->results)
      m.bytes_a_block = std::max(m.bytes_a_block, static_cast<double>(result.bytes) /
                                                      static_cast<double>(std::max<uint64_t>(1, result.blocks)));
    if (each.sweep) {
      const auto two = run_placement(path, each.machines, each.options, 2);
      if (!two) return tl::unexpected<Error>(two.error());
      for (size_t i = 0; i < one->results.size(); ++i)
        if (one->results[i].cost != two->results[i].cost)
          return fail("{}: one thread computes {}, two {}", each.name, one->results[i].cost, two->results[i].cost);
      m.two_per_us = per_us(first.references, two->clock);
      m.two_even_per_us = 2 * per_us(first.references, two->processor);
    }
    measurements.push_back(m);
  }
  return measurements;
}

struct Measurements {
  std::vector<Measurement> traces;
  std::vector<PlacementMeasurement> placements;  // for the last trace
};

// Runs a kernel, or all of them in turn, writes the references and reads them back.
Result<Measurement> measure_kernels(const trace::bench::Kernel* kernel, uint64_t references,
                                    const TraceOptions& options, std::vector<PlacementMeasurement>* placements) {
  const Scratch scratch(options.directory);
  if (scratch.path().empty()) return fail("cannot create a file in {}; choose another --directory", options.directory);
  auto writer = TraceWriter::create(scratch.path(), trace::bench::kernel_header(options.processors),
                                    {.overwrite = true, .level = options.level});
  if (!writer) return tl::unexpected<Error>(writer.error());
  Nanoseconds writing = 0;
  Status status;
  trace::bench::KernelTrace run(options.processors, options.longest_run, 1, [&](auto some) {
    const Nanoseconds start = thread_ns();
    if (status) status = (*writer)->append(some);
    writing += thread_ns() - start;
  });
  if (kernel == nullptr)
    trace::bench::run_kernels(run, references);
  else
    while (run.references() < references && status) kernel->run(run);
  const Nanoseconds start = thread_ns();
  if (status) status = (*writer)->finish();
  writing += thread_ns() - start;
  if (!status) return tl::unexpected<Error>(status.error());
  Measurement result;
  result.name = kernel == nullptr ? "all kernels" : kernel->name;
  result.write_per_us = per_us(run.references(), writing);
  if (status = measure_file(scratch.path(), options, result); !status) return tl::unexpected<Error>(status.error());
  if (placements != nullptr) {
    auto placed = measure_placement(scratch.path());
    if (!placed) return tl::unexpected<Error>(placed.error());
    *placements = std::move(*placed);
  }
  return result;
}

Result<Measurements> measure_kernels(const TraceOptions& options) {
  Measurements results;
  if (!options.input.empty()) {
    Measurement result;
    result.name = options.input;
    if (Status status = measure_file(options.input, options, result); !status)
      return tl::unexpected<Error>(status.error());
    results.traces.push_back(result);
    if (options.placement) {
      auto placed = measure_placement(options.input);
      if (!placed) return tl::unexpected<Error>(placed.error());
      results.placements = std::move(*placed);
    }
    return results;
  }
  const auto add = [&](const trace::bench::Kernel* kernel, uint64_t references) -> Status {
    auto* const placements = options.placement && kernel == nullptr ? &results.placements : nullptr;
    auto result = measure_kernels(kernel, references, options, placements);
    if (!result) return tl::unexpected<Error>(result.error());
    results.traces.push_back(*result);
    return {};
  };
  if (options.by_kernel)
    for (const auto& kernel : trace::bench::kernels())
      if (Status status = add(&kernel, options.references / trace::bench::kernels().size()); !status)
        return tl::unexpected<Error>(status.error());
  if (Status status = add(nullptr, options.references); !status) return tl::unexpected<Error>(status.error());
  return results;
}

void print_json(const Measurements& results) {
  nlohmann::json out{{"version", 1}, {"traces", nlohmann::json::array()}};
  for (const Measurement& m : results.traces)
    out["traces"].push_back({{"name", m.name},
                             {"references", m.references},
                             {"bytes_per_reference", m.bytes_per_reference},
                             {"write_per_us", m.write_per_us == 0 ? nlohmann::json() : nlohmann::json(m.write_per_us)},
                             {"decode_per_us", m.decode_per_us},
                             {"decode_ahead_per_us", m.decode_ahead_per_us}});
  out["placements"] = nlohmann::json::array();
  for (const PlacementMeasurement& m : results.placements) {
    const auto or_null = [](double value) { return value == 0 ? nlohmann::json() : nlohmann::json(value); };
    out["placements"].push_back({{"name", m.name},
                                 {"machines", m.machines},
                                 {"per_us", m.per_us},
                                 {"clock_per_us", m.clock_per_us},
                                 {"two_threads_clock_per_us", or_null(m.two_per_us)},
                                 {"two_threads_even_per_us", or_null(m.two_even_per_us)},
                                 {"mcpr", m.mcpr},
                                 {"bytes_a_block", m.bytes_a_block},
                                 {"bytes_a_block_limit", m.limit}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_text(const Measurements& results) {
  fmt::print("{:<24} {:>12} {:>10} {:>10} {:>10} {:>12}\n", "", "references", "bytes each", "write M/s", "decode M/s",
             "ahead M/s");
  for (const Measurement& m : results.traces)
    fmt::print("{:<24} {:>12} {:>10.3f} {:>10} {:>10.0f} {:>12.0f}\n", m.name, m.references, m.bytes_per_reference,
               m.write_per_us == 0 ? "" : fmt::format("{:.0f}", m.write_per_us), m.decode_per_us,
               m.decode_ahead_per_us);
  if (results.placements.empty()) return;
  fmt::print("\nOptimal placement, reading included; memory a touched block and machine\n\n");
  fmt::print("{:<28} {:>8} {:>12} {:>12} {:>8}\n", "", "M/s", "M/s by clock", "bytes/block", "limit");
  for (const PlacementMeasurement& m : results.placements)
    fmt::print("{:<28} {:>8.2f} {:>12.2f} {:>12.0f} {:>8.0f}\n", m.name, m.per_us, m.clock_per_us, m.bytes_a_block,
               m.limit);
  for (const PlacementMeasurement& m : results.placements)
    if (m.two_per_us > 0)
      fmt::print("{}, two threads: {:.2f} M/s by the clock, {:.2f} times one; by processor time {:.2f} times\n", m.name,
                 m.two_per_us, m.two_per_us / m.clock_per_us, m.two_even_per_us / m.per_us);
}

int measure_and_print(const TraceOptions& options) {
  const auto results = measure_kernels(options);
  if (!results) {
    fmt::print(stderr, "mgbench trace: {}\n", results.error().message);
    return 2;
  }
  if (options.json)
    print_json(*results);
  else
    print_text(*results);
  return 0;
}

}  // namespace

Command add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  options->directory = std::filesystem::temp_directory_path();
  CLI::App* const command = app.add_subcommand("trace", "what writing, reading and analysing a trace costs");
  command->footer(
      "Writes the references of small parallel programs to a file, reads them back, and computes optimal placements of "
      "them, in million references a second of processor time; where threads work together, by the clock, too.");
  command->add_option("--references", options->references, "of the trace; default 200000000")
      ->check(CLI::Range(uint64_t{1}, uint64_t{100'000'000'000}));
  command->add_option("--processors", options->processors, "default 8")->check(CLI::Range(1, 1024));
  command
      ->add_option("--longest-run", options->longest_run, "references of one processor in a row, at most; default 16")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--level", options->level, "compression; default 3")->check(CLI::Range(1, 19));
  command->add_option("--threads", options->threads, "that decode ahead in the second figure; default 1")
      ->check(CLI::Range(1, 256));
  command->add_option("--repeats", options->repeats, "the best of so many; default 1")->check(CLI::Range(1, 1000));
  command->add_option("--input", options->input, "measure this trace instead");
  command->add_option("--directory", options->directory, "where the trace is written, and removed again");
  command->add_flag("--by-kernel", options->by_kernel, "each program by itself, too");
  command->add_flag("!--no-placement", options->placement, "the format only");
  command->add_flag("--json", options->json, "print JSON");
  return {command, [options] { return measure_and_print(*options); }};
}

}  // namespace multigrain::bench
