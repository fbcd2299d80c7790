#include "launch/host_launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/guest_environment.h"
#include "base/shell_words.h"
#include "fabric/wireup/wireup.h"
#include "launch/agent_protocol.h"
#include "launch/host_link.h"
#include "launch/hosted_program.h"
#include "launch/hosts.h"
#include "launch/labels.h"
#include "launch/launcher.h"
#include "launch/output_writer.h"
#include "launch/restarts.h"
#include "launch/signals.h"
#include "launch/standstill.h"
#include "launch/supervisor.h"
#include "launch/tell.h"
#include "launch/waiting.h"
#include "launch/wireup_channels.h"

extern char** environ;

namespace multigrain {
namespace {

using Clock = std::chrono::steady_clock;

// Every host must be ready this long after the start of ssh. ssh itself gives up connecting earlier (kConnectTimeout).
constexpr std::chrono::seconds kStartLimit{60};
constexpr const char* kConnectTimeout = "ConnectTimeout=10";
// Agents that have been told that the run is over have this long to end it.
constexpr std::chrono::seconds kClosingLimit{5};
// Agents that were asked what their processors do have this long to answer: they read debug information first.
constexpr std::chrono::seconds kAnswerLimit{10};
// Supervisor::Rules explains the patience.
constexpr std::chrono::milliseconds kHostPatience{500};

tl::unexpected<Error> unclear(const Frame& frame) {
  return fail("its agent says something that is not understood ({})", frame.type);
}

// Returns whether every node gets the variable as it is here; each host has the other variables of its own.
bool is_forwarded(std::string_view name, const std::vector<std::string>& exported) {
  constexpr std::string_view kPrefixes[] = {"MULTIGRAIN_", "UCX_", "OMP_"};
  constexpr std::string_view kNames[] = {"PATH", "LD_LIBRARY_PATH"};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::ranges::find(kNames, name) != std::end(kNames) || std::ranges::find(exported, name) != exported.end();
}

// Returns the directory in which programs are to start, by the name that the shell has for it: its real name may exist
// on this host alone (automounted file systems).
std::string working_directory() {
  std::array<char, 4096> real{};
  if (getcwd(real.data(), real.size()) == nullptr) return "/";
  const char* const named = std::getenv("PWD");
  struct stat one{};
  struct stat other{};
  if (named != nullptr && named[0] == '/' && stat(named, &one) == 0 && stat(real.data(), &other) == 0 &&
      one.st_dev == other.st_dev && one.st_ino == other.st_ino)
    return named;
  return real.data();
}

bool is_this_machine(const std::string& host) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return host == "localhost" || host == name;
}

std::string own_path() {
  char path[4096] = {};
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "mgrun";
}

class HostLauncher final : private NodeControl {
 public:
  HostLauncher(const LaunchOptions& options, WatchedSignals& signals)
      : options_(options),
        signals_(signals),
        supervisor_(
            *this,
            {.nodes_share_terminal = false, .patience = kHostPatience, .program_speaks_for_itself = options.binary}),
        standstill_(options.deadlock_after) {}
  int run();
  // Returns, after run(), whether a node has died as it should not, and all hosts have said that nothing is left there.
  [[nodiscard]] bool may_begin_again() const { return !refused_ && !is_a_host_lost_ && supervisor_.was_lost(); }

 private:
  enum class Phase {
    kStarting,  // the hosts are being reached
    kReady,     // all hosts have answered, and have been told what to run
    kRunning,
    kClosing,  // the run is over, and the hosts have been told so
  };
  struct Host {
    std::unique_ptr<HostLink> link;
    bool ready = false;
    bool closed = false;    // nothing more will come from it
    Stillness stillness{};  // its nodes' stillness
  };

  // NodeControl
  void signal_all(int number) override;
  void program_ended() override;
  void abort(NodeId culprit) override;

  Status start_links();
  [[nodiscard]] std::vector<std::string> command_for(const HostNodes& host) const;
  void describe_jobs();
  void describe_job(HostLink& link, const std::string& address);
  void start_nodes();

