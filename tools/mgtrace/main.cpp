// mgtrace: records reference traces, converts them, and computes how good a program's placement could be.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "base/standard_output.h"
#include "commands.h"
#include "trace/format/trace_file.h"

namespace {

// The words as CLI11 is to see them. What follows the program of `mgtrace record` and `mgtrace sharing` is the program's.
//   - `mgtrace record [OPTIONS] -- PROGRAM ...`: without the "--", which CLI11 would take for the end of the subcommand's own
//     words.
//   - `mgtrace sharing TRACE [OPTIONS]`: with the trace behind its options, since a trace has no arguments.
std::vector<std::string> in_order(std::vector<std::string> words, const CLI::App& app) {
  if (words.empty() || (words.front() != "record" && words.front() != "sharing")) return words;
  const CLI::App* const command = app.get_subcommand(words.front());
  // Returns the index of the first word from `i` on that is no option and no option's value.
  const auto after_options = [&](size_t i) {
    for (; i < words.size() && words[i].starts_with("-") && words[i] != "--"; ++i) {
      const CLI::Option* const option = command->get_option_no_throw(words[i]);
      if (option != nullptr && option->get_items_expected_max() > 0) ++i;
    }
    return std::min(i, words.size());
  };
  const size_t first = after_options(1);
  if (first == words.size()) return words;
  const auto at = words.begin() + static_cast<ptrdiff_t>(first);
  if (words[first] == "--") {
    words.erase(at);
  } else if (words.front() == "sharing" && multigrain::trace::TraceFile::begins_as_trace(words[first])) {
    std::rotate(at, at + 1, words.begin() + static_cast<ptrdiff_t>(after_options(first + 1)));
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
      add_record(app), add_sharing(app), add_compare(app), add_info(app), add_import(app),
      add_filter(app), add_analyze(app), add_report(app),  add_cc(app),   add_cxx(app),
  };
  try {
    std::vector<std::string> words = in_order({argv + 1, argv + argc}, app);
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
