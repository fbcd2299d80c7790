#include "fabric/ucx/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/secret.h"
#include "base/spin_lock.h"
#include "base/stack_text.h"
#include "fabric/ucx/confine.h"
#include "fabric/ucx/descriptors.h"
#include "fabric/ucx/gate_token.h"
#include "fabric/ucx/interposed_calls.h"

namespace multigrain {
namespace {

using gate::Connection;
using gate::Key;
using gate::Mac;
using gate::Nonce;
using gate::Token;

// A connection may take this long to come up. UCX calls connect under its locks, where the heartbeats wait, so this
// must be shorter than the silence after which a node counts as gone; a lost first packet is sent again after one
// second.
constexpr int kConnectLimitMs = 2500;
// The kernel keeps a connection on which no byte comes for this long before the gate sees (and closes) it.
constexpr int kSilenceSeconds = 3;
// A call of accept refuses at most this many connections before it lets UCX do something else. UCX calls again.
constexpr int kMaxRefusalsAtOnce = 32;
// UCX's connections may have this many descriptors, from 0 on or from the runtime's own numbers on; the gate refuses
// other connections.
constexpr int kMaxDescriptors = 1 << 16;
// The gate keeps this many tokens, so that none is accepted twice; so many connections may be let in during one run. A
// node makes a few for each other node, and there are at most 64 nodes.
constexpr size_t kMaxTokens = size_t{1} << 16;

// --- Lines on standard error. UCX's own thread or another writes them, perhaps in the fault handler: so they use
// no heap and no stdio.

StackText& end_point(StackText& line, const sockaddr_storage& address) {
  char name[INET6_ADDRSTRLEN] = "?";
  uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    memcpy(&v4, &address, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, name, sizeof name);
    port = v4.sin_port;
    line.text(name);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    memcpy(&v6, &address, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, name, sizeof name);
    port = v6.sin6_port;
    line.text("[").text(name).text("]");
  } else {
    return line.text("an unknown address");
  }
  return line.text(":").number(ntohs(port));
}

// Lets through a burst of lines and then a few a second; counts the lines that it withholds.
class LineLimit {
 public:
  // Returns whether a line may be written; then `*withheld` receives how many lines were withheld since the last one.
  bool may_write(uint64_t* withheld) {
    const LockGuard held(lock_);
    const Nanoseconds now = monotonic_ns();
    const uint64_t earned = (now - since_) / kInterval;
    since_ += earned * kInterval;
    left_ = std::min(kBurst, left_ + earned);
    if (left_ == 0) {
      ++withheld_;
      return false;
    }
    --left_;
    *withheld = withheld_;
    withheld_ = 0;
    return true;
  }
  void reset() {
    const LockGuard held(lock_);
    left_ = kBurst;
    withheld_ = 0;
  }
  uint64_t take_withheld() {
    const LockGuard held(lock_);
    return std::exchange(withheld_, 0);
  }

 private:
  static constexpr uint64_t kBurst = 32;
  static constexpr Nanoseconds kInterval = 250'000'000;
  SpinLock lock_;
  Nanoseconds since_ MG_GUARDED_BY(lock_) = 0;
  uint64_t left_ MG_GUARDED_BY(lock_) = kBurst;
  uint64_t withheld_ MG_GUARDED_BY(lock_) = 0;
};

// --- Tokens that were used: a set of nonces that only grows. Nonces are random, so their first bytes spread them. Only
// tokens of processes that hold the secret come here, so no other process can fill the set on purpose.

class UsedTokens {
 public:
  enum class Use : uint8_t { kFirst, kRepeated, kFull };
  Use use(const Nonce& nonce) {
    const LockGuard held(lock_);
    size_t place;
    memcpy(&place, nonce.data(), sizeof place);
    for (size_t probe = 0; probe < kSlots; ++probe) {
      Entry& entry = entries_[(place + probe) % kSlots];
      if (!entry.used) {
        if (count_ == kMaxTokens) return Use::kFull;
        ++count_;
        entry = {nonce, true};
        return Use::kFirst;
      }
      if (entry.nonce == nonce) return Use::kRepeated;
    }
    return Use::kFull;
  }