  void wait_for_something();
  void hear(size_t index);
  Status handle_frame(size_t index, const Frame& frame);
  Status handle_node_frame(size_t index, const Frame& frame);
  void host_failed(size_t index, const std::string& reason);
  void refuse(int status, const std::string& message);
  void handle_signals();
  void pass_on_input();
  void pass_on_output(size_t index, NodeId node, int target, std::span<const std::byte> bytes);
  void acknowledge_output();
  void look_at_processors();
  void ask_what_processors_do(const Standstill::Stood& stood);
  void advance();
  void close_run();
  [[nodiscard]] bool all(bool Host::* property) const { return std::ranges::all_of(hosts_, property); }
  [[nodiscard]] bool has(const Host& host, NodeId node) const {
    const HostNodes& nodes = host.link->nodes();
    return node.value >= nodes.first && node.value < nodes.first + nodes.count;
  }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (options_.config.verbose) tell("{}", fmt::format(format, std::forward<Args>(args)...));
  }

  const LaunchOptions& options_;
  std::string path_;       // absolute path of the program
  std::string directory_;  // the program starts in it
  WatchedSignals& signals_;
  Supervisor supervisor_;
  std::vector<Host> hosts_;  // in the order of their nodes: node 0 is on the first
  Phase phase_ = Phase::kStarting;
  Clock::time_point deadline_{};
  std::optional<int> refused_;   // exit status, if the run did not start
  bool is_a_host_lost_ = false;  // nobody knows what is left there
  bool suspension_told_ = false;

  Standstill standstill_;
  // These record when and why mgrun has asked all agents what their processors do, and the answers.
  std::optional<Clock::time_point> asked_;
  Standstill::Stood asked_because_;
  std::map<unsigned, NodeSnapshot> snapshots_;

  OutputWriter writer_;
  std::vector<std::array<LineLabeller, 2>> labellers_;  // one for each node's output and error
  bool input_ended_ = false;
  size_t input_under_way_ = 0;
};

// --- Start

std::vector<std::string> HostLauncher::command_for(const HostNodes& host) const {
  const std::string mgrun = options_.remote_mgrun.empty() ? own_path() : options_.remote_mgrun;
  if (is_this_machine(host.name)) return {own_path(), "--agent"};
  std::vector<std::string> command = options_.ssh;
  // The options of the user's own command come first: ssh takes the first value that it is given.
  for (const char* option :
       {"BatchMode=yes", kConnectTimeout, "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlMaster=no"}) {
    command.emplace_back("-o");
    command.emplace_back(option);
  }
  command.insert(command.end(), {"-T", "-x", host.name, "exec " + quote_for_shell(mgrun) + " --agent"});
  return command;
}

Status HostLauncher::start_links() {
  for (const HostNodes& nodes : options_.hosts) {
    auto link = std::make_unique<HostLink>(nodes, options_.config.silence_limit);
    const std::vector<std::string> command = command_for(nodes);
    say("host {}: {}", nodes.name, fmt::join(command, " "));
    const bool here = is_this_machine(nodes.name);
    if (const Status status = link->start(command, !here); !status) return status;
    hosts_.push_back({.link = std::move(link)});
  }
  return {};
}

// Tells each agent which address of its host to use. The ssh connections show the addresses at which the other hosts
// reach this one; an agent on this machine has no ssh connection.
void HostLauncher::describe_jobs() {
  std::string our_address;
  for (const Host& host : hosts_)
    if (our_address.empty()) our_address = host.link->hello()->our_address;
  // If all hosts are this machine, no other machine needs to reach the nodes.
  const bool all_here =
      std::ranges::all_of(hosts_, [](const Host& host) { return is_this_machine(host.link->name()); });
  if (all_here) our_address = "127.0.0.1";
  for (Host& host : hosts_) {
    const std::string& its_address = host.link->hello()->its_address;
    describe_job(*host.link, is_this_machine(host.link->name()) || its_address.empty() ? our_address : its_address);
  }
}

