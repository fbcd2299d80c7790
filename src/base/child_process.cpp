#include "base/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/file_descriptor.h"

namespace multigrain {
namespace {

using Step = ChildFailure::Step;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

// Returns the environment of the child. Where a variable is given twice, the added value replaces that of this process.
std::vector<std::string> environment_of(const ChildStart& start) {
  std::vector<std::string> result = start.environment;
  if (start.whole_environment) return result;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& added : start.environment)
      replaced = replaced || (!name.empty() && added.starts_with(name));
    if (!replaced) result.emplace_back(text);
  }
  return result;
}

[[noreturn]] void give_up(int report, Step step) {
  const ChildFailure failure{step, errno};
  // If even that fails, the parent sees an early end with status 127.
  [[maybe_unused]] const ssize_t written = write(report, &failure, sizeof failure);
  _exit(127);
}

// Makes `wanted` the descriptor `target`, which keeps no close-on-exec flag.
bool set_descriptor(int wanted, int target) {
  if (wanted == kInheritDescriptor) return true;
  if (wanted == target) return fcntl(target, F_SETFD, 0) == 0;
  if (wanted != kNullDescriptor) return dup2(wanted, target) >= 0;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  return null >= 0 && dup2(null, target) >= 0;
}

// Runs in the child, where nothing may allocate.
[[noreturn]] void become(const ChildStart& start, char* const* argv, char* const* envp, pid_t parent, int report) {
  if (start.new_session) setsid();
  if (start.parent_death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, start.parent_death_signal);
    // The parent may have died before that took effect.
    if (getppid() != parent) _exit(127);
  }
  if (start.prepare && !start.prepare()) give_up(report, Step::kPrepare);
  const int standard[] = {start.input, start.output, start.error};
  for (int target = 0; target < 3; ++target)
    if (!set_descriptor(standard[target], target)) give_up(report, Step::kDescriptors);
  for (const int fd : start.inherited)
    if (fcntl(fd, F_SETFD, 0) < 0) give_up(report, Step::kDescriptors);
  for (const int number : start.default_signals) signal(number, SIG_DFL);
  if (start.signal_mask) sigprocmask(SIG_SETMASK, &*start.signal_mask, nullptr);
  if (!start.path.empty())
    execve(start.path.c_str(), argv, envp);
  else
    execvpe(argv[0], argv, envp);
  give_up(report, Step::kExec);
}

}  // namespace

tl::expected<pid_t, ChildFailure> try_start_child(const ChildStart& start) {
  // The child reports a failed step through a pipe that a successful exec closes. Its ends lie above the standard
  // descriptors, which the child replaces.
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return tl::unexpected(ChildFailure{Step::kPipe, errno});
  for (int& end : report) {
    if (end > STDERR_FILENO) continue;
    const int low = end;
    end = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(low);
  }
  const std::vector<char*> argv = pointers(start.command);
  const std::vector<std::string> environment = environment_of(start);
  const std::vector<char*> envp = pointers(environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(start, argv.data(), envp.data(), parent, report[1]);
  const int fork_error = errno;
  close(report[1]);
  if (child < 0) {
    close(report[0]);
    return tl::unexpected(ChildFailure{Step::kProcess, fork_error});
  }
  ChildFailure failure;
  ssize_t got;
  do {
    got = read(report[0], &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got != sizeof failure) return child;
  wait_for_child(child);
  return tl::unexpected(failure);
}

Result<pid_t> start_child(const ChildStart& start) {
  if (start.command.empty()) return fail("there is no program to run");
  const auto child = try_start_child(start);
  if (child) return *child;
  const std::string& name = start.path.empty() ? start.command.front() : start.path;
  switch (child.error().step) {
    case Step::kPipe:
      return fail_errno(child.error().code, fmt::format("cannot start '{}': no pipe", name));
    case Step::kProcess:
      return fail_errno(child.error().code, fmt::format("cannot start '{}': no process", name));
    case Step::kPrepare:
      return fail_errno(child.error().code, fmt::format("cannot prepare the process of '{}'", name));
    case Step::kDescriptors:
      return fail_errno(child.error().code, fmt::format("cannot hand descriptors to '{}'", name));
    case Step::kExec:
      break;
  }
  return fail_errno(child.error().code, fmt::format("cannot run '{}'", name));
}

int wait_for_child(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

std::string read_to_end(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

Result<ChildOutput> run_and_read(ChildStart start) {
  const std::string name = start.command.empty() ? "" : start.command.front();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, fmt::format("cannot read what '{}' prints", name));
  const FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  start.output = to.get();
  const auto child = start_child(start);
  to.close();
  if (!child) return tl::unexpected(child.error());
  ChildOutput output;
  output.text = read_to_end(from.get());
  output.status = wait_for_child(*child);
  return output;
}

tl::unexpected<Error> exec_command(const std::vector<std::string>& command) {
  if (command.empty()) return fail("there is no program to run");
  const std::vector<char*> argv = pointers(command);
  execvp(argv[0], argv.data());
  return fail_errno(errno, fmt::format("cannot run '{}'", command.front()));
}

int exec_file(const std::string& path, const std::vector<std::string>& words,
              const std::vector<std::string>& environment) {
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(environment);
  execve(path.c_str(), argv.data(), envp.data());
  return errno;
}

}  // namespace multigrain
