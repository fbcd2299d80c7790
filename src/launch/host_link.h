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

  // What the agent says first.
  struct Hello {
    pid_t pid = 0;
    unsigned cores = 0;
    std::string host;         // its own name
    std::string our_address;  // of the ssh connection, as seen over there; empty: there is none
    std::string its_address;
  };

  HostLink(HostNodes nodes, Nanoseconds silence_limit);
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;
  // Ends the process.
  ~HostLink();

  // Starts the process; `command` is its argv. It becomes a session of its own, so that the terminal's signals go to
  // mgrun alone. `dies_with_us`: it is of no use without mgrun, and ends by no means but SIGKILL for certain (ssh).
  Status start(const std::vector<std::string>& command, bool dies_with_us);

  [[nodiscard]] const HostNodes& nodes() const { return nodes_; }
  [[nodiscard]] const std::string& name() const { return nodes_.name; }
  [[nodiscard]] const std::optional<Hello>& hello() const { return hello_; }
  [[nodiscard]] bool open() const { return stream_.has_value(); }

  void append_to(std::vector<pollfd>& polled) const;
  void send(agent::Type type, const FieldWriter& fields = {});
  // From now on the host must not be silent for longer than the limit: its agent has been told what that is.
  void expect_heartbeats() { heartbeat_timer_ = agent::HeartbeatTimer(silence_limit_, Clock::now()); }
  // Sends what is queued, and a sign of life if nothing else was sent for a while.
  void keep_up(Clock::time_point now);
  // Takes in what came, without waiting; next() then has the frames. Error: nothing more will come from this host; what
  // came before can still be had from next(). The sentence says why, without the host's name.
  Status hear(Clock::time_point now);
  // Returns the next frame other than kHello and kHeartbeat, which are dealt with here. Error: the host does not follow
  // the protocol.
  Result<std::optional<Frame>> next();
  // Lines that ssh, or the agent, wrote to standard error since the last call.
  std::vector<std::string> take_complaints();

  // The host is lost: the process here is of no use any more.
  void give_up();
  // Closes the channel, upon which the agent ends.
  void hang_up();
  // The same, and waits a little for the end of the process here, then kills it.
  void end();

 private:
  Result<bool> find_preamble();
  void read_complaints();
  [[nodiscard]] Error explain_end();
  std::optional<int> wait_for_exit(std::chrono::milliseconds limit);

  const HostNodes nodes_;
  const Nanoseconds silence_limit_;
  pid_t pid_ = -1;  // -1: reaped
  std::optional<FrameStream> stream_;
  int raw_ = -1;        // the channel before it is one of frames
  std::string banner_;  // what came by it
  FileDescriptor complaints_pipe_;
  std::string complaint_;  // a line that has not ended
  std::vector<std::string> complaints_;
  std::string last_complaint_;
  std::optional<Hello> hello_;
  agent::HeartbeatTimer heartbeat_timer_;
  Clock::time_point spoke_{};
};

}  // namespace multigrain