void HostLauncher::describe_job(HostLink& link, const std::string& address) {
  const Config& config = options_.config;
  link.send(agent::kJob, FieldWriter()
                             .number(config.nodes)
                             .number(config.processors_per_node)
                             .number(static_cast<uint64_t>(config.silence_limit))
                             .number(link.nodes().first)
                             .number(link.nodes().count)
                             .number(static_cast<uint64_t>(options_.pinning))
                             .text(path_)
                             .text(directory_)
                             .text(address)
                             .text(config.interface)
                             .text(config.stats_file)
                             .number(options_.binary ? 1 : 0));
  const std::vector<std::string> words = options_.binary ? words_for_host(options_, path_) : options_.program;
  for (const std::string& argument : words) link.send(agent::kArgument, FieldWriter().text(argument));
  const auto variable = [&](std::string_view name, std::string_view value) {
    link.send(agent::kVariable, FieldWriter().text(name).text(value));
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    const bool overridden =
        std::ranges::any_of(options_.environment, [&](const auto& pair) { return pair.first == name; });
    const std::string_view value = text.substr(std::min(equals + 1, text.size()));
    bool goes = is_forwarded(name, options_.exported);
    if (options_.binary) {
      // A program that is run as it is has the environment that it would have here. Its host also gets the variables
      // that the runtime reads.
      const std::string for_host = guest::name_for_host(text);
      const bool is_renamed = for_host != text;
      if (is_renamed)
        variable(std::string_view(for_host).substr(0, for_host.size() - text.size() + name.size()), value);
      goes = !is_renamed || name.starts_with("MULTIGRAIN_") || name.starts_with("UCX_");
    }
    if (goes && !overridden) variable(name, value);
  }
  for (const auto& [name, value] : options_.environment) variable(name, value);
  link.send(agent::kCheck);
  link.expect_heartbeats();
}

void HostLauncher::start_nodes() {
  phase_ = Phase::kRunning;
  for (Host& host : hosts_) {
    for (unsigned i = 0; i < host.link->nodes().count; ++i) supervisor_.add(host.link->name());
    host.link->send(agent::kGo);
  }
}

// --- NodeControl

void HostLauncher::signal_all(int number) {
  for (Host& host : hosts_) host.link->send(agent::kSignal, FieldWriter().number(static_cast<uint64_t>(number)));
}

void HostLauncher::program_ended() {
  for (Host& host : hosts_) host.link->send(agent::kProgramEnded);
}

void HostLauncher::abort(NodeId culprit) {
  for (Host& host : hosts_) host.link->send(agent::kAbort, FieldWriter().number(culprit.value));
}

// --- Frames from agents

void HostLauncher::refuse(int status, const std::string& message) {
  if (!refused_) {
    refused_ = status;
    tell("{}", message);
  }
  close_run();
}

void HostLauncher::host_failed(size_t index, const std::string& reason) {
  Host& host = hosts_[index];
  host.closed = true;
  is_a_host_lost_ = true;
  host.link->give_up();
  if (phase_ == Phase::kRunning) {
    supervisor_.host_lost(host.link->name(), reason);
  } else if (phase_ != Phase::kClosing) {
    refuse(1, fmt::format("host {}: {}", host.link->name(), reason));
  }
}

void HostLauncher::hear(size_t index) {
  Host& host = hosts_[index];
  HostLink& link = *host.link;
  if (host.closed) return;
  const Clock::time_point now = Clock::now();
  Status heard = link.hear(now);
  link.keep_up(now);
  while (!host.closed) {
    const auto frame = link.next();
    if (frame && !*frame) break;
    if (frame) {
      const Status handled = handle_frame(index, **frame);
      if (handled) continue;
      heard = handled;
    } else {
      heard = tl::unexpected<Error>(frame.error());
    }
    break;
  }
  // Until the agent has sent its hello, ssh's messages are the reason of a failure, and explain_end() has them;
  // afterwards the user sees them at once.
  if (link.hello() && !host.closed && heard)
    for (const std::string& line : link.take_complaints()) tell("host {}: {}", link.name(), line);
  if (!heard && !host.closed) host_failed(index, heard.error().message);
}

