// One host of a run, as mgrun sees it: the process that leads there (ssh, or an agent on this machine), the frames that
// go to its agent and come back, and how it ended.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "fabric/wireup/frames.h"
#include "launch/agent_protocol.h"
#include "launch/hosts.h"

namespace multigrain {

class HostLink {
 public:
  using Clock = std::chrono::steady_clock;

  // The contents of the agent's first frame.
  struct Hello {
    pid_t pid = 0;
    unsigned cores = 0;
    std::string host;         // the host's own name
    std::string our_address;  // mgrun's end of the ssh connection, as the agent sees it; empty: none
    std::string its_address;  // the agent's end
  };

  HostLink(HostNodes nodes, Nanoseconds silence_limit);
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;
  // Ends the process.
  ~HostLink();

  // Starts the process; `command` is its argv. It gets a session of its own, so that the terminal's signals go to mgrun
  // alone. `dies_with_us`: the kernel kills the process when mgrun ends. ssh needs that, because it is of no use
  // without mgrun, and nothing but SIGKILL is certain to end it.
  Status start(const std::vector<std::string>& command, bool dies_with_us);

  [[nodiscard]] const HostNodes& nodes() const { return nodes_; }
  [[nodiscard]] const std::string& name() const { return nodes_.name; }
  [[nodiscard]] const std::optional<Hello>& hello() const { return hello_; }
  [[nodiscard]] bool open() const { return stream_.has_value(); }

  void append_to(std::vector<pollfd>& polled) const;
  void send(agent::Type type, const FieldWriter& fields = {});
  // From now on the host must not be silent for longer than the limit, which its agent has been told.
  void expect_heartbeats() { heartbeat_timer_ = agent::HeartbeatTimer(silence_limit_, Clock::now()); }
  // Sends the frames that are queued, and a heartbeat if nothing else was sent for a while.
  void keep_up(Clock::time_point now);
  // Reads what has come, without waiting; next() then returns the frames. Error: nothing more will come from this host;
  // next() still returns the frames that came before. The sentence says why, without the host's name.
  Status hear(Clock::time_point now);
  // Returns the next frame other than kHello and kHeartbeat, which are dealt with here. Error: the host does not follow
  // the protocol.
  Result<std::optional<Frame>> next();
  // Returns the lines that ssh, or the agent, has written to standard error since the last call.
  std::vector<std::string> take_complaints();

  // The host is lost: kills the process here, which is of no use any more.
  void give_up();
  // Closes the channel, upon which the agent ends.
  void hang_up();
  // Closes the channel, waits a little for the end of the process here, and then kills it.
  void end();

 private:
  Result<bool> find_preamble();
  void read_complaints();
  [[nodiscard]] Error explain_end();
  std::optional<int> wait_for_exit(std::chrono::milliseconds limit);

  const HostNodes nodes_;
  const Nanoseconds silence_limit_;
  pid_t pid_ = -1;  // -1: not started, or reaped
  std::optional<FrameStream> stream_;
  int raw_ = -1;        // the channel, until the agent's first line has come
  std::string banner_;  // text that came before that line
  FileDescriptor complaints_pipe_;
  std::string complaint_;  // a line of standard error that has not ended
  std::vector<std::string> complaints_;
  std::string last_complaint_;
  std::optional<Hello> hello_;
  agent::HeartbeatTimer heartbeat_timer_;
  Clock::time_point spoke_{};
};

}  // namespace multigrain
