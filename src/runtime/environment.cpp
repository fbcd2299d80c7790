#include "runtime/environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace multigrain {
namespace {

std::vector<int> read_numbers(const char* variable) {
  std::vector<int> numbers;
  const char* const text = secure_getenv(variable);
  if (text == nullptr) return numbers;
  std::string_view rest = text;
  while (!rest.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return numbers;
}

// This is long enough for a page fault served by a node that polls, several times over; a wake-up costs about as much.
constexpr double kSpinUsWithOwnCores = 100;
// With more processors than cores, a processor that polls keeps the one for which it waits from running.
constexpr double kSpinUsShared = 2;

}  // namespace

NodeEnvironment read_node_environment(unsigned processors_here) {
  NodeEnvironment environment;
  environment.frames_fds = read_numbers("MULTIGRAIN_FRAMES_FDS");
  environment.cpus = read_numbers("MULTIGRAIN_PIN");
  const std::vector<int> cores = read_numbers("MULTIGRAIN_CORES");
  const unsigned available =
      cores.size() == 1 && cores[0] > 0 ? static_cast<unsigned>(cores[0]) : std::thread::hardware_concurrency();
  double spin_us = processors_here <= available ? kSpinUsWithOwnCores : kSpinUsShared;
  if (const std::vector<int> spin = read_numbers("MULTIGRAIN_SPIN"); spin.size() == 1 && spin[0] >= 0)
    spin_us = spin[0];
  environment.wait.spin_ticks = static_cast<uint64_t>(spin_us * ticks_per_us());
  return environment;
}

}  // namespace multigrain