// Handles a frame about the agent's host.
Status HostLauncher::handle_frame(size_t index, const Frame& frame) {
  Host& host = hosts_[index];
  FieldReader fields(frame.payload);
  switch (frame.type) {
    case agent::kReady: {
      const std::string description = fields.text();
      if (!fields.complete()) return unclear(frame);
      host.ready = true;
      say("host {} ({}): {}", host.link->name(), host.link->hello()->host, description);
      return {};
    }
    case agent::kRefuse: {
      const uint64_t status = fields.number(255);
      const std::string reason = fields.text();
      if (!fields.complete()) return unclear(frame);
      // An agent that refuses later gives up a run that has begun.
      if (phase_ == Phase::kRunning && supervisor_.has_started(NodeId(static_cast<uint16_t>(host.link->nodes().first))))
        return fail("{}", reason);
      refuse(static_cast<int>(status), fmt::format("host {}: {}", host.link->name(), reason));
      return {};
    }
    case agent::kInputTaken: {
      const uint64_t bytes = fields.number(input_under_way_);
      if (!fields.complete() || index != 0) return unclear(frame);
      input_under_way_ -= bytes;
      return {};
    }
    case agent::kLastWords: {
      const std::string words = fields.text();
      if (!fields.complete()) return unclear(frame);
      if (phase_ == Phase::kRunning) fmt::print(stderr, "mgrun: {}\n", words);
      return {};
    }
    case agent::kStillness: {
      Stillness now;
      now.still = fields.number(1) != 0;
      now.anyone = fields.number(1) != 0;
      now.outside = fields.number(1) != 0;
      now.digest = fields.number();
      if (!fields.complete()) return unclear(frame);
      host.stillness = now;
      return {};
    }
    case agent::kClosed:
      host.closed = true;
      return {};
    default:
      return handle_node_frame(index, frame);
  }
}

// Handles a frame about one of the agent's nodes.
Status HostLauncher::handle_node_frame(size_t index, const Frame& frame) {
  Host& host = hosts_[index];
  FieldReader fields(frame.payload);
  const auto read_node = [&] { return NodeId(static_cast<uint16_t>(fields.number(Config::kMaxUcxNodes - 1))); };
  switch (frame.type) {
    case agent::kStarted: {
      const NodeId node = read_node();
      const auto pid = static_cast<pid_t>(fields.number(INT32_MAX));
      if (!fields.complete() || !has(host, node) || phase_ == Phase::kStarting) return unclear(frame);
      if (phase_ == Phase::kRunning) supervisor_.started(node, pid);
      say("node {} is pid {} on host {}", node.value, pid, host.link->name());
      return {};
    }
    case agent::kOutput: {
      const NodeId node = read_node();
      const auto stream = static_cast<int>(fields.number(STDERR_FILENO));
      const auto bytes = fields.blob();
      if (!fields.complete() || !has(host, node) || stream < STDOUT_FILENO) return unclear(frame);
      pass_on_output(index, node, stream, bytes);
      return {};
    }
    case agent::kCard: {
      const uint64_t round = fields.number(kMaxWireupRounds);
      const NodeId node = read_node();
      const auto card = fields.blob();
      if (!fields.complete() || !has(host, node) || card.size() > Wireup::kMaxCard) return unclear(frame);
      for (Host& other : hosts_)
        other.link->send(agent::kCard, FieldWriter().number(round).number(node.value).blob(card));
      return {};
    }
    case agent::kEnded: {
      NodeEnd end;
      end.node = read_node();
      end.pid = static_cast<pid_t>(fields.number(INT32_MAX));
      end.status = static_cast<int>(fields.number(UINT32_MAX));
      end.attached = fields.number(1) != 0;
      end.run_over = fields.number(1) != 0;
      end.memory = static_cast<MemoryKill>(fields.number(static_cast<uint64_t>(MemoryKill::kUnknown)));
      if (!fields.complete() || !has(host, end.node)) return unclear(frame);
      if (phase_ == Phase::kRunning) supervisor_.node_ended(end);
      return {};
    }
    case agent::kSignalled: {
      const NodeId node = read_node();
      const auto number = static_cast<int>(fields.number(64));
      if (!fields.complete() || !has(host, node)) return unclear(frame);
      if (phase_ == Phase::kRunning) supervisor_.signal_arrived(number, false, node);
      return {};
    }
    case agent::kSnapshot: {
      const NodeId node = read_node();
      auto snapshot = unpack(fields.blob());
      if (!fields.complete() || !has(host, node) || !snapshot || snapshot->node != node.value) return unclear(frame);
      snapshots_[node.value] = std::move(*snapshot);
      return {};
    }
    default:
      return unclear(frame);
  }
}

// --- Input and output

void HostLauncher::pass_on_output(size_t index, NodeId node, int target, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  LineLabeller& labeller = labellers_[node.value][target == STDOUT_FILENO ? 0 : 1];
  writer_.write(target, options_.label_output ? labeller.add(text) : std::string(text), index, bytes.size());
}

