#include "base/sampling.h"

#include "base/quantity.h"

namespace multigrain {

Result<Bursts> parse_sampling(std::string_view text) {
  // Clocks have 64 bits, and no run reaches so many references.
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (const size_t slash = text.find('/'); slash != text.npos) {
    const auto burst = parse_whole(text.substr(0, slash));
    const auto interval = parse_whole(text.substr(slash + 1), kMost);
    if (burst && interval && *burst > 0 && *burst < *interval) return Bursts{.burst = *burst, .interval = *interval};
  }
  return fail(
      "--sample {}: give BURST/INTERVAL, two numbers of references of which the first is smaller, such as 10000/1000000",
      text);
}

}  // namespace multigrain
