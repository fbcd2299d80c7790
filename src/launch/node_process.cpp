#include "launch/node_process.h"

#include <fcntl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace multigrain {
namespace {

// What the child could not do; it travels through a pipe that a successful exec closes.
enum class Step : int { kRandomisation, kDescriptors, kExec };
struct Failure {
  Step step;
  int code;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void give_up(int report, Step step) {
  const Failure failure{step, errno};
  // If even that fails, the parent sees an early exit with status 127.
  [[maybe_unused]] const ssize_t written = write(report, &failure, sizeof failure);
  _exit(127);
}

// Whether programs that this process executes have the same addresses each time.
bool fix_addresses() {
  const int persona = personality(0xffffffff);
  if (persona >= 0 && (persona & ADDR_NO_RANDOMIZE) != 0) return true;
  if (persona >= 0 && personality(static_cast<unsigned long>(persona) | ADDR_NO_RANDOMIZE) >= 0) return true;
  // Off for the whole machine?
  const int code = errno;
  char first = 0;
  const int setting = open("/proc/sys/kernel/randomize_va_space", O_RDONLY | O_CLOEXEC);
  const bool off = setting >= 0 && read(setting, &first, 1) == 1 && first == '0';
  if (setting >= 0) close(setting);
  errno = code;
  return off;
}

[[noreturn]] void become_node(const NodeStart& start, char* const* argv, char* const* envp, pid_t parent, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that took effect.
  if (getppid() != parent) _exit(127);
  if (!fix_addresses() && !start.alone) give_up(report, Step::kRandomisation);
  const int standard[] = {start.input, start.output, start.error};
  for (int target = 0; target < 3; ++target) {
    if (standard[target] >= 0 && dup2(standard[target], target) < 0) give_up(report, Step::kDescriptors);
  }
  for (const int fd : start.inherited) {
    if (fcntl(fd, F_SETFD, 0) < 0) give_up(report, Step::kDescriptors);
  }
  sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  execve(start.path.c_str(), argv, envp);
  give_up(report, Step::kExec);
}

tl::unexpected<Error> describe(const Failure& failure, const std::string& path) {
  switch (failure.step) {
    case Step::kRandomisation:
      return fail_errno(failure.code,
                        "cannot turn address randomisation off (the system call personality), which several nodes "
                        "need to agree on addresses; Docker's default profile forbids it: start the container with "
                        "docker run --security-opt seccomp=unconfined, or with a profile that allows personality");
    case Step::kDescriptors:
      return fail_errno(failure.code, "cannot hand descriptors to a node");
    case Step::kExec:
      break;
  }
  if (failure.code == ENOEXEC)
    return fail("cannot run '{}': it is neither a program for this machine nor a script with a #! line", path);
  return fail_errno(failure.code, fmt::format("cannot run '{}'", path));
}

}  // namespace

Result<pid_t> start_node(const NodeStart& start) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return fail_errno(errno, "cannot start a node: no pipe");
  const std::vector<char*> argv = pointers(start.arguments);
  const std::vector<char*> envp = pointers(start.environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become_node(start, argv.data(), envp.data(), parent, report[1]);
  const int fork_error = errno;
  close(report[1]);
  if (child < 0) {
    close(report[0]);
    return fail_errno(fork_error, "cannot start a node: no process");
  }
  Failure failure{};
  ssize_t got;
  do {
    got = read(report[0], &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got != sizeof failure) return child;
  waitpid(child, nullptr, 0);
  return describe(failure, start.path);
}

}  // namespace multigrain
