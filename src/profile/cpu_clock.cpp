#include "profile/cpu_clock.h"

#include <linux/rseq.h>
#include <sys/rseq.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

// This is the abort handler of the sequence. The kernel demands the signature in front of it, and never goes there: the
// sequence's range is empty of code.
asm(R"(
  .pushsection .text.multigrain_rseq, "ax", @progbits
  .balign 32
  .long 0x53053053
  multigrain_rseq_abort:
  ud2
  multigrain_rseq_nowhere:
  ud2
  .popsection
)");
extern "C" const char multigrain_rseq_abort[] __attribute__((visibility("hidden")));
extern "C" const char multigrain_rseq_nowhere[] __attribute__((visibility("hidden")));

namespace multigrain {
namespace {

static_assert(RSEQ_SIG == 0x53053053);

// A thread whose area still points here has not been disturbed.
alignas(32) rseq_cs g_sequence{};

struct Reading {
  uint64_t ticks = 0;        // ticks at the last system call
  Nanoseconds cpu_ns = 0;    // that call's result, less spent_ns then
  Nanoseconds spent_ns = 0;  // the cost of such calls so far
  Nanoseconds returned_ns = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Reading t_reading;

constinit double g_ns_per_tick = 0;
constinit Nanoseconds g_call_ns = 0;

std::atomic_ref<uint64_t> registered() {
  char* const area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(area + offsetof(rseq, rseq_cs)));
}

Nanoseconds read_exactly() {
  return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace

Nanoseconds thread_cpu_ns() {
  Reading& last = t_reading;
  const bool has_area = __rseq_size != 0;
  const auto undisturbed = reinterpret_cast<uint64_t>(&g_sequence);
  if (has_area && registered().load(std::memory_order_relaxed) == undisturbed && last.ticks != 0) {
    const uint64_t now = ticks();
    // The area is read again, because the core may have been lost before the counter was read.
    if (registered().load(std::memory_order_relaxed) == undisturbed) {
      const auto since = static_cast<Nanoseconds>(static_cast<double>(now - last.ticks) * g_ns_per_tick);
      last.returned_ns = std::max(last.returned_ns, last.cpu_ns + since);
      return last.returned_ns;
    }
  }
  if (has_area) registered().store(undisturbed, std::memory_order_relaxed);
  const Nanoseconds exact = read_exactly();
  // If the core is lost before this, the next reading finds out, for the area is cleared by then.
  last.ticks = ticks();
  last.cpu_ns = exact - std::min(exact, last.spent_ns);
  last.spent_ns += g_call_ns;
  last.returned_ns = std::max(last.returned_ns, last.cpu_ns);
  return last.returned_ns;
}

void calibrate_thread_cpu_clock() {
  g_ns_per_tick = 1000.0 / ticks_per_us();
  // No thread executes nowhere .. nowhere + 1.
  g_sequence.start_ip = reinterpret_cast<uint64_t>(multigrain_rseq_nowhere);
  g_sequence.post_commit_offset = 1;
  g_sequence.abort_ip = reinterpret_cast<uint64_t>(multigrain_rseq_abort);
  // The least of many costs counts, because whatever else happened meanwhile is no cost of the call.
  constexpr int kCalls = 64;
  Nanoseconds least = ~Nanoseconds{0};
  Nanoseconds before = read_exactly();
  for (int i = 0; i < kCalls; ++i) {
    const Nanoseconds now = read_exactly();
    least = std::min(least, now - before);
    before = now;
  }
  g_call_ns = least;
}

}  // namespace multigrain
