#include "launch/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/file_descriptor.h"
#include "base/guest_environment.h"
#include "base/shell_status.h"
#include "launch/hosted_program.h"
#include "launch/labels.h"
#include "launch/local_nodes.h"
#include "launch/restarts.h"
#include "launch/signals.h"
#include "launch/standstill.h"
#include "launch/supervisor.h"
#include "launch/tell.h"
#include "launch/waiting.h"

namespace multigrain {
namespace {

// The supervisor's patience with ends that are seen over a network (supervisor.h). It is long enough for one report to
// overtake another, and too short to be noticed.
constexpr std::chrono::milliseconds kNetworkPatience{300};

int refuse(int status, const Error& error) {
  tell("{}", error.message);
  return status;
}

LocalJob describe_job(const LaunchOptions& options, std::string path) {
  LocalJob job;
  job.config = options.config;
  job.count = options.config.nodes;
  job.path = std::move(path);
  job.arguments = options.program;
  job.environment = options.environment;
  // A call that looks a function up when it is made for the first time would be the program's time: a microsecond, which
  // --clock-scale multiplies.
  if (options.config.clock == ClockKind::kVirtual) job.environment.emplace_back("LD_BIND_NOW", "1");
  job.hosted = options.binary;
  job.pinning = options.pinning;
  // All nodes are on this machine, so UCX opens ports on the loopback interface alone, unless the user has chosen the
  // network device.
  const bool chosen = !options.config.interface.empty() || std::getenv("UCX_NET_DEVICES") != nullptr;
  if (options.config.fabric == FabricKind::kUcx && !chosen) job.environment.emplace_back("MULTIGRAIN_INTERFACE", "lo");
  return job;
}

// All nodes of the run are children of this process.
class Launcher final : private NodeControl {
 public:
  Launcher(const LaunchOptions& options, std::string path, WatchedSignals& signals)
      : options_(options),
        path_(std::move(path)),
        signals_(signals),
        nodes_([&] {
          LocalJob job = describe_job(options, path_);
          job.signal_mask = signals.program_mask();
          return job;
        }()),
        supervisor_(*this, {.nodes_share_terminal = true,
                            .patience = options.config.fabric == FabricKind::kShm ? std::chrono::milliseconds{0}
                                                                                  : kNetworkPatience,
                            .program_speaks_for_itself = options.binary}),
        standstill_(options.deadlock_after) {}
  int run();
  // Returns, after run(), whether the run was lost (Supervisor::was_lost()).
  [[nodiscard]] bool was_lost() const { return supervisor_.was_lost(); }

 private:
  void signal_all(int number) override { nodes_.signal_all(number); }
  void program_ended() override { nodes_.program_ended(); }
  void abort(NodeId culprit) override { nodes_.abort(culprit); }

  Result<pid_t> start(NodeId id);
  void wait_for_something();
  void tell_what_processors_do(const Standstill::Stood& stood);

  const LaunchOptions& options_;
  const std::string path_;
  WatchedSignals& signals_;
  LocalNodes nodes_;
  Supervisor supervisor_;
  Standstill standstill_;
  LabelledOutput output_;
  FileDescriptor null_;
};

Result<pid_t> Launcher::start(NodeId id) {
  StandardDescriptors standard;
  if (id != NodeId(0)) standard.input = null_.get();
  if (!options_.label_output) return nodes_.start_next(standard);
  std::vector<FileDescriptor> close_after;
  Status piped;
  for (const auto& [end, target] :
       {std::pair(&standard.output, STDOUT_FILENO), std::pair(&standard.error, STDERR_FILENO)}) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      piped = fail_errno(errno, "cannot label the output");
      break;
    }
    output_.add(ends[0], id, target);
    *end = ends[1];
    close_after.emplace_back(ends[1]);
  }
  return piped ? nodes_.start_next(standard) : tl::unexpected<Error>(piped.error());
}

void Launcher::wait_for_something() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
  output_.append_to(polled);
  nodes_.append_to(polled);
  int timeout_ms = -1;
  for (const auto& deadline : {supervisor_.deadline(), standstill_.next()}) {
    if (!deadline) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Supervisor::Clock::now());
    const auto ms = static_cast<int>(std::max(left.count(), std::chrono::milliseconds::rep{0}));
    timeout_ms = timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
  }
  poll(polled.data(), polled.size(), timeout_ms);
}

