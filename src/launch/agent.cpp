#include "launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "fabric/wireup/frames.h"
#include "fabric/wireup/wireup.h"
#include "launch/agent_protocol.h"
#include "launch/command_line.h"
#include "launch/hosted_program.h"
#include "launch/interfaces.h"
#include "launch/labels.h"
#include "launch/local_nodes.h"
#include "launch/pinning.h"
#include "launch/signals.h"

extern char** environ;

namespace multigrain {
namespace {

using Clock = std::chrono::steady_clock;

// At the end of the run the agent waits for this long for the end of the nodes' output: a process of the run may have
// escaped, with a node's standard output still open.
constexpr std::chrono::seconds kLastWords{2};
// The agent sends at most this much text about a node that has crashed.
constexpr size_t kMaxLastWords = 64 * 1024;

// One node's standard output or error.
struct OutputPipe {
  FileDescriptor pipe;
  NodeId node;
  int stream;
};

class Agent {
 public:
  Agent(int in, int out) : root_(in, out), heartbeat_timer_(0, Clock::now()) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  int run();

 private:
  enum class Phase { kDescribed, kReady, kRunning, kClosing, kOver };

  void say_hello();
  void wait_for_something();
  bool hear();
  bool handle_frame(const Frame& frame);
  bool handle_job_frame(const Frame& frame);
  bool take_job(FieldReader& fields);
  void check_job();
  void start_nodes();
  Result<pid_t> start_node(NodeId node);
  Result<int> open_pipe(NodeId node, int stream);
  void refuse(int status, const std::string& reason);
  void pass_on_input();
  void pass_on_output();
  void tell_stillness();
  void close_run();
  void send(agent::Type type, const FieldWriter& fields = {}) {
    root_.send(type, fields.payload());
    spoke_ = Clock::now();
  }

  FrameStream root_;
  WatchedSignals signals_;
  Phase phase_ = Phase::kDescribed;
  LocalJob job_;
  std::string directory_;
  std::string interface_address_;
  std::unique_ptr<LocalNodes> nodes_;
  agent::HeartbeatTimer heartbeat_timer_;
  Clock::time_point spoke_{};
  Clock::time_point last_words_until_{};
  Stillness told_;  // the last one that mgrun was told

