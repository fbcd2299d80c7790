// mgs_simulation: runs seeds by hand, or replays one.
//   mgs_simulation --seed N [--count K] [--nodes N] [--procs-per-node C] [--domains D] [--pages G] [--trace]
// What is not given follows from the seed. Status 1 at the first failure, with the command that replays it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "mgs_simulation.h"

int main(int argc, char** argv) {
  using namespace multigrain::mgs::model;
  uint64_t first = 1;
  uint64_t count = 1;
  std::optional<unsigned> nodes;
  std::optional<unsigned> processors;
  std::optional<unsigned> domains;
  std::optional<unsigned> pages;
  bool trace = false;
  CLI::App app("Runs random programs on a simulated machine under MGS.");
  app.add_option("--seed", first, "the first seed")->required();
  app.add_option("--count", count, "how many seeds")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  app.add_option("--nodes", nodes, "nodes of the machine")->check(CLI::Range(2u, 16u));
  app.add_option("--procs-per-node", processors, "processors of a node")->check(CLI::Range(1u, 4u));
  app.add_option("--domains", domains, "mapping domains of a node")->check(CLI::Range(1u, 4u));
  app.add_option("--pages", pages, "pages")->check(CLI::Range(1u, kMaxPages));
  app.add_flag("--trace", trace, "print every event");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  uint64_t events = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Shape shape = random_shape(seed);
    shape.nodes = nodes.value_or(shape.nodes);
    shape.processors_per_node = processors.value_or(shape.processors_per_node);
    shape.domains = domains.value_or(std::min(shape.domains, shape.processors_per_node));
    shape.pages = pages.value_or(shape.pages);
    std::string log;
    const Run run = simulate(random_scenario(seed, shape), seed, trace ? &log : nullptr);
    std::fputs(log.c_str(), stdout);
    events += run.events;
    if (!run.failure.empty()) {
      std::printf("seed %llu: %s\nto replay: %s\n", static_cast<unsigned long long>(seed), run.failure.c_str(),
                  replay_command(seed, shape).c_str());
      return 1;
    }
  }
  std::printf("all held: %llu seeds, %llu events\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(events));
  return 0;
}