// tell_waiting() says what `stood` means.
void Launcher::tell_what_processors_do(const Standstill::Stood& stood) {
  const std::vector<NodeSnapshot> nodes = nodes_.statuses().snapshots();
  tell_waiting(nodes, stood, options_, supervisor_);
}

int Launcher::run() {
  if (const Status status = nodes_.check(); !status) return refuse(2, status.error());
  if (const Status status = nodes_.prepare(); !status) return refuse(1, status.error());
  null_ = FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_.is_open()) return refuse(1, fail_errno(errno, "cannot open /dev/null").value());
  if (options_.config.verbose) tell("{}: {}", nodes_.description(), path_);

  for (uint16_t node = 0; node < options_.config.nodes; ++node) {
    const Result<pid_t> pid = start(NodeId(node));
    if (!pid) {
      nodes_.kill_all();
      LocalNodes::end_adopted_processes();
      return refuse(node == 0 ? 2 : 1, pid.error());
    }
    supervisor_.add({});
    supervisor_.started(NodeId(node), *pid);
    if (options_.config.verbose) tell("node {} is pid {}", node, *pid);
  }
  while (supervisor_.anyone_left()) {
    wait_for_something();
    output_.drain();
    if (output_.lost()) supervisor_.output_lost(*output_.lost());
    nodes_.channels().handle([this](NodeId from, uint64_t round, std::span<const std::byte> card) {
      nodes_.channels().deliver(from, round, card);
    });
    while (const auto info = signals_.next()) {
      if (info->ssi_signo == SIGQUIT) tell_what_processors_do({});
      if (info->ssi_signo != SIGCHLD)
        supervisor_.signal_arrived(static_cast<int>(info->ssi_signo), info->ssi_code == SI_KERNEL,
                                   nodes_.node_of(static_cast<pid_t>(info->ssi_pid)));
    }
    for (const NodeEnd& end : nodes_.reap()) {
      if (const std::string words = nodes_.statuses().last_words(end.node); !words.empty())
        fmt::print(stderr, "mgrun: {}\n", words);
      supervisor_.node_ended(end);
    }
    if (const auto stood = standstill_.see(nodes_.statuses().stillness(), Standstill::Clock::now()))
      tell_what_processors_do(*stood);
    supervisor_.check_deadline();
  }
  LocalNodes::end_adopted_processes();
  output_.finish();
  if (output_.lost()) supervisor_.output_lost(*output_.lost());
  if (!options_.quiet) supervisor_.tell_of_copies(options_.program.front());
  if (options_.binary) tell_lost_statistics(options_.config, supervisor_.signal_of_program());
  if (options_.binary && supervisor_.signal_of_program() != 0) die_of(supervisor_.signal_of_program());
  return supervisor_.exit_status();
}

// Returns whether a hosted program needs no launcher beside it: there is one node, and the launcher has nothing to do
// for it.
bool can_stand_aside(const LaunchOptions& options) {
  return is_alone(options) && !options.label_output && !options.config.verbose && options.pinning != Pinning::kAlways;
}

// Executes the host in the place of this process, so that the program's process is the one that its user started: its
// parent, its signals and its end are as without mgrun. Returns only if that fails, and then returns why.
Error become(const std::string& path, const std::vector<std::string>& words) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(guest::name_for_host(*entry));
  signal(SIGXFSZ, SIG_DFL);  // mgrun ignores it (tools/mgrun)
  const int code = exec_file(path, words, variables);
  return fail_errno(code, fmt::format("cannot run '{}'", path)).value();
}

}  // namespace

int launch(const LaunchOptions& given) {
  auto path = find_program(given.program.front());
  if (!path) return refuse(given.binary ? status_of_missing(given.program.front()) : 2, path.error());
  LaunchOptions options = given;
  if (given.binary) {
    const auto host = find_host(!is_alone(given));
    if (!host) return refuse(1, host.error());
    options.program = words_for_host(given, *path);
    path = *host;
    if (can_stand_aside(options)) return refuse(kNotExecutable, become(*path, options.program));
  }
  WatchedSignals signals;
  if (const Status status = signals.watch(); !status) return refuse(1, status.error());
  return run_and_restart(std::move(options), [&](const LaunchOptions& now) -> RunEnd {
    Launcher launcher(now, *path, signals);
    const int status = launcher.run();
    return {status, launcher.was_lost()};
  });
}

}  // namespace multigrain
