#include "guest/nodes/placer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/own_descriptors.h"
#include "guest/nodes/placed_process.h"
#include "guest/signals.h"

namespace multigrain::guest {
namespace {

constexpr int kWaiting = 1024;       // connections that wait to be accepted
constexpr int kRemindEveryMs = 100;  // processes are told again that the node has ended
constexpr int kReapEveryMs = 1000;
constexpr uint64_t kNoSignals = ~uint64_t{0};

// The name is the socket's alone, without a file, and nobody can guess it.
socklen_t make_address(uint64_t name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string text = fmt::format("multigrain-placer-{:016x}", name);
  std::memcpy(&address.sun_path[1], text.data(), text.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

bool is_of_this_user(int socket) {
  ucred other{};
  socklen_t size = sizeof other;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

class PlacerProcess {
 public:
  PlacerProcess(int listening, int pipe, std::atomic<bool>& is_ending)
      : listening_(listening), pipe_(pipe), is_ending_(is_ending) {}

  [[noreturn]] void run() {
    cpu_set_t cores;
    ssize_t count = 0;
    do count = read(pipe_, &cores, sizeof cores);
    while (count < 0 && errno == EINTR);
    if (count != sizeof cores) _exit(0);
    sched_setaffinity(0, sizeof cores, &cores);
    while (!is_ending_ || !processes_.empty()) serve();
    _exit(0);
  }

 private:
  void serve() {
    pollfd events[] = {{.fd = pipe_, .events = POLLIN, .revents = 0},
                       {.fd = listening_, .events = POLLIN, .revents = 0}};
    const bool was_ending = is_ending_;
    if (was_ending) events[0].fd = -1;
    if (poll(events, 2, was_ending ? kRemindEveryMs : processes_.empty() ? -1 : kReapEveryMs) < 0) return;
    if (events[0].revents != 0) is_ending_ = true;
    if (events[1].revents != 0) accept_one();
    reap();
    if (!is_ending_) return;
    for (const pid_t process : processes_) kill(process, kKick);
  }

  void accept_one() {
    FileDescriptor socket(accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.is_open() || is_ending_ || !is_of_this_user(socket.get())) return;
    const pid_t placer = getpid();
    const pid_t child = fork();
    if (child > 0) processes_.push_back(child);
    if (child != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != placer) _exit(0);
    close(listening_);
    close(pipe_);
    run_placed_process(std::move(socket), is_ending_);
  }

  void reap() {
    while (true) {
      const pid_t ended = waitpid(-1, nullptr, WNOHANG);
      if (ended <= 0) return;
      std::erase(processes_, ended);
    }
  }

  const int listening_;
  const int pipe_;
  std::atomic<bool>& is_ending_;
  std::vector<pid_t> processes_;
};

// Leaves the placer with its own descriptors and standard error, to which hosts write what they do not support.
void keep_only(int& listening, int& pipe) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
  }
  constexpr int kFirst = 3;
  const int high = std::max({listening, pipe, kFirst + 1});
  const int kept_listening = fcntl(listening, F_DUPFD_CLOEXEC, high + 1);
  const int kept_pipe = fcntl(pipe, F_DUPFD_CLOEXEC, high + 1);
  if (kept_listening < 0 || kept_pipe < 0) _exit(1);
  listening = dup3(kept_listening, kFirst, O_CLOEXEC);
  pipe = dup3(kept_pipe, kFirst + 1, O_CLOEXEC);
  syscall(SYS_close_range, kFirst + 2, ~0u, 0);
}

}  // namespace

Result<Placer> Placer::start() {
  const auto failed = [](const char* what) { return fail_errno(errno, what); };
  uint64_t name = 0;
  if (getrandom(&name, sizeof name, 0) != sizeof name) return failed("no random numbers");
  FileDescriptor listening(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t size = make_address(name, address);
  if (!listening.is_open() || bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listening.get(), kWaiting) != 0)
    return failed("cannot make the socket for processes of other nodes");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("cannot make the pipe for processes of other nodes");
  FileDescriptor reading(ends[0]);
  FileDescriptor writing(own_descriptors::keep(ends[1]));
  void* const shared =
      mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return failed("no memory for processes of other nodes");
  auto& is_ending = *new (shared) std::atomic<bool>(false);
  // The process is a copy of this one, in which nothing has begun yet. It executes nothing.
  const pid_t process = fork();
  if (process < 0) return failed("cannot fork the process that starts processes of other nodes");
  if (process == 0) {
    // The terminal's signals, and those to the run's group, are the node's.
    setsid();
    prctl(PR_SET_NAME, "mg placer");
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &kNoSignals, nullptr, kMaskSize);
    int listens = listening.release();
    int reads = reading.release();
    writing.close();
    keep_only(listens, reads);
    PlacerProcess(listens, reads, is_ending).run();
  }
  return Placer(process, std::move(writing), name);
}

void Placer::serve(const cpu_set_t& cores) {
  if (write(pipe_.get(), &cores, sizeof cores) != sizeof cores) pipe_.close();
}

void Placer::dismiss() {
  pipe_.close();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

FileDescriptor connect_to_placer(uint64_t name) {
  FileDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t size = make_address(name, address);
  if (connection.is_open() && connect(connection.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    connection.close();
  return connection;
}

}  // namespace multigrain::guest
