#include "launch/host_link.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/child_process.h"
#include "base/shell_status.h"

namespace multigrain {
namespace {

constexpr std::chrono::milliseconds kExitGrace{1000};

// ssh's exit status for failures of its own; any other status is the remote shell's.
constexpr int kSshFailed = 255;

}  // namespace

HostLink::HostLink(HostNodes nodes, Nanoseconds silence_limit)
    : nodes_(std::move(nodes)), silence_limit_(silence_limit), heartbeat_timer_(0, Clock::now()) {}

HostLink::~HostLink() {
  end();
}

Status HostLink::start(const std::vector<std::string>& command, bool dies_with_us) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, fmt::format("host {}: no channel", name()));
  FileDescriptor channel(ends[0]), channel_of_host(ends[1]);
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, fmt::format("host {}: no channel", name()));
  complaints_pipe_ = FileDescriptor(ends[0]);
  FileDescriptor complaints_of_host(ends[1]);
  ChildStart start;
  start.command = command;
  start.input = start.output = channel_of_host.get();
  start.error = complaints_of_host.get();
  start.new_session = true;
  if (dies_with_us) start.parent_death_signal = SIGKILL;
  start.signal_mask.emplace();
  sigemptyset(&*start.signal_mask);
  start.default_signals = {SIGXFSZ};
  const auto process = start_child(start);
  channel_of_host.close();
  complaints_of_host.close();
  raw_ = channel.release();
  fcntl(complaints_pipe_.get(), F_SETFL, O_NONBLOCK);
  stream_.emplace(raw_, raw_);
  if (!process) return fail("host {}: {}", name(), process.error().message);
  pid_ = *process;
  return {};
}

void HostLink::append_to(std::vector<pollfd>& polled) const {
  if (complaints_pipe_.is_open()) polled.push_back({complaints_pipe_.get(), POLLIN, 0});
  if (!stream_) return;
  const short events = stream_->queued() != 0 ? POLLIN | POLLOUT : POLLIN;
  polled.push_back({stream_->in(), events, 0});
}

void HostLink::send(agent::Type type, const FieldWriter& fields) {
  if (!stream_) return;
  stream_->send(type, fields.payload());
  spoke_ = Clock::now();
}

void HostLink::keep_up(Clock::time_point now) {
  if (!stream_) return;
  stream_->flush();
  if (hello_ && now - spoke_ >= agent::heartbeat_interval(silence_limit_)) send(agent::kHeartbeat);
}

// Reads the channel until the agent's first line, which comes after the shell's banner. Returns whether the line has
// been found; then what follows it is in the stream.
Result<bool> HostLink::find_preamble() {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = read(raw_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return tl::unexpected<Error>(explain_end());
    banner_.append(buffer.data(), static_cast<size_t>(got));
    if (banner_.size() > agent::kMaxBanner) return fail("what answers there is not mgrun's agent");
    // Frames may follow the agent's line at once.
    const size_t start = banner_.find(agent::kPreamble);
    const size_t end = start == std::string::npos ? start : banner_.find('\n', start);
    if (end == std::string::npos) continue;
    const std::string said = banner_.substr(start + agent::kPreamble.size(), end - start - agent::kPreamble.size());
    const std::string ours = fmt::format("{} {}", agent::kProtocol, MULTIGRAIN_VERSION);
    if (said != ours)
      return fail("the mgrun there is of another version ('{}' instead of '{}'); install the same on every host", said,
                  ours);
    stream_->feed(std::as_bytes(std::span(banner_).subspan(end + 1)));
    banner_.clear();
    raw_ = -1;
    return true;
  }
  return false;
}

Status HostLink::hear(Clock::time_point now) {
  read_complaints();
  if (!stream_) return {};
  if (raw_ >= 0) {
    const Result<bool> found = find_preamble();
    if (!found) return tl::unexpected<Error>(found.error());
    if (!*found) return {};
  }
  pollfd readable{stream_->in(), POLLIN, 0};
  if (poll(&readable, 1, 0) > 0) {
    heartbeat_timer_.heard(now);
    if (!stream_->receive()) return tl::unexpected<Error>(explain_end());
  }
  if (heartbeat_timer_.expired(now))
    return fail("nothing has been heard from it for {:.3g} s", static_cast<double>(silence_limit_) / 1e9);
  return {};
}

Result<std::optional<Frame>> HostLink::next() {
  while (stream_ && raw_ < 0) {
    auto frame = stream_->next();
    if (!frame || !*frame) return frame;
    if ((*frame)->type == agent::kHeartbeat) continue;
    if ((*frame)->type != agent::kHello || hello_) return frame;
    FieldReader fields((*frame)->payload);
    Hello hello;
    hello.pid = static_cast<pid_t>(fields.number(INT32_MAX));
    hello.cores = static_cast<unsigned>(fields.number(UINT32_MAX));
    hello.host = fields.text();
    hello.our_address = fields.text();
    hello.its_address = fields.text();
    if (!fields.complete()) return fail("its agent introduces itself in a way that is not understood");
    hello_ = std::move(hello);
  }
  return std::nullopt;
}

void HostLink::read_complaints() {
  std::array<char, 4096> buffer;
  while (complaints_pipe_.is_open()) {
    const ssize_t got = read(complaints_pipe_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      complaints_pipe_.close();
    } else {
      complaint_.append(buffer.data(), static_cast<size_t>(got));
    }
    while (true) {
      const size_t newline = complaint_.find('\n');
      if (newline == std::string::npos && (got > 0 || complaint_.empty()) && complaint_.size() < agent::kMaxBanner)
        break;
      std::string line = complaint_.substr(0, newline);
      complaint_.erase(0, newline == std::string::npos ? newline : newline + 1);
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (line.empty()) continue;
      last_complaint_ = line;
      complaints_.push_back(std::move(line));
    }
  }
}

std::vector<std::string> HostLink::take_complaints() {
  return std::exchange(complaints_, {});
}

std::optional<int> HostLink::wait_for_exit(std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  while (pid_ > 0) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (Clock::now() >= until) break;
    usleep(5000);
  }
  return std::nullopt;
}

// Says why the channel has ended, from the way in which the process behind it ended.
Error HostLink::explain_end() {
  const std::optional<int> status = wait_for_exit(kExitGrace);
  read_complaints();
  const std::string said = last_complaint_.empty() ? "" : fmt::format(" ({})", last_complaint_);
  if (hello_) {
    if (status == kSshFailed) return {fmt::format("the connection to its agent broke{}", said)};
    return {fmt::format("its agent has ended{}", said)};
  }
  if (status == kNotFound || status == kNotExecutable)
    return {
        fmt::format("mgrun cannot be run there{}; install Multigrain at the same path on every host, or say with "
                    "--remote-mgrun where it is",
                    said)};
  if (status == kSshFailed) return {fmt::format("ssh cannot connect{}", said)};
  return {fmt::format("its agent did not start{}{}",
                      status ? fmt::format(": ssh ended with status {}", *status) : std::string(), said)};
}

void HostLink::give_up() {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

void HostLink::hang_up() {
  stream_.reset();
  raw_ = -1;
}

void HostLink::end() {
  hang_up();
  if (pid_ > 0 && !wait_for_exit(kExitGrace)) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  complaints_pipe_.close();
}

}  // namespace multigrain
