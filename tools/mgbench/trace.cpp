#include "trace.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "trace/format/trace_file.h"
#include "trace/format/trace_writer.h"
#include "trace_kernels.h"

namespace multigrain::bench {
namespace {

using trace::TraceFile;
using trace::TraceWriter;

struct Options {
  uint64_t references = 200'000'000;
  unsigned processors = 8, longest_run = 16, threads = 1, repeats = 1;
  int level = 3;
  std::string input, directory;
  bool json = false, by_kernel = false;
};

struct Measurement {
  std::string name;
  uint64_t references = 0;
  double bytes_per_reference = 0;
  double write_per_us = 0;         // references a microsecond: million a second
  double decode_per_us = 0;        // by one thread's processor time
  double decode_ahead_per_us = 0;  // by the clock, with threads that decode ahead
};

// A file that disappears.
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

// Time that this thread computed: what one core does, whoever else uses it.
Nanoseconds thread_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

double per_us(uint64_t count, Nanoseconds ns) {
  return ns == 0 ? 0 : static_cast<double>(count) * 1000 / static_cast<double>(ns);
}

// Reads all of a trace as an analysis does; the sum keeps the compiler from leaving the work out.
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

Status measure_file(const std::string& path, const Options& options, Measurement& result) {
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

// Runs a kernel, or all of them in turn, writes the references and reads them back.
Result<Measurement> measure_kernels(const trace::bench::Kernel* kernel, uint64_t references, const Options& options) {
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
  return result;
}

Result<std::vector<Measurement>> measure(const Options& options) {
  std::vector<Measurement> results;
  if (!options.input.empty()) {
    Measurement result;
    result.name = options.input;
    if (Status status = measure_file(options.input, options, result); !status)
      return tl::unexpected<Error>(status.error());
    results.push_back(result);
    return results;
  }
  const auto add = [&](const trace::bench::Kernel* kernel, uint64_t references) -> Status {
    auto result = measure_kernels(kernel, references, options);
    if (!result) return tl::unexpected<Error>(result.error());
    results.push_back(*result);
    return {};
  };
  if (options.by_kernel)
    for (const auto& kernel : trace::bench::kernels())
      if (Status status = add(&kernel, options.references / trace::bench::kernels().size()); !status)
        return tl::unexpected<Error>(status.error());
  if (Status status = add(nullptr, options.references); !status) return tl::unexpected<Error>(status.error());
  return results;
}

}  // namespace

int measure_traces(int argc, char** argv) {
  Options options;
  options.directory = std::filesystem::temp_directory_path();
  CLI::App app{
      "Measures the trace format: writes the references of small parallel programs to a file and reads them back, in "
      "million references a second of one thread's processor time; and with threads that decode ahead, by the clock."};
  app.name("mgbench trace");
  app.add_option("--references", options.references, "of the trace; default 200000000")
      ->check(CLI::Range(uint64_t{1}, uint64_t{100'000'000'000}));
  app.add_option("--processors", options.processors, "default 8")->check(CLI::Range(1, 1024));
  app.add_option("--longest-run", options.longest_run, "references of one processor in a row, at most; default 16")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--level", options.level, "compression; default 3")->check(CLI::Range(1, 19));
  app.add_option("--threads", options.threads, "that decode ahead in the second figure; default 1")
      ->check(CLI::Range(1, 256));
  app.add_option("--repeats", options.repeats, "the best of so many; default 1")->check(CLI::Range(1, 1000));
  app.add_option("--input", options.input, "measure this trace instead");
  app.add_option("--directory", options.directory, "where the trace is written, and removed again");
  app.add_flag("--by-kernel", options.by_kernel, "each program by itself, too");
  app.add_flag("--json", options.json, "print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "mgbench trace: {}\n", error.what());
    return 2;
  }
  const auto results = measure(options);
  if (!results) {
    fmt::print(stderr, "mgbench trace: {}\n", results.error().message);
    return 2;
  }
  if (options.json) {
    nlohmann::json out{{"version", 1}, {"traces", nlohmann::json::array()}};
    for (const Measurement& m : *results)
      out["traces"].push_back(
          {{"name", m.name},
           {"references", m.references},
           {"bytes_per_reference", m.bytes_per_reference},
           {"write_per_us", m.write_per_us == 0 ? nlohmann::json() : nlohmann::json(m.write_per_us)},
           {"decode_per_us", m.decode_per_us},
           {"decode_ahead_per_us", m.decode_ahead_per_us}});
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("{:<24} {:>12} {:>10} {:>10} {:>10} {:>12}\n", "", "references", "bytes each", "write M/s", "decode M/s",
             "ahead M/s");
  for (const Measurement& m : *results)
    fmt::print("{:<24} {:>12} {:>10.3f} {:>10} {:>10.0f} {:>12.0f}\n", m.name, m.references, m.bytes_per_reference,
               m.write_per_us == 0 ? "" : fmt::format("{:.0f}", m.write_per_us), m.decode_per_us,
               m.decode_ahead_per_us);
  return 0;
}

}  // namespace multigrain::bench
