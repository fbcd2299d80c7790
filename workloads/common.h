// What the workloads have in common: their command line, their report, and memory that is there or ends the run.
//
// Every workload is one file that a SPLASH programmer can read from top to bottom: globals that main() writes before it
// starts the other processors and nobody afterwards, a slave function that every processor runs, data in shared memory
// partitioned by processor number. main() runs the sequential version, on plain private memory and after the parallel
// one, so that its heap is not copied to the other nodes.
#pragma once

#include <multigrain/multigrain.h>

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "command_line.h"

namespace workloads {

// Exit statuses: 0, 1 when a check failed, kBadUsage.
inline constexpr int kCheckFailed = 1;

enum class Size { kTest, kPaper, kLarge };

struct Options {
  Size size = Size::kTest;
  unsigned iterations = 0;  // 0: what the size says
  uint64_t seed = 1;
  bool check = false;
  bool speedup = false;
};

// --variant, for a workload that has, beside the original version, transformed ones ([MGS], Table 4): `names`.
inline void add_variants(CommandLine& app, std::string& variant, const std::vector<std::string>& names) {
  variant = "original";
  std::vector<std::string> all = {variant};
  all.insert(all.end(), names.begin(), names.end());
  std::string list;
  for (const std::string& name : all) list += (list.empty() ? "" : name == all.back() ? " or " : ", ") + name;
  app.add_choice("--variant", variant, "which version: " + list, all);
}

// Where the size `paper` comes from.
inline constexpr const char* kMgsPaper = "Table 2 of the MGS paper";
// For the GeNIMA paper's applications: it says which they are, not how large its inputs were.
inline constexpr const char* kSplash2Paper = "the SPLASH-2 paper's, for the GeNIMA paper names none";

// The common options on top of those that the workload has added to `app`. Returns when there is a run to make;
// otherwise prints the help (status 0) or one sentence (status 2) and exits.
inline Options parse_command_line(CommandLine& app, int argc, char** argv, const char* paper = kMgsPaper) {
  Options options;
  std::string size = "test";
  app.add_choice("--size", size, "problem size: test, paper (" + std::string(paper) + ") or large",
                 {"test", "paper", "large"});
  app.add_number("--iterations", options.iterations, "how many iterations, instead of what the size says", 1,
                 1'000'000);
  app.add_number("--seed", options.seed, "seed of the input (default 1)", 0, SIZE_MAX);
  app.add_flag("--check", options.check, "verify the result; exit status 1 if it is wrong");
  app.add_flag("--speedup", options.speedup, "also time the sequential version on private memory, and compare");
  app.parse(argc, argv);
  if (size == "paper") options.size = Size::kPaper;
  if (size == "large") options.size = Size::kLarge;
  return options;
}

// The one of three values that belongs to the size, unless the command line gave another (which is not 0).
template <typename T>
T choose(const Options& options, T given, T test, T paper, T large) {
  if (given != 0) return given;
  return options.size == Size::kTest ? test : options.size == Size::kPaper ? paper : large;
}

// `count` zeroed elements of shared memory, or the end of the run with a sentence.
template <typename T>
T* allocate_shared(size_t count, mg_home home = MG_HOME_DEFAULT) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = home;
  void* const block = mg_alloc(count * sizeof(T), &options);
  if (block == nullptr) {
    std::fprintf(stderr, "cannot allocate %zu bytes of shared memory: %s\n", count * sizeof(T), mg_error());
    std::exit(kCheckFailed);
  }
  return static_cast<T*>(block);
}

// Runs `slave` on every processor, or ends the run with a sentence.
inline void run_on_all(mg_function slave) {
  if (mg_spawn_all(slave, nullptr) == 0) return;
  std::fprintf(stderr, "cannot start the processors: %s\n", mg_error());
  std::exit(kCheckFailed);
}

// Between initialisation and the measured section: all processors call it together; the profile and the clock start
// when all have arrived. Returns the time, nanoseconds.
inline uint64_t start_measuring(mg_barrier_t barrier) {
  mg_barrier(barrier);
  if (mg_processor() == 0) mg_profile_reset();
  mg_barrier(barrier);
  return mg_time_ns();
}

// At the end of the measured section: processor 0 calls it after the last barrier, before anybody checks or prints.
// Ends the profile's phase too. Returns the time since start_measuring(), nanoseconds.
inline uint64_t stop_measuring(uint64_t start) {
  const uint64_t elapsed = mg_time_ns() - start;
  mg_profile_stop();
  return elapsed;
}

