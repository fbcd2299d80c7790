// Carries out the calls that are different if a guest runs on several nodes: those about its memory, its threads and
// its processors, and, for a thread away from home, those about the process.
#include <asm/prctl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "guest/call_functions.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"

namespace multigrain::guest {
namespace {

constexpr uint64_t kRobustListSize = 24;
// These calls are newer than some headers.
constexpr long kFutexWake = 454;
constexpr long kFutexWait = 455;
constexpr long kFutexRequeue = 456;

// Memory that the guest does not want to keep reads as zeros afterwards. Other advice is about pages that
// the protocol has.
long advise(Call& call) {
  const uint64_t begin = call.arguments[0];
  const uint64_t bytes = page_up(call.arguments[1]);
  if (begin % kPageSize != 0 || bytes < call.arguments[1]) return -EINVAL;
  switch (call.integer(2)) {
    case MADV_DONTNEED:
      return call.thread.away != nullptr ? host().cluster->call_at_home(SYS_madvise, call.arguments, call.thread)
                                         : host().space.discard(begin, bytes);
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_FREE:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
      return 0;
    default:
      return -EINVAL;
  }
}

// Every page of the guest counts as resident.
long tell_resident(Call& call) {
  const uint64_t pages = (call.arguments[1] + kPageSize - 1) / kPageSize;
  const long checked = call.thread.away != nullptr
                           ? host().cluster->call_at_home(SYS_mincore, call.arguments, call.thread)
                           : host().space.check_mapped(call.arguments[0], call.arguments[1]);
  if (checked != 0) return checked;
  const std::vector<uint8_t> all(std::min<uint64_t>(pages, 4096), 1);
  for (uint64_t done = 0; done < pages; done += all.size())
    if (!write_guest(call.arguments[2] + done, all.data(), std::min<uint64_t>(all.size(), pages - done)))
      return -EFAULT;
  return 0;
}

long set_action_from_away(Call& call) {
  const int signal = call.integer(0);
  if (call.arguments[3] != kMaskSize || signal < 1 || signal > kSignals) return -EINVAL;
  SystemAction wanted;
  SystemAction before;
  const bool sets = call.arguments[1] != 0;
  if (sets && !read_guest(call.arguments[1], wanted)) return -EFAULT;
  if (sets && (signal == SIGKILL || signal == SIGSTOP)) return -EINVAL;
  const long result = host().cluster->action_at_home(signal, sets ? &wanted : nullptr, &before, call.thread);
  if (result != 0) return result;
  return call.arguments[2] == 0 || write_guest(call.arguments[2], before) ? 0 : -EFAULT;
}

long set_mask_from_away(Call& call) {
  // The shadow has the new mask before the guest goes on. A signal that came before is delivered first.
  uint64_t wanted = 0;
  const uint64_t before = mask_of(call.context, call.thread);
  if (call.arguments[3] == kMaskSize && call.arguments[1] != 0 && read_guest(call.arguments[1], wanted)) {
    const int how = call.integer(0);
    const uint64_t mask = how == SIG_BLOCK ? before | wanted : how == SIG_UNBLOCK ? before & ~wanted : wanted;
    if (how == SIG_BLOCK || how == SIG_UNBLOCK || how == SIG_SETMASK)
      if (host().cluster->set_mask_at_home(mask, false, call.thread) == kRestart) return kRestart;
  }
  return call::signal_mask(call);
}

// Tells where the list of the calling thread is. The lists of other threads are kept where these run, and what the
// kernel knows of other processes is at home.
long tell_robust_list(Call& call) {
  const auto tid = static_cast<pid_t>(call.arguments[0]);
  if (tid == 0 || tid == number_of(call.thread)) {
    const uint64_t length = kRobustListSize;
    return write_guest(call.arguments[2], length) && write_guest(call.arguments[1], call.thread.robust_list) ? 0
                                                                                                             : -EFAULT;
  }
  if (call.thread.away != nullptr) return host().cluster->call_at_home(call.number, call.arguments, call.thread);
  if (syscall(SYS_tgkill, getpid(), tid, 0) == 0) return refuse(call, -ENOSYS);
  uint64_t head = 0;
  size_t length = 0;
  if (syscall(SYS_get_robust_list, tid, &head, &length) != 0) return -errno;
  return write_guest(call.arguments[2], length) && write_guest(call.arguments[1], head) ? 0 : -EFAULT;
}

// Threads of several nodes need no barrier for pages that the protocol moves: when a node gets a page, the processors
// that could still have stores to it under way have been interrupted. They do need one for files that several nodes
// have mapped, and so do threads of one node among themselves. All nodes' processes have registered for the barrier
// that acts on all registered processes.
long barrier(Call& call) {
  const long result = call.thread.away != nullptr
                          ? host().cluster->call_at_home(call.number, call.arguments, call.thread)
                          : call::barrier(call);
  const uint64_t command = call.arguments[0] & 0xffff'ffff;
  constexpr uint64_t kThatAct =
      MEMBARRIER_CMD_GLOBAL_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE;
  if (result != 0 || (command & kThatAct) == 0) return result;
  syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  if (command == MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) syscall(SYS_membarrier, command, 0, 0);
  return 0;
}

// Carries out what a thread away from home cannot do by itself, or only by its shadow. Returns nothing if the call is
// like any other.
std::optional<long> carry_out_away(Call& call) {
  Cluster& cluster = *host().cluster;
  switch (call.number) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
    case SYS_mremap:
    case SYS_brk:
    case SYS_execve:
    case SYS_execveat:
    case SYS_shmat:
    case SYS_shmdt:
    case SYS_exit_group:
      return cluster.call_at_home(call.number, call.arguments, call.thread);
    case SYS_clone:
      if ((call.arguments[0] & CLONE_THREAD) != 0) return call::clone(call);
      return cluster.start_process_at_home(call);
    case SYS_fork:
    case SYS_vfork:
      return cluster.start_process_at_home(call);
    case SYS_exit:
      // A process that is away has no other thread.
      if (!cluster.is_process_away()) return std::nullopt;
      return cluster.call_at_home(SYS_exit_group, call.arguments, call.thread);
    case SYS_rt_sigaction:
      return set_action_from_away(call);
    case SYS_rt_sigprocmask:
      return set_mask_from_away(call);
    case SYS_sched_yield:
      sched_yield();
      return 0;
    case SYS_arch_prctl:
      if (call.integer(0) >= ARCH_SET_GS && call.integer(0) <= ARCH_GET_GS) return std::nullopt;
      return -EINVAL;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<long> carry_out_on_nodes(Call& call) {
  switch (call.number) {
    case SYS_futex:
      return host().cluster->futex(call);
    case SYS_madvise:
      return advise(call);
    case SYS_mincore:
      return tell_resident(call);
    case SYS_msync:
      return call.thread.away != nullptr ? host().cluster->call_at_home(SYS_msync, call.arguments, call.thread)
                                         : host().space.sync(call.arguments[0], call.arguments[1], call.integer(2));
    case SYS_gettid:
      return number_of(call.thread);
    case SYS_set_tid_address:
      call.thread.clear_tid = call.arguments[0];
      return number_of(call.thread);
    case SYS_set_robust_list:
      // The host alone walks the list, since the kernel could not read it.
      if (call.arguments[1] != kRobustListSize) return -EINVAL;
      call.thread.robust_list = call.arguments[0];
      return 0;
    case SYS_get_robust_list:
      return tell_robust_list(call);
    case SYS_membarrier:
      return barrier(call);
    case SYS_mlock:
    case SYS_munlock:
    case SYS_mlock2:
    case SYS_mlockall:
    case SYS_munlockall:
    case SYS_mbind:
    case SYS_set_mempolicy:
      return 0;
    case SYS_futex_waitv:
    case kFutexWake:
    case kFutexWait:
    case kFutexRequeue:
    case SYS_get_mempolicy:
    case SYS_move_pages:
    case SYS_migrate_pages:
    case SYS_process_madvise:
      return -ENOSYS;
    default:
      return call.thread.away != nullptr ? carry_out_away(call) : std::nullopt;
  }
}

}  // namespace multigrain::guest
