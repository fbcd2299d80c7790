// mgrun runs a Multigrain program on an emulated cluster on this machine or on several hosts, as mpirun does
// with MPI programs.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/config.h"
#include "base/standard_output.h"
#include "launch/agent.h"
#include "launch/command_line.h"
#include "launch/host_launcher.h"
#include "launch/launcher.h"
#include "launch/tell.h"
#include "trace/model/decisions.h"
#include "trace/record/run_recording.h"

namespace {

// Opens the standard descriptors that are closed, so that mgrun's own descriptors do not get their numbers. They are
// read-only, so that writing to them fails, as it would without mgrun.
void fill_standard_descriptors() {
  while (true) {
    const int fd = open("/dev/null", O_RDONLY);
    if (fd > 2) close(fd);
    if (fd > 2 || fd < 0) return;
  }
}

// Runs the program, and makes the trace options.record of what its nodes record. A run that fails has a trace, too: of what
// precedes.
int launch_and_record(multigrain::LaunchOptions options) {
  const std::string trace = *options.record;
  auto recording = multigrain::trace::RunRecording::create(trace, options.record_bursts);
  if (!recording) {
    multigrain::tell("--record: {}", recording.error().message);
    return 2;
  }
  options.environment.emplace_back("MULTIGRAIN_RECORD_FILE", recording->file());
  const int status = multigrain::launch(options);
  // A program that did not start has said why.
  if (status != 0 && !recording->has_begun()) return status;
  const auto written = recording->write({.nodes = options.config.nodes,
                                         .program = fmt::format("{}", fmt::join(options.program, " ")),
                                         .policy = options.config.policy});
  if (!written) {
    multigrain::tell("--record: {}", written.error().message);
    return status != 0 ? status : 1;
  }
  if (!options.quiet)
    multigrain::tell("{}: {} references to shared memory, {} to other memory; {} decisions of the policy {} in {}",
                     trace, written->references, written->private_references, written->decisions, options.config.policy,
                     multigrain::trace::decisions_path(trace));
  if (const auto& sampling = written->sampling; !options.quiet && sampling.is_on())
    multigrain::tell("sampled: bursts of {} in each {} of a processor's references; one of {:.4g} is in the trace",
                     sampling.burst, sampling.interval, sampling.scale);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  // A file that grows beyond the limit (ulimit -f) is an error with a sentence, not a sudden end.
  signal(SIGXFSZ, SIG_IGN);
  // mgrun starts itself with this option on other hosts. It is not for users.
  if (argc == 2 && std::string_view(argv[1]) == "--agent") return multigrain::run_agent();
  multigrain::fail_if_output_is_lost("mgrun");
  auto parsed = multigrain::parse_command_line(argc, argv);
  if (!parsed) {
    multigrain::tell("{}", parsed.error().message);
    return 2;
  }
  if (const auto* information = std::get_if<multigrain::Information>(&*parsed)) {
    multigrain::print_text(information->text);
    return 0;
  }
  const auto& options = std::get<multigrain::LaunchOptions>(*parsed);
  if (!options.quiet)
    for (const std::string& sentence : multigrain::unknown_variables(true)) multigrain::tell("{}", sentence);
  if (options.record) return launch_and_record(options);
  return options.hosts.empty() ? multigrain::launch(options) : multigrain::launch_on_hosts(options);
}
