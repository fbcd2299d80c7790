// mgtrace: records reference traces, converts them, and computes how good a program's placement could be.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "base/standard_output.h"
#include "commands.h"

namespace {

// The words of `mgtrace record [OPTIONS] -- PROGRAM ...` without the "--", which CLI11 would take for the end of
// record's own words. One after the program is the program's.
std::vector<std::string> without_separator(std::vector<std::string> words, const CLI::App& app) {
  if (words.empty() || words.front() != "record") return words;
  const CLI::App* const record = app.get_subcommand("record");
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--") {
      words.erase(words.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
    if (!words[i].starts_with("-")) break;
    const CLI::Option* const option = record->get_option_no_throw(words[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace multigrain::trace::tool;
  multigrain::fail_if_output_is_lost("mgtrace");
  CLI::App app{"Reference traces: record them, import and change them, and compare a program with optimal placement."};
  app.name("mgtrace");
  app.require_subcommand(1);
  // One line a subcommand.
  const std::vector<Command> commands = {
      add_info(app),   add_import(app), add_filter(app), add_analyze(app),
      add_report(app), add_record(app), add_cc(app),     add_cxx(app),
  };
  try {
    std::vector<std::string> words = without_separator({argv + 1, argv + argc}, app);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    if (app.get_subcommands().empty()) {
      std::string names;
      for (const Command& command : commands) names += (names.empty() ? "" : ", ") + command.app->get_name();
      if (argc > 1 && argv[1][0] != '-')
        fmt::print(stderr, "mgtrace: there is no subcommand '{}'; there are {}\n", argv[1], names);
      else
        fmt::print(stderr, "mgtrace: {}; subcommands are {}\n", error.what(), names);
      return 2;
    }
    fmt::print(stderr, "mgtrace: {}\n", error.what());
    return 2;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    try {
      const auto status = command.run();
      if (status) return *status;
      fmt::print(stderr, "mgtrace: {}\n", status.error().message);
      return 2;
    } catch (const std::system_error&) {
      // Printing failed; why is said at the end.
      return 1;
    }
  }
  return 2;
}
