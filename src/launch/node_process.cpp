#include "launch/node_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/personality.h>
#include <unistd.h>

#include <cerrno>

#include "base/child_process.h"
#include "base/file_descriptor.h"

namespace multigrain {
namespace {

// Sees to it that a program that this process executes has the same addresses each time. Returns whether that worked.
bool fix_addresses() {
  const int persona = personality(0xffffffff);
  if (persona >= 0 && (persona & ADDR_NO_RANDOMIZE) != 0) return true;
  if (persona >= 0 && personality(static_cast<unsigned long>(persona) | ADDR_NO_RANDOMIZE) >= 0) return true;
  // Randomisation may be off for the whole machine.
  const int code = errno;
  char first = 0;
  const FileDescriptor setting(open("/proc/sys/kernel/randomize_va_space", O_RDONLY | O_CLOEXEC));
  const bool off = setting.is_open() && read(setting.get(), &first, 1) == 1 && first == '0';
  errno = code;
  return off;
}

tl::unexpected<Error> describe(const ChildFailure& failure, const std::string& path) {
  switch (failure.step) {
    case ChildFailure::Step::kPipe:
      return fail_errno(failure.code, "cannot start a node: no pipe");
    case ChildFailure::Step::kProcess:
      return fail_errno(failure.code, "cannot start a node: no process");
    case ChildFailure::Step::kPrepare:
      return fail_errno(
          failure.code,
          "cannot turn address randomisation off (the system call personality), which nodes on several hosts, "
          "and binaries, need to agree on addresses; Docker's default profile forbids it: start the container with "
          "docker run --security-opt seccomp=unconfined, or with a profile that allows personality");
    case ChildFailure::Step::kDescriptors:
      return fail_errno(failure.code, "cannot hand descriptors to a node");
    case ChildFailure::Step::kExec:
      break;
  }
  if (failure.code == ENOEXEC)
    return fail("cannot run '{}': it is neither a program for this machine nor a script with a #! line", path);
  return fail_errno(failure.code, fmt::format("cannot run '{}'", path));
}

}  // namespace

Result<pid_t> start_node(const NodeStart& start) {
  ChildStart child;
  child.command = start.arguments;
  child.path = start.path;
  child.environment = start.environment;
  child.whole_environment = true;
  child.input = start.input;
  child.output = start.output;
  child.error = start.error;
  child.inherited = start.inherited;
  child.parent_death_signal = SIGKILL;
  child.signal_mask = start.signal_mask;
  // mgrun ignores this signal, and reports files that grow too large itself (tools/mgrun).
  child.default_signals = {SIGXFSZ};
  child.prepare = [any = start.any_addresses] { return fix_addresses() || any; };
  const auto node = try_start_child(child);
  if (node) return *node;
  return describe(node.error(), start.path);
}

bool can_fix_addresses() {
  const int before = personality(0xffffffff);
  const bool can = fix_addresses();
  if (before >= 0) personality(static_cast<unsigned long>(before));
  return can;
}

}  // namespace multigrain
