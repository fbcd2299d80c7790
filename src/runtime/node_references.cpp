#include "runtime/node_references.h"

#include <pthread.h>

#include <cstdlib>

#include "count/counting.h"
#include "runtime/counted_program.h"

namespace multigrain {
namespace {

// It lives until the end of the process.
constinit record::Recorder* g_recorder = nullptr;

uint64_t record_access(const void* address, uint64_t bytes, bool writes, const void* caller) {
  if (g_recorder != nullptr) g_recorder->reference(address, bytes, writes, caller);
  return 0;
}

}  // namespace

record::Recorder* recorder_of_run() {
  return g_recorder;
}

Status start_recording(const Config& config, const Region& region) {
  const char* const file = secure_getenv("MULTIGRAIN_RECORD_FILE");
  if (file == nullptr) return {};
  if (const std::string why = counting::why_not_counted(); !why.empty())
    return fail("--record needs a program that reports its accesses to memory, and {}=memory", why);
  auto recorder = record::Recorder::create(file, config.node, region);
  if (!recorder) return tl::unexpected(recorder.error());
  if (const char* const silent = counting::set_memory(&record_access); silent != nullptr)
    return fail(
        "--record needs a program that reports its accesses to memory, and {} does not: compile and link it with mgcc "
        "-fmultigrain-count=memory",
        silent);
  g_recorder = recorder->release();
  pthread_atfork(nullptr, nullptr, [] { g_recorder = nullptr; });
  return {};
}

}  // namespace multigrain
