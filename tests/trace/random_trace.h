// Small random traces for the tests of the analyses.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "trace/trace.h"

namespace multigrain::trace {

struct RandomTrace {
  unsigned processors = 3;
  size_t references = 200;
  uint64_t bytes = 256;  // of memory, from address 4096 on
  double writes = 0.4;   // their share
  unsigned word_bytes = 4;
};

inline std::vector<Reference> random_references(const RandomTrace& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Reference> references;
  auto below = [&](uint64_t limit) { return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random); };
  for (size_t i = 0; i < shape.references; ++i) {
    references.push_back({.address = 4096 + below(shape.bytes / shape.word_bytes) * shape.word_bytes,
                          .site = static_cast<SiteId>(1 + below(5)),
                          .processor = static_cast<ProcessorId>(below(shape.processors)),
                          .access = std::bernoulli_distribution(shape.writes)(random) ? Access::kWrite : Access::kRead,
                          .size = static_cast<uint8_t>(shape.word_bytes)});
  }
  return references;
}

inline TraceHeader header_for(unsigned processors) {
  TraceHeader header;
  header.processors = processors;
  header.sites.resize(1);
  header.names = {""};
  return header;
}

inline std::unique_ptr<TraceInMemory> source_of(unsigned processors, std::vector<Reference> references,
                                                std::vector<Event> events = {}) {
  return std::make_unique<TraceInMemory>(header_for(processors), std::move(references), std::move(events));
}

// Gives every batch of the source to f, and returns whether it ended without an error.
template <typename F>
bool drain(TraceSource& source, F&& f) {
  for (;;) {
    auto batch = source.next();
    if (!batch) return false;
    if (batch->references.empty() && batch->events.empty()) return true;
    f(*batch);
  }
}

}  // namespace multigrain::trace
