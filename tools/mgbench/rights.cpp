// mgbench rights measures the rights-change wall ([GeNIMA], V.E and figure 3): the threads of one process change the
// rights of single pages at the same time. Each thread has pages of its own, no two of which are neighbours.
//
// It measures both mechanisms, for growing numbers of threads. A figure is the time that a call takes on a core of its
// own: the whole time, times the number of cores that worked, divided by the number of calls. If calls do not hinder
// each other, it is the same for every number of threads.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "commands.h"
#include "memory/access_rights.h"

namespace multigrain::bench {
namespace {

constexpr unsigned kPagesPerThread = 256;

struct Costs {
  double upgrade = 0;    // microseconds, from readable to writable
  double downgrade = 0;  // microseconds, from writable to no right
};

std::vector<unsigned> cores_of_this_process() {
  cpu_set_t set;
  std::vector<unsigned> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  return cores;
}

Result<Costs> measure(AccessMechanism mechanism, unsigned threads, unsigned rounds,
                      const std::vector<unsigned>& cores) {
  const uint64_t pages = uint64_t{threads} * kPagesPerThread;
  auto region = Region::create(pages * 4096, 4096);
  if (!region) return tl::unexpected(region.error());
  auto rights = choose(mechanism, *region);
  if (!rights) return tl::unexpected(rights.error());
  for (uint64_t p = 0; p < pages; ++p) region->alias(PageId(p))[0] = std::byte{1};

  std::vector<double> upgrades, downgrades;
  Nanoseconds begin = 0;
  std::barrier meeting(threads);
  const double cores_used = static_cast<double>(std::min<size_t>(threads, cores.size()));
  // Every thread applies `change` to each of its own pages, and thread 0 takes the time.
  const auto together = [&](unsigned thread, std::vector<double>* samples, auto&& change) {
    meeting.arrive_and_wait();
    if (thread == 0) begin = monotonic_ns();
    meeting.arrive_and_wait();
    for (uint64_t p = thread; p < pages; p += threads) change(PageId(p));
    meeting.arrive_and_wait();
    if (thread == 0 && samples != nullptr)
      samples->push_back(static_cast<double>(monotonic_ns() - begin) / 1000 * cores_used / static_cast<double>(pages));
  };
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cores[t % cores.size()], &set);
      sched_setaffinity(0, sizeof set, &set);
      for (unsigned round = 0; round < rounds; ++round) {
        together(t, nullptr, [&](PageId page) { (*rights)->grant_read(page, 1); });
        together(t, round == 0 ? nullptr : &upgrades, [&](PageId page) { (*rights)->upgrade(page, 1); });
        together(t, round == 0 ? nullptr : &downgrades, [&](PageId page) { (*rights)->revoke(page, 1); });
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  // Other work on the machine can only add to the times, so the least counts.
  return Costs{*std::min_element(upgrades.begin(), upgrades.end()),
               *std::min_element(downgrades.begin(), downgrades.end())};
}

struct RightsOptions {
  std::vector<unsigned> threads{1, 2, 4, 8, 16};
  unsigned rounds = 100;
  bool json = false;
};

int measure_rights(const RightsOptions& options) {
  const std::vector<unsigned> cores = cores_of_this_process();
  if (cores.empty()) {
    fmt::print(stderr, "mgbench: the cores of this process are not known\n");
    return 1;
  }
  nlohmann::json out{{"version", 1}, {"cores", cores.size()}, {"rows", nlohmann::json::array()}};
  if (!options.json)
    fmt::print("Microseconds of a core for each change of one page's rights, {} cores\n\n{:<12}{:>8}{:>12}{:>12}\n",
               cores.size(), "mechanism", "threads", "upgrade", "downgrade");
  for (const auto& [mechanism, name] :
       {std::pair{AccessMechanism::kUserfault, "userfault"}, std::pair{AccessMechanism::kMprotect, "mprotect"}}) {
    for (const unsigned n : options.threads) {
      const auto costs = measure(mechanism, n, options.rounds, cores);
      if (!costs) {
        fmt::print(stderr, "mgbench: {}: {}\n", name, costs.error().message);
        return 1;
      }
      if (options.json)
        out["rows"].push_back(
            {{"mechanism", name}, {"threads", n}, {"upgrade_us", costs->upgrade}, {"downgrade_us", costs->downgrade}});
      else
        fmt::print("{:<12}{:>8}{:>12.2f}{:>12.2f}\n", name, n, costs->upgrade, costs->downgrade);
      std::fflush(stdout);
    }
  }
  if (options.json) fmt::print("{}\n", out.dump(2));
  return 0;
}

}  // namespace

Command add_rights(CLI::App& app) {
  auto options = std::make_shared<RightsOptions>();
  CLI::App* const command = app.add_subcommand(
      "rights", "what changes of access rights cost while other threads of the process change rights, too");
  command->add_option("--threads", options->threads, "how many change rights at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 128));
  command->add_option("--rounds", options->rounds, "rounds; a figure is the least of all")->check(CLI::Range(2, 10000));
  command->add_flag("--json", options->json, "print JSON");
  return {command, [options] { return measure_rights(*options); }};
}

}  // namespace multigrain::bench
