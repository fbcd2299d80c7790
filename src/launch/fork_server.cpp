#include "launch/fork_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/child_process.h"
#include "base/fork_server.h"
#include "launch/signals.h"

namespace multigrain {
namespace {

using namespace fork_server;

// Returns a signal that has been sent to this process to end it, and is blocked; 0 if there is none.
int signal_to_end() {
  sigset_t pending;
  if (sigpending(&pending) != 0) return 0;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (sigismember(&pending, number) == 1) return number;
  return 0;
}

}  // namespace

tl::unexpected<Error> ForkServer::refuse(std::string_view why) const {
  // A shell that has started the program may have more to do.
  if (process_ > 0) kill(process_, SIGKILL);
  return fail(
      "'{}' cannot be started on several nodes: address randomisation cannot be turned off (the system call personality is "
      "forbidden), so that the nodes have to be copies of one process, but {}; docs/user/cluster.md, \"In containers\"",
      path_, why);
}

Result<std::unique_ptr<ForkServer>> ForkServer::start(NodeStart start) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "cannot make a channel to the process that forks nodes");
  FileDescriptor socket(ends[0]);
  FileDescriptor of_server(ends[1]);
  start.environment.push_back(fmt::format("{}={},{}", kVariable, of_server.get(), getpid()));
  start.inherited.push_back(of_server.get());
  start.any_addresses = true;
  const Result<pid_t> process = start_node(start);
  if (!process) return tl::unexpected<Error>(process.error());
  std::unique_ptr<ForkServer> server(new ForkServer(std::move(socket), *process, start.path));
  of_server.close();  // so that this process sees the end of the server

  Hello hello{};
  const Result<bool> said = server->receive(&hello, sizeof hello);
  if (!said) return tl::unexpected<Error>(said.error());
  if (!*said) {
    const int status = wait_for_child(std::exchange(server->process_, -1));
    const std::string end =
        WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : fmt::format("status {}", WEXITSTATUS(status));
    return server->refuse(fmt::format("it has ended, with {}, and has not loaded Multigrain's library", end));
  }
  if (hello.parent != getpid())
    return server->refuse(
        "it is another program's child; let what mgrun starts execute it in its place (exec in a shell)");
  if (hello.threads != 1) return server->refuse("one of its libraries has started a thread while it was loaded");
  return server;
}

ForkServer::~ForkServer() {
  socket_.close();
  if (process_ > 0) wait_for_child(process_);
}

Result<bool> ForkServer::receive(void* packet, size_t bytes) {
  while (true) {
    pollfd polled = {socket_.get(), POLLIN, 0};
    constexpr int kLookForSignals_ms = 50;
    if (const int ready = poll(&polled, 1, kLookForSignals_ms); ready <= 0) {
      if (const int number = signal_to_end(); number != 0) {
        kill(process_, SIGKILL);
        return fail("{} has come before the program had loaded Multigrain's library", signal_name(number));
      }
      continue;
    }
    const ssize_t got = recv(socket_.get(), packet, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    return got == static_cast<ssize_t>(bytes);
  }
}

Result<pid_t> ForkServer::fork_node(std::span<const std::string> variables, int input, int output, int error,
                                    int status) {
  std::string text;
  for (const std::string& variable : variables) (text += variable) += '\0';
  if (text.size() > kMaxRequest) return fail("cannot start a node: its variables have {} bytes", text.size());
  const std::array<int, kDescriptors> descriptors = {input, output, error, status};
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0)
    return fail_errno(errno, "cannot ask for a node to be forked");
  Reply reply{};
  const Result<bool> said = receive(&reply, sizeof reply);
  if (!said) return tl::unexpected<Error>(said.error());
  if (!*said) return fail("cannot start a node: the process that forks nodes has ended");
  if (reply.process < 0) return fail_errno(reply.code, "cannot start a node: no process");
  return reply.process;
}

}  // namespace multigrain
