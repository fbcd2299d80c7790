// The processes that measure send their results to mgbench as lines of text. mgbench and its programs share this file,
// which has the roles and the lines' format.

#include <algorithm>
#include <cstdio>

#include "roles.h"

namespace multigrain::bench {

const std::vector<Role>& roles() {
  // A second is longer than any wait of these roles, so with 1000000 processors always poll. If the run chooses,
  // processors poll for 100 us with two processors on two cores, and hardly at all with more.
  static const std::vector<Role> all = {
      {"faults", 2, "1000000"},
      {"faults-woken", 2, nullptr},
      {"faults-busy", 2, nullptr},
      {"single-writer", 3, nullptr},
      {"release", 2, "1000000"},
      {"release", 3, nullptr},
      {"locks", 2, "1000000"},
      {"barrier", 2, "1000000"},
      {"barrier", 4, nullptr},
      {"barrier", 8, nullptr},
      {"barrier-pages", 2, nullptr, 1, "barrier=leader"},
      {"barrier-pages", 2, nullptr, 2, "barrier=leader"},
      {"barrier-pages", 2, nullptr, 2, "barrier=cooperative"},
      {"global", 2, "1000000", 1, nullptr, "global"},
      {"global-checks", 2, "1000000", 1, nullptr, "global"},
      {"global-asleep", 2, nullptr, 1, nullptr, "global"},
      {"global-checks-asleep", 2, nullptr, 1, nullptr, "global"},
  };
  return all;
}

Summary summarise(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double q) { return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1))]; };
  return {at(0.5), at(0.99), samples.size()};
}

void print_series(const std::vector<Series>& all) {
  for (const Series& series : all) {
    const Summary s = summarise(series.samples);
    std::printf("%s\t%.1f\t%.1f\t%zu\n", series.name.c_str(), s.p50, s.p99, s.count);
  }
  std::fflush(stdout);
}

}  // namespace multigrain::bench