  FileDescriptor null_;
  FileDescriptor input_;  // the writing end of node 0's standard input
  std::string waiting_input_;
  bool input_ended_ = false;
  std::vector<OutputPipe> outputs_;
  size_t under_way_ = 0;  // bytes of output that mgrun has not passed on
};

// --- Frames from mgrun

bool Agent::hear() {
  const bool open = root_.receive();
  bool good = true;
  bool any = false;
  while (good) {
    const auto frame = root_.next();
    if (frame && !*frame) break;
    any = true;
    good = frame && handle_frame(**frame);
  }
  if (any) heartbeat_timer_.heard(Clock::now());
  return open && good;
}

bool Agent::take_job(FieldReader& fields) {
  job_.config.fabric = FabricKind::kUcx;
  job_.config.nodes = static_cast<unsigned>(fields.number(Config::kMaxUcxNodes));
  job_.config.processors_per_node = static_cast<unsigned>(fields.number(Config::kMaxProcessorsPerNode));
  job_.config.silence_limit = static_cast<Nanoseconds>(fields.number(uint64_t{1} << 62));
  job_.first = NodeId(static_cast<uint16_t>(fields.number(Config::kMaxUcxNodes - 1)));
  job_.count = static_cast<unsigned>(fields.number(Config::kMaxUcxNodes));
  job_.pinning = static_cast<Pinning>(fields.number(static_cast<uint64_t>(Pinning::kNever)));
  job_.path = fields.text();
  directory_ = fields.text();
  interface_address_ = fields.text();
  job_.config.interface = fields.text();
  job_.config.stats_file = fields.text();
  job_.hosted = fields.number(1) != 0;
  job_.has_all_of_environment = job_.hosted;
  heartbeat_timer_ = agent::HeartbeatTimer(job_.config.silence_limit, Clock::now());
  return fields.complete() && job_.config.processors_per_node != 0 && job_.count != 0 &&
         job_.first.value + job_.count <= job_.config.nodes;
}

bool Agent::handle_job_frame(const Frame& frame) {
  FieldReader fields(frame.payload);
  switch (frame.type) {
    case agent::kJob:
      return take_job(fields);
    case agent::kArgument:
      job_.arguments.push_back(fields.text());
      return fields.complete();
    case agent::kVariable: {
      std::string name = fields.text();
      job_.environment.emplace_back(std::move(name), fields.text());
      return fields.complete();
    }
    case agent::kCheck:
      if (job_.count == 0 || job_.arguments.empty()) return false;
      check_job();
      return true;
    default:
      return false;
  }
}

// Returns false if the frame breaks the protocol: the agent does not believe this mgrun any more.
bool Agent::handle_frame(const Frame& frame) {
  FieldReader fields(frame.payload);
  switch (frame.type) {
    case agent::kHeartbeat:
      return true;
    case agent::kClose:
      close_run();
      return true;
    case agent::kGo:
      if (phase_ != Phase::kReady) return false;
      start_nodes();
      return true;
    case agent::kInput: {
      const auto bytes = fields.blob();
      if (!fields.complete() || input_ended_ || waiting_input_.size() + bytes.size() > agent::kCreditWindow)
        return false;
      waiting_input_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return true;
    }
    case agent::kInputEnd:
      input_ended_ = true;
      return true;
    case agent::kTaken: {
      const uint64_t bytes = fields.number(under_way_);
      under_way_ -= bytes;
      return fields.complete();
    }
    case agent::kSignal: {
      const auto number = static_cast<int>(fields.number(64));
      if (fields.complete() && nodes_) nodes_->signal_all(number);
      return fields.complete();
    }
    case agent::kAsk:
      if (nodes_)
        for (const NodeSnapshot& snapshot : nodes_->statuses().snapshots())
          send(agent::kSnapshot, FieldWriter().number(snapshot.node).blob(pack(snapshot)));
      return true;
    case agent::kProgramEnded:
      if (nodes_) nodes_->program_ended();
      return true;
    case agent::kAbort: {
      const NodeId culprit(static_cast<uint16_t>(fields.number(Config::kMaxUcxNodes - 1)));
      if (fields.complete() && nodes_) nodes_->abort(culprit);
      return fields.complete();
    }
    case agent::kCard: {
      const uint64_t round = fields.number(kMaxWireupRounds);
      const NodeId from(static_cast<uint16_t>(fields.number(Config::kMaxUcxNodes - 1)));
      const auto card = fields.blob();
      if (!fields.complete() || card.size() > Wireup::kMaxCard) return false;
      if (nodes_) nodes_->channels().deliver(from, round, card);
      return true;
    }
    default:
      return phase_ == Phase::kDescribed && handle_job_frame(frame);
  }
}

// --- The job

void Agent::refuse(int status, const std::string& reason) {
  send(agent::kRefuse, FieldWriter().number(static_cast<uint64_t>(status)).text(reason));
}

void Agent::check_job() {
  if (chdir(directory_.c_str()) != 0) {
    const int code = errno;
    return refuse(2, fail_errno(code, fmt::format("cannot enter the working directory '{}', which must be there on "
                                                  "every host",
                                                  directory_))
                         .value()
                         .message);
  }
  // Variables that a shell's start-up file on this host sets would make this host differ from the others.
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name(*entry, std::string_view(*entry).find('='));
    if (name.starts_with("MULTIGRAIN_")) names.emplace_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());

  if (job_.hosted) {
    const auto host = find_host(true);
    if (!host) return refuse(1, host.error().message);
    job_.path = *host;
  }
  if (const auto found = find_program(job_.path); !found)
    return refuse(2, found.error().message + "; the program must be at the same path on every host");
  const auto has = [this](const char* name) {
    return std::ranges::any_of(job_.environment, [&](const auto& pair) { return pair.first == name; });
  };
  if (!has("MULTIGRAIN_INTERFACE") && !has("UCX_NET_DEVICES")) {
    const std::string interface = interface_with(interface_address_);
    if (!interface.empty()) job_.environment.emplace_back("MULTIGRAIN_INTERFACE", interface);
  }
  null_ = FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_.is_open()) return refuse(1, "cannot open /dev/null");
  job_.signal_mask = signals_.program_mask();
  nodes_ = std::make_unique<LocalNodes>(job_);
  if (const Status status = nodes_->check(); !status) return refuse(2, status.error().message);
  if (const Status status = nodes_->prepare(); !status) return refuse(1, status.error().message);
  phase_ = Phase::kReady;
  send(agent::kReady, FieldWriter().text(nodes_->description()));
}

