// mgtrace report: the study of a trace as one HTML file with the thesis's figures. The study is done here; the page is
// written by the Python package multigrain.study, which gets it as JSON.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis_options.h"
#include "base/child_process.h"
#include "commands.h"
#include "python_package.h"

namespace multigrain::trace::tool {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct ReportArguments {
  AnalysisOptions analysis;
  std::string from, output;
  bool quick = false, overwrite = false;
};

// Runs the package's trace_report with `arguments` and `input` on its standard input; the value is its exit status.
Result<int> run_python(const std::vector<std::string>& arguments, const std::string& input) {
  auto directory = python_package_directory();
  if (!directory) return tl::unexpected(directory.error());
  // Not -m, which would look into the current folder first.
  std::vector<std::string> command = {
      python_interpreter(), "-B", "-c",
      "import sys; sys.path[0] = sys.argv.pop(1); from multigrain.study.trace_report import main; sys.exit(main())",
      *directory};
  command.insert(command.end(), arguments.begin(), arguments.end());
  int input_ends[2];
  if (pipe2(input_ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  std::fflush(nullptr);
  ChildStart start;
  start.command = command;
  start.input = input_ends[0];
  const auto child = start_child(start);
  close(input_ends[0]);
  if (!child) {
    close(input_ends[1]);
    return fail("{}; it writes the report (install Python 3, or set MULTIGRAIN_PYTHON to it)", child.error().message);
  }
  // It may end before it has read everything, and then says why.
  auto* const previous = std::signal(SIGPIPE, SIG_IGN);
  for (size_t done = 0; done < input.size();) {
    const ssize_t count = write(input_ends[1], input.data() + done, input.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    done += static_cast<size_t>(count);
  }
  std::signal(SIGPIPE, previous);
  close(input_ends[1]);
  const int status = wait_for_child(*child);
  if (WIFSIGNALED(status))
    return fail("'{}', which writes the report, was killed by signal {}", command[0], WTERMSIG(status));
  return WEXITSTATUS(status);
}

Result<int> run_report(ReportArguments options) {
  std::error_code ignored;
  if (fs::exists(options.output, ignored) && !options.overwrite)
    return fail("{} exists; give --force to replace it", options.output);
  if (options.from.empty() == options.analysis.input.empty())
    return fail("give either a trace or --from with the JSON that mgtrace analyze wrote");

  std::string text;
  if (!options.from.empty()) {
    std::ifstream file(options.from, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
    if (!file.is_open() || file.bad()) return fail_errno(errno, fmt::format("cannot read {}", options.from));
  } else {
    // Before minutes of work: is there what writes the page?
    const auto ready = run_python({"--check"}, "");
    if (!ready) return tl::unexpected(ready.error());
    if (*ready != 0) return *ready;
    const auto study = analyze_trace(options.analysis);
    if (!study) return tl::unexpected(study.error());
    text = study->dump(-1, ' ', false, json::error_handler_t::replace);
  }
  std::vector<std::string> arguments = {"--output", options.output};
  if (!options.from.empty()) arguments.insert(arguments.end(), {"--from", options.from});
  return run_python(arguments, text);
}

}  // namespace

Command add_report(CLI::App& app) {
  auto options = std::make_shared<ReportArguments>();
  CLI::App* const command = app.add_subcommand(
      "report", "analyze a trace and write a report with figures, one HTML file that needs nothing else");
  command->add_option("trace", options->analysis.input, "the trace")->type_name("TRACE");
  command->add_option("--from", options->from, "what mgtrace analyze --json wrote, instead of a trace")
      ->type_name("FILE");
  command->add_option("-o,--output", options->output, "the report")->required()->type_name("HTML");
  command->add_flag("-f,--force", options->overwrite, "replace it if it exists");
  command->add_flag("--quick", options->quick,
                    "leave out what is not asked for below; without it, a report has all policies, parameters, false "
                    "sharing and one perturbation of each kind");
  add_analysis_options(*command, options->analysis);
  return {command, [options, command]() -> Result<int> {
            ReportArguments all = *options;
            auto given = [&](const char* name) { return command->get_option(name)->count() != 0; };
            if (!all.quick) {
              if (!given("--policy")) all.analysis.policies = {"all"};
              if (!given("--vary")) all.analysis.parameters = {"R", "r", "G", "g", "o_s"};
              if (!given("--perturb")) all.analysis.perturb = 1;
              all.analysis.false_sharing = true;
            }
            return run_report(std::move(all));
          }};
}

}  // namespace multigrain::trace::tool
