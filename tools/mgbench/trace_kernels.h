// These kernels make reference streams as real programs do, to measure and test the trace format and the analyses
// without a recorder. They are small parallel programs that really compute, and note their accesses to shared arrays
// themselves. Every statement that accesses an array is a site of its own, as with a recorder.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace multigrain::trace::bench {

// Collects the references of each processor and merges them into one order, in runs of random length, as if the
// processors of a machine took turns.
class KernelTrace {
 public:
  using Sink = std::function<void(std::span<const Reference>)>;

  // A run has 1 to `longest_run` references.
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
  // The processors meet: what they did since the last meeting happened at the same time. Merges the references that
  // were collected since then, and passes them to the sink.
  void meet();
  // Returns an address with `bytes` bytes that no other call has returned.
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
  void (*run)(KernelTrace& trace);  // runs the kernel once
  uint64_t references;              // roughly, of one run
};
const std::vector<Kernel>& kernels();

// Sites that the kernels use: 1 to kKernelSites - 1.
constexpr SiteId kKernelSites = 64;
// Returns a header that fits the kernels' traces.
TraceHeader kernel_header(unsigned processors);

// Runs the kernels one after the other, each until it has made its share of `references`.
void run_kernels(KernelTrace& trace, uint64_t references);

}  // namespace multigrain::trace::bench
