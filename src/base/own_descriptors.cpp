#include "base/own_descriptors.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <new>

#include "base/lock_guard.h"
#include "base/mutex.h"

namespace multigrain::own_descriptors {
namespace {

// The runtime has room for this many: the files that a program maps, each once.
constexpr rlim_t kShare = 4096;

std::atomic<int> g_lowest{0};
// The program's limit can be changed while the runtime has raised it for a moment.
constinit Mutex g_lock;
rlim_t g_hard_of_program MG_GUARDED_BY(g_lock) = 0;
rlim_t g_hard_without_runtime MG_GUARDED_BY(g_lock) = 0;

// Returns the highest limit that the system permits any process.
rlim_t highest_limit() {
  std::ifstream file("/proc/sys/fs/nr_open");
  rlim_t number = 0;
  return file >> number ? number : rlim_t{1} << 20;
}

bool set(const rlimit& limit) {
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

rlimit get() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

bool may_raise_limits() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & (1u << CAP_SYS_RESOURCE)) != 0;
}

}  // namespace

void divide() {
  const LockGuard hold(g_lock);
  rlimit limit = get();
  const rlim_t highest = highest_limit();
  limit.rlim_max = std::min(limit.rlim_max, highest);
  g_hard_without_runtime = limit.rlim_max;
  rlim_t hard_of_program = limit.rlim_max;
  if (hard_of_program + kShare > highest ||
      !set({.rlim_cur = std::min(limit.rlim_cur, hard_of_program), .rlim_max = hard_of_program + kShare}))
    hard_of_program -= std::min(kShare, hard_of_program / 2);
  g_hard_of_program = hard_of_program;
  const rlimit now = get();
  set({.rlim_cur = std::min(now.rlim_cur, hard_of_program), .rlim_max = now.rlim_max});
  g_lowest = static_cast<int>(hard_of_program);
}

int lowest() {
  return g_lowest.load(std::memory_order_relaxed);
}

int keep_copy(int fd) {
  if (lowest() == 0) return fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const LockGuard hold(g_lock);
  // Another thread of the program whose numbers are all in use could be given one more meanwhile. It can use that like
  // any other.
  const rlimit programs = get();
  set({.rlim_cur = programs.rlim_max, .rlim_max = programs.rlim_max});
  const int kept = fcntl(fd, F_DUPFD_CLOEXEC, lowest());
  const int code = errno;
  set(programs);
  errno = code;
  return kept;
}

int keep(int fd) {
  if (lowest() == 0 || fd < 0) return fd;
  const int kept = keep_copy(fd);
  const int code = errno;
  close(fd);
  errno = code;
  return kept;
}

rlimit limit_of_program() {
  rlimit limit = get();
  if (lowest() == 0) return limit;
  const LockGuard hold(g_lock);
  limit.rlim_max = g_hard_of_program;
  return limit;
}

int set_limit_of_program(const rlimit& limit) {
  if (lowest() == 0) return set(limit) ? 0 : errno;
  if (limit.rlim_cur > limit.rlim_max) return EINVAL;
  const LockGuard hold(g_lock);
  if (limit.rlim_max > static_cast<rlim_t>(lowest())) return EPERM;
  rlimit real = get();
  if (limit.rlim_max > g_hard_of_program && !may_raise_limits()) return EPERM;
  real.rlim_cur = limit.rlim_cur;
  if (!set(real)) return errno;
  if (limit.rlim_max != g_hard_of_program) g_hard_without_runtime = limit.rlim_max;
  g_hard_of_program = limit.rlim_max;
  return 0;
}

void give_up() MG_NO_THREAD_SAFETY_ANALYSIS {
  // No other thread has the lock here, but a thread of the parent may have had it at the fork.
  if (lowest() == 0) return;
  syscall(SYS_close_range, lowest(), ~0u, 0);
  set({.rlim_cur = get().rlim_cur, .rlim_max = g_hard_without_runtime});
  g_lowest = 0;
}

int give_up_but(int fd) MG_NO_THREAD_SAFETY_ANALYSIS {
  if (lowest() == 0) return fd;
  // No thread will let the parent's lock go here.
  new (&g_lock) Mutex;
  syscall(SYS_close_range, lowest(), ~0u, 0);
  return keep(fd);
}

LimitForExec::LimitForExec() : before_(get()) {
  if (lowest() == 0) return;
  const LockGuard hold(g_lock);
  set({.rlim_cur = before_.rlim_cur, .rlim_max = std::max(before_.rlim_cur, g_hard_without_runtime)});
}

LimitForExec::~LimitForExec() {
  if (lowest() != 0) set(before_);
}

}  // namespace multigrain::own_descriptors
