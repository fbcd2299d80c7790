// Reference streams of real programs, for measuring and testing the trace format and the analyses before any recorder
// runs: small parallel kernels that really compute, with their accesses to shared arrays written down by hand. Every
// statement that accesses an array is a site of its own, as a recorder would have it.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace multigrain::trace::bench {

// Collects what each processor refers to and merges it into one order, in runs of random length as they come out of a
// machine whose processors take turns.
class KernelTrace {
 public:
  using Sink = std::function<void(std::span<const Reference>)>;

  // Runs have 1 to `longest_run` references.
  KernelTrace(unsigned processors, unsigned longest_run, uint64_t seed, Sink sink)
      : longest_run_(longest_run), random_(seed), of_(processors), sink_(std::move(sink)) {}

  [[nodiscard]] unsigned processors() const { return static_cast<unsigned>(of_.size()); }
  [[nodiscard]] uint64_t references() const { return references_; }

  void refer(unsigned processor, SiteId site, uint64_t address, Access access, size_t size) {
    of_[processor].push_back({.address = address,
                              .site = site,
                              .processor = static_cast<ProcessorId>(processor),
                              .access = access,
                              .size = static_cast<uint8_t>(size)});
  }
  // What was collected since the last meeting happened at the same time: merges it and gives it away.
  void meet();
  // Addresses for `bytes`, not touching what others got.
  uint64_t place(size_t bytes);

  std::mt19937_64& random() { return random_; }

 private:
  unsigned longest_run_;
  std::mt19937_64 random_;
  std::vector<std::vector<Reference>> of_;
  std::vector<Reference> merged_;
  Sink sink_;
  uint64_t references_ = 0;
  uint64_t next_place_ = 0x7f0000000000;
};

struct Kernel {
  const char* name;
  // Runs once; about how many references that is.
  void (*run)(KernelTrace& trace);
  uint64_t references;
};
const std::vector<Kernel>& kernels();

// Sites that the kernels use: 1 to kKernelSites - 1.
constexpr SiteId kKernelSites = 64;
// A header that fits the kernels' traces.
TraceHeader kernel_header(unsigned processors);

// Runs the kernels in turn, each until it has had its share, until `trace` has `references`.
void run_kernels(KernelTrace& trace, uint64_t references);

}  // namespace multigrain::trace::bench