// For a workload whose iterations each begin anew. `prepare` makes the caller's part of the input, and is no part of
// the result; `work` is. All processors call it together, in place of the two above; processor 0's is the result.
template <typename Prepare, typename Work>
uint64_t measure_together(mg_barrier_t barrier, unsigned iterations, Prepare&& prepare, Work&& work) {
  uint64_t time = 0;
  for (unsigned t = 0; t < iterations; ++t) {
    prepare();
    if (t != 0) mg_barrier(barrier);
    const uint64_t start = t == 0 ? start_measuring(barrier) : mg_time_ns();
    work();
    time += mg_time_ns() - start;
  }
  if (mg_processor() == 0) mg_profile_stop();
  return time;
}
// The same for the sequential version.
template <typename Prepare, typename Work>
uint64_t measure_alone(unsigned iterations, Prepare&& prepare, Work&& work) {
  uint64_t time = 0;
  for (unsigned t = 0; t < iterations; ++t) {
    prepare();
    const uint64_t start = mg_time_ns();
    work();
    time += mg_time_ns() - start;
  }
  return time;
}

// A lock that is held while this lives; 0: none, where only one processor works.
class Holding {
 public:
  explicit Holding(mg_lock_t lock) : lock_(lock) {
    if (lock_ != 0) mg_lock(lock_);
  }
  ~Holding() {
    if (lock_ != 0) mg_unlock(lock_);
  }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

 private:
  mg_lock_t lock_;
};

// The items first .. last-1 of `count` that belong to a processor: the same cut as MG_HOME_BLOCKED makes of pages.
struct Range {
  size_t first;
  size_t last;
};
inline Range share_of(unsigned processor, size_t count) {
  const size_t processors = mg_processors();
  return {count * processor / processors, count * (processor + 1) / processors};
}

// `count` processors as a grid, as close to a square as its divisors allow, no higher than wide.
struct ProcessorGrid {
  unsigned rows;
  unsigned columns;
};
inline ProcessorGrid grid_of(unsigned count) {
  unsigned rows = 1;
  for (unsigned divisor = 1; divisor * divisor <= count; ++divisor)
    if (count % divisor == 0) rows = divisor;
  return {rows, count / rows};
}

// How many elements fill whole pages that have room for `count`: what one processor has so apart shares no page with
// another's, and with MG_HOME_BLOCKED equal parts are at home on their owners' nodes.
template <typename T>
size_t whole_pages(size_t count) {
  // In units that hold a whole number of elements and of pages.
  size_t unit = mg_page_size();
  while (unit % sizeof(T) != 0) unit += mg_page_size();
  return (count * sizeof(T) + unit - 1) / unit * unit / sizeof(T);
}

// One line: the workload, its size, the machine.
inline void print_header(const char* name, const std::string& size) {
  std::printf("%s: %s; %u processors, %u per node, %u nodes\n", name, size.c_str(), mg_processors(),
              mg_processors_per_node(), mg_nodes());
}
inline double seconds(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}
inline void print_parallel(uint64_t nanoseconds, double checksum) {
  std::printf("parallel: %.6f s\nchecksum: %.12g\n", seconds(nanoseconds), checksum);
}
inline void print_speedup(uint64_t sequential, uint64_t parallel) {
  std::printf("sequential: %.6f s\nspeedup: %.2f\n", seconds(sequential), seconds(sequential) / seconds(parallel));
}
// For checks: raises `worst` to the value, and for good beyond all limits if the value is not a number.
inline void keep_worst(double& worst, double value) {
  if (!(value <= worst)) worst = std::isnan(value) ? HUGE_VAL : value;
}
// Says how a check ended and returns the exit status.
inline int print_check(bool passed, const std::string& how) {
  if (passed) {
    std::printf("check: passed (%s)\n", how.c_str());
    return 0;
  }
  std::fflush(stdout);
  std::fprintf(stderr, "check: FAILED (%s)\n", how.c_str());
  return kCheckFailed;
}

// Numbers in [0, 1) that depend on the seed and the index alone, so that every processor can make its own part.
inline double random_unit(uint64_t seed, uint64_t index) {
  // Steele, Lea, Flood: SplitMix64, "Fast splittable pseudorandom number generators".
  uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u + index * 0xD1342543DE82EF95u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace workloads
