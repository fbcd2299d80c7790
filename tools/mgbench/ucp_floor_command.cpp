// mgbench ucp-floor loads the module that measures UCP by itself, and runs it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "commands.h"
#include "fabric/module.h"
#include "roles.h"

namespace multigrain::bench {
namespace {

struct UcpFloorOptions {
  size_t page_size = 4096;
  Effort effort;
};

int measure_ucp_floor(const UcpFloorOptions& options) {
  const auto function = load_module("ucp_floor", "multigrain_measure_ucp_floor");
  if (!function) {
    fmt::print(stderr, "mgbench ucp-floor: {}\n", function.error().message);
    return 1;
  }
  return reinterpret_cast<int (*)(size_t, unsigned, unsigned)>(*function)(options.page_size, options.effort.pages,
                                                                          options.effort.rounds);
}

}  // namespace

Command add_ucp_floor(CLI::App& app) {
  auto options = std::make_shared<UcpFloorOptions>();
  CLI::App* const command =
      app.add_subcommand("ucp-floor", "UCP by itself, over what UCX_TLS says, as lines for mgbench itself")->group("");
  command->add_option("page-size", options->page_size, "bytes")->required()->check(CLI::Range(64, 1 << 20));
  command->add_option("pages", options->effort.pages, "pages asked for in a round")
      ->required()
      ->check(CLI::Range(8, 4096));
  command->add_option("rounds", options->effort.rounds, "rounds")->required()->check(CLI::Range(1, 10000));
  return {command, [options] { return measure_ucp_floor(*options); }};
}

}  // namespace multigrain::bench