void HostLauncher::acknowledge_output() {
  std::vector<size_t> bytes(hosts_.size());
  for (const OutputWriter::Done& done : writer_.take_done()) bytes[done.owner] += done.bytes;
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (bytes[i] != 0) hosts_[i].link->send(agent::kTaken, FieldWriter().number(bytes[i]));
}

void HostLauncher::pass_on_input() {
  if (input_ended_ || phase_ != Phase::kRunning || input_under_way_ + agent::kPiece > agent::kCreditWindow) return;
  pollfd readable{STDIN_FILENO, POLLIN, 0};
  if (poll(&readable, 1, 0) <= 0) return;
  // If this process is in the background of a terminal, reading would stop it and with it the run's heartbeats.
  if (isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
  std::array<std::byte, agent::kPiece> buffer;
  const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got > 0) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(got));
    input_under_way_ += piece.size();
    hosts_.front().link->send(agent::kInput, FieldWriter().blob(piece));
    return;
  }
  input_ended_ = true;
  hosts_.front().link->send(agent::kInputEnd);
}

// --- The run

void HostLauncher::handle_signals() {
  while (const auto info = signals_.next()) {
    const auto number = static_cast<int>(info->ssi_signo);
    if (number == SIGCHLD) continue;
    if (number == SIGTSTP) {
      if (!suspension_told_) tell("a run on several hosts cannot be suspended");
      suspension_told_ = true;
    } else if (phase_ == Phase::kRunning) {
      if (number == SIGQUIT) ask_what_processors_do({});
      supervisor_.signal_arrived(number, info->ssi_code == SI_KERNEL, std::nullopt);
    } else if (phase_ != Phase::kClosing && number != SIGUSR1 && number != SIGUSR2) {
      refuse(128 + number, fmt::format("{} ended the run before it began", signal_name(number)));
    }
  }
}

void HostLauncher::wait_for_something() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}, {writer_.descriptor(), POLLIN, 0}};
  for (const Host& host : hosts_)
    if (!host.closed) host.link->append_to(polled);
  const bool in_foreground = isatty(STDIN_FILENO) == 0 || tcgetpgrp(STDIN_FILENO) == getpgrp();
  if (!input_ended_ && phase_ == Phase::kRunning && in_foreground &&
      input_under_way_ + agent::kPiece <= agent::kCreditWindow)
    polled.push_back({STDIN_FILENO, POLLIN, 0});
  Clock::time_point until = Clock::now() + agent::heartbeat_interval(options_.config.silence_limit);
  if (const auto deadline = supervisor_.deadline()) until = std::min(until, *deadline);
  if (const auto next = standstill_.next()) until = std::min(until, *next);
  if (asked_) until = std::min(until, *asked_ + kAnswerLimit);
  if (phase_ != Phase::kRunning) until = std::min(until, deadline_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  poll(polled.data(), polled.size(), static_cast<int>(std::max(left.count(), std::chrono::milliseconds::rep{0})));
}

// --- The state of the processors

void HostLauncher::ask_what_processors_do(const Standstill::Stood& stood) {
  if (asked_) return;
  asked_ = Clock::now();
  asked_because_ = stood;
  snapshots_.clear();
  for (Host& host : hosts_)
    if (!host.closed) host.link->send(agent::kAsk);
}

void HostLauncher::look_at_processors() {
  const Clock::time_point now = Clock::now();
  if (asked_ && (snapshots_.size() == options_.config.nodes || now >= *asked_ + kAnswerLimit)) {
    asked_.reset();
    std::vector<NodeSnapshot> nodes;
    for (unsigned node = 0; node < options_.config.nodes; ++node) {
      auto& snapshot = snapshots_[node];
      snapshot.node = node;
      nodes.push_back(std::move(snapshot));
    }
    tell_waiting(nodes, asked_because_, options_, supervisor_);
  }
  Stillness all{.still = true};
  for (const Host& host : hosts_) {
    if (!host.stillness.still) all.still = false;
    all.anyone = all.anyone || host.stillness.anyone;
    all.outside = all.outside || host.stillness.outside;
    all.digest = all.digest * 31 + host.stillness.digest;
  }
  if (const auto stood = standstill_.see(all, now)) ask_what_processors_do(*stood);
}