Result<int> Agent::open_pipe(NodeId node, int stream) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot pass on the output of a node");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  outputs_.push_back({FileDescriptor(ends[0]), node, stream});
  return ends[1];
}

Result<pid_t> Agent::start_node(NodeId node) {
  std::vector<FileDescriptor> close_after;
  StandardDescriptors standard{.input = null_.get()};
  if (node == NodeId(0)) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot pass on the input");
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    input_ = FileDescriptor(ends[1]);
    standard.input = ends[0];
    close_after.emplace_back(ends[0]);
  }
  const Result<int> output = open_pipe(node, STDOUT_FILENO);
  if (output) close_after.emplace_back(*output);
  const Result<int> error = open_pipe(node, STDERR_FILENO);
  if (error) close_after.emplace_back(*error);
  if (!output || !error) return fail("cannot pass on the output of a node");
  standard.output = *output;
  standard.error = *error;
  return nodes_->start_next(standard);
}

void Agent::start_nodes() {
  phase_ = Phase::kRunning;
  for (unsigned i = 0; i < job_.count; ++i) {
    const NodeId node(static_cast<uint16_t>(job_.first.value + i));
    const Result<pid_t> pid = start_node(node);
    if (!pid) {
      nodes_->kill_all();
      return refuse(i == 0 ? 2 : 1, pid.error().message);
    }
    send(agent::kStarted, FieldWriter().number(node.value).number(static_cast<uint64_t>(*pid)));
  }
}

// --- Input and output

void Agent::pass_on_input() {
  size_t passed = 0;
  while (input_.is_open() && passed < waiting_input_.size()) {
    const ssize_t written = write(input_.get(), waiting_input_.data() + passed, waiting_input_.size() - passed);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) {
      // Node 0 does not read any more.
      input_.close();
      break;
    }
    passed += static_cast<size_t>(written);
  }
  // Without a reader the input is thrown away, as in any shell.
  if (!input_.is_open() && phase_ != Phase::kReady && phase_ != Phase::kDescribed) passed = waiting_input_.size();
  waiting_input_.erase(0, passed);
  if (passed != 0) send(agent::kInputTaken, FieldWriter().number(passed));
  if (input_ended_ && waiting_input_.empty()) input_.close();
}

void Agent::pass_on_output() {
  std::array<std::byte, agent::kPiece> buffer;
  for (OutputPipe& output : outputs_) {
    while (output.pipe.is_open() && under_way_ + buffer.size() <= agent::kCreditWindow) {
      const ssize_t got = read(output.pipe.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) {
        output.pipe.close();
        break;
      }
      const auto piece = std::span(buffer).first(static_cast<size_t>(got));
      under_way_ += piece.size();
      send(agent::kOutput,
           FieldWriter().number(output.node.value).number(static_cast<uint64_t>(output.stream)).blob(piece));
    }
  }
  std::erase_if(outputs_, [](const OutputPipe& output) { return !output.pipe.is_open(); });
}

// --- The run

void Agent::say_hello() {
  const std::string line = fmt::format("{}{} {}\n", agent::kPreamble, agent::kProtocol, MULTIGRAIN_VERSION);
  write_all(root_.out(), line);
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  // sshd sets this to "client port server port".
  const char* const connection = std::getenv("SSH_CONNECTION");
  std::istringstream words(connection != nullptr ? connection : "");
  std::string client, client_port, server;
  words >> client >> client_port >> server;
  send(agent::kHello, FieldWriter()
                          .number(static_cast<uint64_t>(getpid()))
                          .number(usable_cores())
                          .text(name)
                          .text(client)
                          .text(server));
}

void Agent::wait_for_something() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}, {root_.in(), POLLIN, 0}};
  if (root_.queued() != 0) polled.push_back({root_.out(), POLLOUT, 0});
  if (input_.is_open() && !waiting_input_.empty()) polled.push_back({input_.get(), POLLOUT, 0});
  if (under_way_ + agent::kPiece <= agent::kCreditWindow)
    for (const OutputPipe& output : outputs_) polled.push_back({output.pipe.get(), POLLIN, 0});
  if (nodes_) nodes_->append_to(polled);
  auto left = agent::heartbeat_interval(job_.config.silence_limit);
  if (phase_ == Phase::kClosing) left = std::min(left, std::chrono::nanoseconds(std::chrono::milliseconds(100)));
  poll(polled.data(), polled.size(), static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
}

