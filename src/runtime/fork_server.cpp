// A process that forks the nodes of a run, so that they agree on addresses although these are randomised. The protocol is
// in base/fork_server.h; mgrun's side is launch/fork_server.h.
//
// The program becomes this server while its libraries are loaded: before the constructors of this library that keep
// anything, and before the program's own. What libraries have done by then, the nodes have in common.
//
//   parent        A node must be a child of mgrun, which waits for it. The server ends when all nodes are forked, and mgrun is
//                 their next ancestor that adopts processes (PR_SET_CHILD_SUBREAPER). A node waits for that, and asks only then
//                 to be killed when its parent ends, or the server's end would kill it.
//   environment   A node's variables replace the server's in place, on the stack: so the server allocates nothing, and main() and the C
//                 library see the same ones.
//   heap          The server's malloc is that of node 0. A node that is not node 0 turns to the boot heap
//                 (private/private_heap.h).
#include "base/fork_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/stack_text.h"
#include "runtime/private/private_heap.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

using namespace fork_server;

// Makes a system call, again if a signal has interrupted it. The C library's functions are this library's own wrappers, which
// are not ready yet.
template <typename... Arguments>
long call(long number, Arguments... arguments) {
  long result;
  do result = ::syscall(number, arguments...);
  while (result < 0 && errno == EINTR);
  return result;
}

void close_descriptor(int descriptor) {
  ::syscall(SYS_close, descriptor);
}

constinit std::array<char, kMaxRequest> request{};

// Ends a process of which nothing of the program has run.
[[noreturn]] void give_up(const char* why) {
  StackText line;
  line.text("multigrain: cannot start: ").text(why);
  line.write_out();
  _exit(2);
}

// Returns where the environment has a variable of this name, or nullptr.
char** find(std::string_view name) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(name) && text.substr(name.size()).starts_with('=')) return entry;
  }
  return nullptr;
}

void replace(std::string_view name, std::string_view value) {
  char** const entry = find(name);
  if (entry == nullptr) give_up("the launcher has named a variable that the environment does not have");
  char* const old = *entry + name.size() + 1;
  const size_t room = std::strlen(old);
  if (value.size() > room) give_up("the launcher has given a variable that is too long");
  std::memcpy(old, value.data(), value.size());
  std::memset(old + value.size(), 0, room - value.size());
}

void remove(char** entry) {
  do entry[0] = entry[1];
  while (*++entry != nullptr);
}

int32_t count_threads() {
  char text[4096];
  const auto fd = static_cast<int>(call(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC));
  const long length = call(SYS_read, fd, text, sizeof text - 1);
  close_descriptor(fd);
  text[std::max(length, 0L)] = '\0';
  const char* const line = std::strstr(text, "\nThreads:");
  return line != nullptr ? static_cast<int32_t>(std::strtol(line + 9, nullptr, 10)) : 1;
}

struct Packet {
  long length = 0;
  std::array<int, kDescriptors> descriptors{};
};

// Waits for the next request. The length is 0 when mgrun has closed its end, or has ended.
Packet receive(int from) {
  Packet packet;
  iovec part = {request.data(), request.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof packet.descriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  packet.length = call(SYS_recvmsg, from, &message, 0);
  if (packet.length <= 0) return packet;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof packet.descriptors) ||
      request[static_cast<size_t>(packet.length) - 1] != '\0')
    give_up("the launcher's request makes no sense");
  std::memcpy(packet.descriptors.data(), CMSG_DATA(header), sizeof packet.descriptors);
  return packet;
}

template <typename T>
long tell(int socket, const T& message) {
  return call(SYS_sendto, socket, &message, sizeof message, MSG_NOSIGNAL, nullptr, 0);
}

// `ended` becomes readable when the server is about to be gone.
void wait_for_parent(int ended, pid_t server, pid_t launcher) {
  char none;
  call(SYS_read, ended, &none, size_t{1});
  close_descriptor(ended);
  constexpr timespec kPause = {0, 100'000};
  while (getppid() == server) ::syscall(SYS_nanosleep, &kPause, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have ended before that call, and then nobody waits for this node.
  if (getppid() != launcher) _exit(2);
}

void become_node(const Packet& packet) {
  for (int standard = 0; standard <= 2; ++standard) {
    const int descriptor = packet.descriptors[static_cast<size_t>(standard)];
    if (call(SYS_dup3, descriptor, standard, 0) < 0) give_up("a standard descriptor cannot be set");
    close_descriptor(descriptor);
  }
  for (const char *variable = request.data(), *end = variable + packet.length; variable < end;
       variable += std::strlen(variable) + 1) {
    const std::string_view text = variable;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) give_up("the launcher's request makes no sense");
    replace(text.substr(0, equals), text.substr(equals + 1));
  }
  StackText status;
  replace(kStatusVariable, status.number(static_cast<uint64_t>(packet.descriptors[3])).c_str());
  heap_of_forked_node();
}

// If mgrun has started this process as a server, serves: returns in each node, once it is a child of mgrun's, and ends the
// process of the server itself. Otherwise returns at once. It runs after the look at foreign tools (interpose/foreign_tools.cpp),
// and before all else of this library.
[[gnu::constructor(102)]] void serve_forks() {
  // A program with more rights than its caller (setuid) does not believe its environment.
  if (getauxval(AT_SECURE) != 0) return;
  char** const variable = find(kVariable);
  if (variable == nullptr) return;
  char* rest = nullptr;
  const auto socket = static_cast<int>(std::strtol(std::strchr(*variable, '=') + 1, &rest, 10));
  const auto launcher = *rest == ',' ? static_cast<pid_t>(std::strtol(rest + 1, nullptr, 10)) : 0;
  remove(variable);

  const Hello hello = {getppid(), count_threads()};
  if (tell(socket, hello) != sizeof hello) give_up("there is no launcher at the socket of the fork server");
  int ended[2];
  if (call(SYS_pipe2, ended, O_CLOEXEC) != 0) give_up("no pipe for the fork server");
  const pid_t server = getpid();
  while (true) {
    const Packet packet = receive(socket);
    if (packet.length <= 0) _exit(0);
    const pid_t node = fork();
    if (node == 0) {
      close_descriptor(socket);
      close_descriptor(ended[1]);
      become_node(packet);
      wait_for_parent(ended[0], server, launcher);
      return;
    }
    const Reply reply = {node, node < 0 ? errno : 0};
    for (const int descriptor : packet.descriptors) close_descriptor(descriptor);
    tell(socket, reply);
  }
}

}  // namespace
}  // namespace multigrain
