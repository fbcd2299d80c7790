// One pass over a trace by several independent analyses, on one thread or more.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct PassOptions {
  // Threads that work, the caller among them.
  unsigned threads = 1;
  // Called now and then, by one thread at a time, with the number of references done; may be empty.
  void (*progress)(void* context, uint64_t references) = nullptr;
  void* progress_context = nullptr;
};

// Sees all references in their order; one call at a time, not always on the same thread.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void process(std::span<const Reference> references) = 0;
};

struct PassTotals {
  uint64_t references = 0;
  uint64_t private_references = 0;
};

// Shows every reference to every engine. An error of the source, or a reference by a processor that the trace's header
// does not have, ends the pass; engines have then seen some of what precedes it.
Result<PassTotals> one_pass(TraceSource& source, std::span<Engine* const> engines, const PassOptions& options);

}  // namespace multigrain::trace