void Agent::tell_stillness() {
  const Stillness now = nodes_->statuses().stillness();
  if (now == told_) return;
  told_ = now;
  send(agent::kStillness, FieldWriter()
                              .number(now.still ? 1 : 0)
                              .number(now.anyone ? 1 : 0)
                              .number(now.outside ? 1 : 0)
                              .number(now.digest));
}

void Agent::close_run() {
  if (phase_ == Phase::kClosing) return;
  phase_ = Phase::kClosing;
  last_words_until_ = Clock::now() + kLastWords;
  if (nodes_) nodes_->kill_all();
  LocalNodes::end_adopted_processes();
}

int Agent::run() {
  if (const Status status = signals_.watch({SIGPIPE}); !status) return 1;
  say_hello();
  while (phase_ != Phase::kOver) {
    wait_for_something();
    root_.flush();
    const Clock::time_point now = Clock::now();
    if (!hear()) {
      // mgrun is gone: the run is over, and no frame would reach it.
      close_run();
      return 1;
    }
    if (heartbeat_timer_.expired(now)) {
      // mgrun may read this if it was only stopped.
      refuse(1, fmt::format("its agent has heard nothing from mgrun for {:.3g} s and has ended its nodes (mgrun was "
                            "stopped, or the network paused; --timeout says how long that may last)",
                            static_cast<double>(job_.config.silence_limit) / 1e9));
      root_.flush();
      close_run();
      return 1;
    }
    if (now - spoke_ >= agent::heartbeat_interval(job_.config.silence_limit)) send(agent::kHeartbeat);
    // Signals for the nodes come from mgrun in frames: a signal that arrives here is meant for this process.
    while (const auto signal = signals_.next()) {
      const auto number = static_cast<int>(signal->ssi_signo);
      if (number == SIGCHLD || number == SIGPIPE || phase_ == Phase::kClosing) continue;
      // A node passes on a signal that is for the run.
      const auto node = nodes_ ? nodes_->node_of(static_cast<pid_t>(signal->ssi_pid)) : std::nullopt;
      if (node) {
        send(agent::kSignalled, FieldWriter().number(node->value).number(static_cast<uint64_t>(number)));
        continue;
      }
      refuse(1, fmt::format("its agent was ended by {}", signal_name(number)));
      close_run();
      return 1;
    }
    if (nodes_) {
      nodes_->channels().handle([this](NodeId from, uint64_t round, std::span<const std::byte> card) {
        send(agent::kCard, FieldWriter().number(round).number(from.value).blob(card));
      });
      pass_on_input();
      pass_on_output();
      if (phase_ == Phase::kRunning) {
        for (const NodeEnd& end : nodes_->reap()) {
          if (const std::string words = nodes_->statuses().last_words(end.node); !words.empty())
            send(agent::kLastWords, FieldWriter().text(std::string_view(words).substr(0, kMaxLastWords)));
          send(agent::kEnded, FieldWriter()
                                  .number(end.node.value)
                                  .number(static_cast<uint64_t>(end.pid))
                                  .number(static_cast<uint32_t>(end.status))
                                  .number(end.attached ? 1 : 0)
                                  .number(end.run_over ? 1 : 0)
                                  .number(static_cast<uint64_t>(end.memory)));
        }
        tell_stillness();
      }
    }
    if (phase_ == Phase::kClosing && (outputs_.empty() || now >= last_words_until_)) {
      send(agent::kClosed);
      phase_ = Phase::kOver;
    }
  }
  while (root_.queued() != 0) {
    pollfd room{root_.out(), POLLOUT, 0};
    if (poll(&room, 1, static_cast<int>(std::chrono::milliseconds(kLastWords).count())) <= 0) break;
    root_.flush();
  }
  return 0;
}

}  // namespace

int run_agent() {
  // The nodes must not inherit mgrun's channel.
  const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (in < 0 || out < 0 || !null.is_open() || dup2(null.get(), STDIN_FILENO) < 0 ||
      dup2(null.get(), STDOUT_FILENO) < 0) {
    fmt::print(stderr, "mgrun --agent: there is no channel to mgrun; it is mgrun that starts agents\n");
    return 2;
  }
  null.close();
  return Agent(in, out).run();
}

}  // namespace multigrain
