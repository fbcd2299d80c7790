// This makes one pass over a trace for several independent analyses, on one thread or more.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct PassOptions {
  // So many threads work, the caller among them.
  unsigned threads = 1;
  // One thread at a time calls this now and then, with the number of references done; may be empty.
  void (*progress)(void* context, uint64_t references) = nullptr;
  void* progress_context = nullptr;
};

// An engine sees all references in their order, one call at a time, and not always on the same thread.
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
// does not have, ends the pass. The engines have then seen some of the references before it.
Result<PassTotals> one_pass(TraceSource& source, std::span<Engine* const> engines, const PassOptions& options);

}  // namespace multigrain::trace