// Takes the next step of the run, after all frames that came were handled.
void HostLauncher::advance() {
  const Clock::time_point now = Clock::now();
  switch (phase_) {
    case Phase::kStarting:
      if (std::ranges::all_of(hosts_, [](const Host& host) { return host.link->hello().has_value(); })) {
        phase_ = Phase::kReady;
        describe_jobs();
      } else if (now >= deadline_) {
        const auto silent =
            std::ranges::find_if(hosts_, [](const Host& host) { return !host.link->hello().has_value(); });
        refuse(1, fmt::format("host {}: mgrun's agent has not answered within {} s", silent->link->name(),
                              kStartLimit.count()));
      }
      return;
    case Phase::kReady:
      if (all(&Host::ready)) start_nodes();
      return;
    case Phase::kRunning:
      look_at_processors();
      supervisor_.check_deadline();
      if (!supervisor_.anyone_left()) close_run();
      return;
    case Phase::kClosing:
      if (now < deadline_) return;
      for (Host& host : hosts_) {
        if (host.closed) continue;
        tell("host {} does not say whether anything is left there", host.link->name());
        host.closed = true;
        is_a_host_lost_ = true;
      }
      return;
  }
}

void HostLauncher::close_run() {
  if (phase_ == Phase::kClosing) return;
  phase_ = Phase::kClosing;
  deadline_ = Clock::now() + kClosingLimit;
  for (Host& host : hosts_) {
    // An agent that has not sent its hello does not listen yet; the end of the channel tells it that the run is over.
    if (host.link->hello()) {
      host.link->send(agent::kClose);
    } else {
      host.closed = true;
    }
  }
}

int HostLauncher::run() {
  auto path = find_program(options_.program.front());
  if (!path) {
    tell("{}", path.error().message);
    return options_.binary ? status_of_missing(options_.program.front()) : 2;
  }
  directory_ = working_directory();
  path_ = path->starts_with('/') ? *path : directory_ + "/" + *path;
  for (unsigned node = 0; node < options_.config.nodes; ++node) {
    const NodeId id(static_cast<uint16_t>(node));
    labellers_.push_back({LineLabeller(id), LineLabeller(id)});
  }
  const auto begin = [this]() -> Status {
    // The links are started before there is another thread.
    if (const Status status = start_links(); !status) return status;
    return writer_.start();
  };
  if (const Status begun = begin(); !begun) {
    tell("{}", begun.error().message);
    return 1;
  }
  deadline_ = Clock::now() + kStartLimit;
  while (!(phase_ == Phase::kClosing && all(&Host::closed))) {
    wait_for_something();
    for (size_t i = 0; i < hosts_.size(); ++i) hear(i);
    acknowledge_output();
    if (phase_ == Phase::kRunning)
      if (const auto lost = writer_.lost()) supervisor_.output_lost(*lost);
    pass_on_input();
    handle_signals();
    advance();
  }
  // All channels are closed first, so that the agents end at the same time, not one after the other.
  for (Host& host : hosts_) host.link->hang_up();
  for (Host& host : hosts_) host.link->end();
  for (size_t node = 0; node < labellers_.size(); ++node) {
    writer_.write(STDOUT_FILENO, labellers_[node][0].finish(), 0, 0);
    writer_.write(STDERR_FILENO, labellers_[node][1].finish(), 0, 0);
  }
  writer_.finish();
  if (const auto lost = writer_.lost()) supervisor_.output_lost(*lost);
  if (!refused_ && !options_.quiet) supervisor_.tell_of_copies(options_.program.front());
  if (refused_) return *refused_;
  if (options_.binary) tell_lost_statistics(options_.config, supervisor_.signal_of_program());
  if (options_.binary && supervisor_.signal_of_program() != 0) die_of(supervisor_.signal_of_program());
  return supervisor_.exit_status();
}

}  // namespace

int launch_on_hosts(const LaunchOptions& options) {
  WatchedSignals signals;
  if (const Status status = signals.watch({SIGTSTP}); !status) {
    tell("{}", status.error().message);
    return 1;
  }
  return run_and_restart(options, [&](const LaunchOptions& now) -> RunEnd {
    HostLauncher launcher(now, signals);
    const int status = launcher.run();
    return {status, launcher.may_begin_again()};
  });
}

}  // namespace multigrain
