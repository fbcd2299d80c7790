// This is compiled twice: with the others, and by mgcc with -fmultigrain-references and MULTIGRAIN_BY_CHECKS, where there is one.
#include "references.h"

#include "base/clock.h"

namespace multigrain::bench {
namespace {

constexpr size_t kLine = 64;

// Where the next one is depends on what a reference has found, and is no neighbour, so references follow one another, and the hardware
// guesses none.
template <typename Reference>
double time_of_references(volatile char* page, size_t page_size, Reference&& reference) {
  const size_t lines = page_size / kLine;
  constexpr size_t kStride = 17;  // prime to the number of lines, which is a power of two
  size_t line = 0;
  const uint64_t begin = ticks();
  for (size_t n = 0; n < lines; ++n)
    line = (line + kStride * static_cast<size_t>(reference(page + line * kLine))) % lines;
  const auto time = static_cast<double>(ticks() - begin) * 1000 / ticks_per_us();
  return line == 0 ? time / static_cast<double>(lines) : -1;
}

double time_of_reads(volatile char* page, size_t page_size) {
  return time_of_references(page, page_size, [](volatile char* at) { return *at; });
}

double time_of_exchanges(volatile char* page, size_t page_size) {
  return time_of_references(page, page_size,
                            [](volatile char* at) { return __atomic_exchange_n(at, 1, __ATOMIC_SEQ_CST); });
}

}  // namespace

#ifdef MULTIGRAIN_BY_CHECKS
const References kCheckedReferences{&time_of_reads, &time_of_exchanges};
#else
const References kPlainReferences{&time_of_reads, &time_of_exchanges};
#ifdef MULTIGRAIN_WITHOUT_CHECKS
const References kCheckedReferences{nullptr, nullptr};
#endif
#endif

}  // namespace multigrain::bench