 private:
  static constexpr size_t kSlots = 2 * kMaxTokens;
  struct Entry {
    Nonce nonce;
    bool used = false;
  };
  SpinLock lock_;
  size_t count_ MG_GUARDED_BY(lock_) = 0;
  std::array<Entry, kSlots> entries_ MG_GUARDED_BY(lock_){};
};

// --- Connections that this node opened and that await the answer, by descriptor. UCX serialises the calls for one
// descriptor; the flag orders connect on one thread before recv on another.

struct Awaited {
  std::atomic<bool> waiting{false};
  Mac answer{};
};

struct Gate {
  Secret<Key> key;
  unsigned node = 0;
  std::string interface;
  unsigned users = 0;  // changed with g_install held
  InterposedCalls interposed;
  std::atomic<int> spare{-1};  // given up when the process has no descriptor left

  LineLimit refusal_lines;
  LineLimit unauthenticated_lines;
  std::atomic<uint64_t> listening{0}, let_in{0}, refused{0}, called{0}, unauthenticated{0};
};

Mutex g_install;
// These are static memory, which takes no pages before it is used, and needs no allocation inside UCX's calls.
constinit Awaited g_awaited[kMaxDescriptors];
// Returns what a connection awaits; null: there is no place for this descriptor.
Awaited* awaited_on(int fd) {
  const int place = fd - ucx_descriptors::lowest();
  return place >= 0 && place < kMaxDescriptors ? &g_awaited[place] : nullptr;
}
constinit UsedTokens g_used;
Gate& the_gate() {
  static Gate* const gate = new Gate;  // outlives UCX's threads
  return *gate;
}
// The gate while it is installed; the replacements read it without a lock.
std::atomic<Gate*> g_gate{nullptr};

// Writes a line. `limit` is for lines that peers can cause; it is null for lines that come once.
void say(const Gate& gate, LineLimit* limit, const char* what, const sockaddr_storage& peer, const char* reason) {
  uint64_t withheld = 0;
  if (limit != nullptr && !limit->may_write(&withheld)) return;
  StackText line;
  line.text("multigrain: node ").number(gate.node).text(": ").text(what).text(" ");
  end_point(line, peer).text(": ").text(reason);
  if (withheld != 0) line.text(" (and ").number(withheld).text(" more before)");
  line.write_out();
}

bool is_internet(const sockaddr* address, socklen_t length) {
  return address != nullptr && length >= sizeof(sa_family_t) &&
         (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

// Keeps programs that this one executes from holding its connections open.
void close_on_exec(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// --- The replacements. They report errors as the C library does, by -1 and errno.

// Connects a socket that does not block, and waits until it is connected or has failed, for at most `limit_ms`.
int connect_within(int fd, const sockaddr* address, socklen_t length, int limit_ms) {
  if (::connect(fd, address, length) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR && errno != EALREADY) return -1;
  const Nanoseconds end = monotonic_ns() + static_cast<Nanoseconds>(limit_ms) * 1'000'000;
  while (true) {
    const Nanoseconds now = monotonic_ns();
    if (now >= end) {
      errno = ETIMEDOUT;
      return -1;
    }
    pollfd watched{fd, POLLOUT, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>((end - now) / 1'000'000) + 1);
    if (ready < 0 && errno != EINTR) return -1;
    if (ready > 0) break;
  }
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return -1;
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int gate_connect(int fd, const sockaddr* address, socklen_t length) {
  Gate* const gate = g_gate.load(std::memory_order_acquire);
  if (gate == nullptr || !is_internet(address, length)) return ::connect(fd, address, length);
  Awaited* const awaited = awaited_on(fd);
  if (awaited == nullptr) {
    errno = EMFILE;
    return -1;
  }
  close_on_exec(fd);
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return -1;
  if (connect_within(fd, address, length, kConnectLimitMs) != 0) return -1;

  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  Connection connection;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0)
    return -1;
  if (!gate::end_of(here, &connection.caller) || !gate::end_of(there, &connection.called)) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  const Token token = gate->key->make_token(gate->node, connection);
  awaited->answer = gate->key->answer(token);
  awaited->waiting.store(true, std::memory_order_release);
  // The first bytes of a new connection always fit into its buffer; if they do not, the connection is broken.
  if (::send(fd, &token, sizeof token, MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(sizeof token)) {
    errno = ECONNRESET;
    return -1;
  }
  gate->called.fetch_add(1, std::memory_order_relaxed);
  // UCX asked either for a connect that blocks or for one that does not; in both cases the connection is up now.
  return fcntl(fd, F_SETFL, flags) == 0 ? 0 : -1;
}

ssize_t gate_recv(int fd, void* bytes, size_t length, int flags) {
  Awaited* const awaited = awaited_on(fd);
  if (awaited != nullptr && awaited->waiting.load(std::memory_order_acquire)) [[unlikely]] {
    Mac answer;
    ssize_t got = ::recv(fd, answer.data(), answer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got <= 0) return got;
    Gate* const gate = g_gate.load(std::memory_order_acquire);
    if (got == static_cast<ssize_t>(answer.size())) got = ::recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(answer.size()) && gate::same(answer, awaited->answer)) {
      awaited->waiting.store(false, std::memory_order_release);
      return ::recv(fd, bytes, length, flags);
    }
    // A node sends the answer first, in one piece. If only a part of it has come, that part agrees with the right
    // answer.
    if (got < static_cast<ssize_t>(answer.size()) && memcmp(answer.data(), awaited->answer.data(), size_t(got)) == 0) {
      errno = EAGAIN;
      return -1;
    }
    if (gate != nullptr) {
      gate->unauthenticated.fetch_add(1, std::memory_order_relaxed);
      sockaddr_storage peer{};
      socklen_t size = sizeof peer;
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size);
      say(*gate, &gate->unauthenticated_lines, "broke its connection to", peer,
          "the process there does not hold the job's secret");
    }
    ::shutdown(fd, SHUT_RDWR);
    errno = ECONNRESET;
    return -1;
  }
  return ::recv(fd, bytes, length, flags);
}

// Returns whether `address` is an address of one of the interfaces, which have commas between them.
bool belongs_to(const sockaddr_storage& address, const std::string& interfaces) {
  gate::End wanted;
  if (!gate::end_of(address, &wanted)) return false;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || !is_internet(one->ifa_addr, sizeof(sockaddr))) continue;
    sockaddr_storage its{};
    memcpy(&its, one->ifa_addr, one->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    gate::End end;
    if (!gate::end_of(its, &end) || end.address != wanted.address) continue;
    for (std::string_view rest = interfaces; !rest.empty() && !found;) {
      const size_t comma = std::min(rest.find(','), rest.size());
      found = rest.substr(0, comma) == one->ifa_name;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  freeifaddrs(all);
  return found;
}

int gate_listen(int fd, int backlog) {
  Gate* const gate = g_gate.load(std::memory_order_acquire);
  sockaddr_storage here{};
  socklen_t size = sizeof here;
  if (gate == nullptr) return ::listen(fd, backlog);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return -1;
  gate::End end;
  if (!gate::end_of(here, &end)) return ::listen(fd, backlog);  // not the internet: a local socket
  constexpr std::array<uint8_t, 16> kAny6{};
  constexpr std::array<uint8_t, 16> kAny4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const char* wrong = nullptr;
  if (end.address == kAny6 || end.address == kAny4)
    wrong = "UCX wanted to listen on every interface, which would let in more than this run's nodes";
  else if (!gate->interface.empty() && !belongs_to(here, gate->interface))
    wrong = "that is not an address of the interface that this run was told to use";
  const int silence_s = kSilenceSeconds;
  if (wrong == nullptr && setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silence_s, sizeof silence_s) != 0)
    wrong = "the kernel cannot hold back silent connections (TCP_DEFER_ACCEPT)";
  if (wrong != nullptr) {
    say(*gate, nullptr, "does not listen on", here, wrong);
    errno = EACCES;
    return -1;
  }
  close_on_exec(fd);
  const int listening = ::listen(fd, backlog);
  if (listening == 0) gate->listening.fetch_add(1, std::memory_order_relaxed);
  return listening;
}

// Returns what is wrong with a connection that came in; null: nothing is wrong, and the answer has been sent.
const char* reason_to_refuse(Gate& gate, int fd, const sockaddr_storage& peer) {
  sockaddr_storage here{};
  socklen_t size = sizeof here;
  Connection connection;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0 || !gate::end_of(peer, &connection.caller) ||
      !gate::end_of(here, &connection.called))
    return "it broke at once";
  Token token;
  const ssize_t got = ::recv(fd, &token, sizeof token, MSG_DONTWAIT);
  if (got == 0) return "it was closed before it sent anything";
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? "it said nothing" : "it broke at once";
  if (got < static_cast<ssize_t>(sizeof token)) return "it did not send a whole token";
  switch (gate.key->check(token, connection)) {
    case Key::Verdict::kRight:
      break;
    case Key::Verdict::kNoToken:
      return "it did not send a token of this version of Multigrain";
    case Key::Verdict::kOtherSecret:
      return "it does not hold the job's secret";
    case Key::Verdict::kOtherConnection:
      return "its token was made for another connection (repeated, or addresses are translated between the nodes)";
  }
  switch (g_used.use(token.nonce)) {
    case UsedTokens::Use::kFirst:
      break;
    case UsedTokens::Use::kRepeated:
      return "its token was used before";
    case UsedTokens::Use::kFull:
      return "this node has let in as many connections as it can in one run";
  }
  const Mac answer = gate.key->answer(token);
  if (::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(answer.size()))
    return "it broke at once";
  return nullptr;
}

// Returns the next connection of a listening socket. UCX closes the socket for good after any error but EAGAIN, so an
// unauthenticated peer must not be able to cause another error.
int next_connection(Gate& gate, int listening, sockaddr_storage* peer, socklen_t* size) {
  while (true) {
    const int fd = ucx_descriptors::keep(::accept4(listening, reinterpret_cast<sockaddr*>(peer), size, SOCK_CLOEXEC));
    if (fd >= 0) return fd;
    switch (errno) {
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
      case EOPNOTSUPP:
      case EFAULT:
        return -1;
      case EMFILE:
      case ENFILE: {
        // Without a descriptor no connection could be refused, and UCX would be called for ever. So the gate takes one
        // connection by the spare descriptor and closes it. If it was a node's, the node connects again.
        const int spare = gate.spare.exchange(-1);
        if (spare >= 0) {
          ::close(spare);
          const int shed = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
          if (shed >= 0) ::close(shed);
          gate.spare.store(ucx_descriptors::keep(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
          gate.refused.fetch_add(1, std::memory_order_relaxed);
          say(gate, &gate.refusal_lines, "refused a connection to", sockaddr_storage{},
              "the process has no descriptor left (ulimit -n)");
        }
        errno = EAGAIN;
        return -1;
      }
      default:
        errno = EAGAIN;
        return -1;
    }
  }
}

int gate_accept4(int listening, sockaddr* address, socklen_t* length, int flags) {
  Gate* const gate = g_gate.load(std::memory_order_acquire);
  sockaddr_storage here{};
  socklen_t here_size = sizeof here;
  gate::End end;
  if (gate == nullptr || getsockname(listening, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      !gate::end_of(here, &end))
    return ucx_descriptors::keep(::accept4(listening, address, length, flags));
  for (int refusals = 0; refusals < kMaxRefusalsAtOnce; ++refusals) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd = next_connection(*gate, listening, &peer, &size);
    if (fd < 0) return -1;
    Awaited* const awaited = awaited_on(fd);
    const char* reason = awaited != nullptr ? reason_to_refuse(*gate, fd, peer) : "there are too many open files";
    if (reason == nullptr && (flags & SOCK_NONBLOCK) != 0 && fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
      reason = "it broke at once";
    if (reason != nullptr) {
      ::close(fd);
      gate->refused.fetch_add(1, std::memory_order_relaxed);
      say(*gate, &gate->refusal_lines, "refused a connection from", peer, reason);
      continue;
    }
    awaited->waiting.store(false, std::memory_order_release);
    gate->let_in.fetch_add(1, std::memory_order_relaxed);
    if (address != nullptr && length != nullptr) {
      memcpy(address, &peer, std::min<size_t>(*length, size));
      *length = size;
    }
    return fd;
  }
  errno = EAGAIN;
  return -1;
}

int gate_accept(int listening, sockaddr* address, socklen_t* length) {
  return gate_accept4(listening, address, length, 0);
}

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

Status install_gate(const JobSecret& secret, unsigned node, std::string_view interface) {
  const LockGuard held(g_install);
  if (Status prepared = Key::prepare(); !prepared) return prepared;
  Gate& gate = the_gate();
  const Key key(secret);
  if (gate.users != 0) {
    if (key != *gate.key || interface != gate.interface)
      return fail("this process is part of a run already, with another secret or interface: one process, one run");
    ++gate.users;
    return {};
  }
  *gate.key = key;
  gate.node = node;
  gate.interface = interface;

  // Today libucs alone calls the C library's functions; UCX's other libraries are searched in case that changes.
  constexpr const char* kLibraries[] = {"libucs.so", "libuct", "libucp.so"};
  std::vector<Interposition> functions = {{"connect", address_of(&gate_connect)},
                                          {"listen", address_of(&gate_listen)},
                                          {"accept", address_of(&gate_accept)},
                                          {"accept4", address_of(&gate_accept4)},
                                          {"recv", address_of(&gate_recv)}};
  functions.insert(functions.end(), confine::interpositions().begin(), confine::interpositions().end());
  Result<InterposedCalls> interposed = InterposedCalls::install(kLibraries, functions);
  if (!interposed) return tl::unexpected(interposed.error());
  for (const char* needed : {"connect", "listen", "recv"})
    if (interposed->count(needed) == 0)
      return fail(
          "UCX's libraries make no call of {}(): Multigrain cannot keep unauthenticated peers out of this version of "
          "UCX's TCP transport, and does not run over it (1.13 is known to work)",
          needed);
  if (interposed->count("accept") + interposed->count("accept4") == 0)
    return fail(
        "UCX's libraries make no call of accept(): Multigrain cannot keep unauthenticated peers out of this version of "
        "UCX's TCP transport, and does not run over it (1.13 is known to work)");
  if (Status confined = confine::check(*interposed); !confined) return confined;
  gate.interposed = std::move(*interposed);
  gate.spare.store(ucx_descriptors::keep(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  gate.refusal_lines.reset();
  gate.unauthenticated_lines.reset();
  gate.users = 1;
  g_gate.store(&gate, std::memory_order_release);
  return {};
}

void remove_gate() {
  const LockGuard held(g_install);
  Gate& gate = the_gate();
  if (gate.users == 0) return;
  if (--gate.users != 0) return;
  if (const Status restored = gate.interposed.restore(); !restored)
    panic("the calls of UCX's libraries cannot be restored");
  g_gate.store(nullptr, std::memory_order_release);
  if (const int spare = gate.spare.exchange(-1); spare >= 0) ::close(spare);
  confine::close_doorbells();
  if (const uint64_t withheld = gate.refusal_lines.take_withheld(); withheld != 0)
    StackText()
        .text("multigrain: node ")
        .number(gate.node)
        .text(": refused ")
        .number(withheld)
        .text(" more connections")
        .write_out();
}

GateCounts gate_counts() {
  const Gate& gate = the_gate();
  return GateCounts{gate.listening.load(), gate.let_in.load(), gate.refused.load(), gate.called.load(),
                    gate.unauthenticated.load()};
}

}  // namespace multigrain
