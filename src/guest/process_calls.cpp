// Carries out the calls that start and end threads and processes.
#include <asm/prctl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>

#include "guest/call_functions.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/processor_masks.h"
#include "guest/threads.h"

namespace multigrain::guest::call {
namespace {

// Describes a new process or thread as clone() does.
struct New {
  uint64_t flags;
  uint64_t stack;
  uint64_t parent_tid;
  uint64_t child_tid;
  uint64_t thread_pointer;

  [[nodiscard]] bool has(uint64_t flag) const { return (flags & flag) != 0; }
};

// The host does this itself, for threads and processes.
constexpr uint64_t kByTheHost = CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;

long new_thread(Call& call, const New& wanted) {
  // Threads of the host share what pthread_create() shares, which is all of it.
  constexpr uint64_t kShared = CLONE_FS | CLONE_FILES | CLONE_SIGHAND;
  if ((wanted.flags & kShared) != kShared) return -EINVAL;
  const ThreadStart start{.context = &call.context,
                          .stack = wanted.stack,
                          .thread_pointer = wanted.has(CLONE_SETTLS) ? wanted.thread_pointer : call.thread.guest_fs,
                          .parent_tid = wanted.has(CLONE_PARENT_SETTID) ? wanted.parent_tid : 0,
                          .child_tid = wanted.has(CLONE_CHILD_SETTID) ? wanted.child_tid : 0,
                          .clear_tid = wanted.has(CLONE_CHILD_CLEARTID) ? wanted.child_tid : 0,
                          .creator = gettid()};
  const BlockedSignals blocked;
  if (host().cluster != nullptr) return host().cluster->start_thread(start, call.thread);
  return start_thread(start, call.thread);
}

// Lets the child of a fork go on as a guest, in this very handler, with a copy of all memory.
void begin_child(Call& call, const New& wanted) {
  host().is_first = false;
  ThreadBlock& thread = call.thread;
  if (const Status status = resume_dispatch(thread); !status) die(1, {status.error().message.c_str()});
  thread.robust_list = 0;
  thread.tid = 0;
  thread.clear_tid = wanted.has(CLONE_CHILD_CLEARTID) ? wanted.child_tid : 0;
  const pid_t tid = gettid();
  if (wanted.has(CLONE_CHILD_SETTID)) write_guest(wanted.child_tid, tid);
  if (wanted.has(CLONE_SETTLS)) thread.guest_fs = wanted.thread_pointer;
  begin_forked_process(thread);
  if (wanted.stack != 0) call.context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(wanted.stack);
}

// Exists while a process is started that gets the descriptors of this one. The process itself has no nodes.
class SharedDescriptors {
 public:
  SharedDescriptors(uint64_t flags, Cluster* cluster) : cluster_(cluster) {
    if (cluster_ != nullptr) cluster_->begin_sharing_descriptors((flags & CLONE_FILES) != 0);
  }
  ~SharedDescriptors() {
    if (cluster_ != nullptr && getpid() == process_) cluster_->end_sharing_descriptors();
  }
  SharedDescriptors(const SharedDescriptors&) = delete;
  SharedDescriptors& operator=(const SharedDescriptors&) = delete;

 private:
  Cluster* const cluster_;
  const pid_t process_ = getpid();
};

long new_process(Call& call, const New& wanted) {
  // A signal that has come is the parent's alone, so it is delivered first.
  const BlockedSignals blocked;
  if (call.thread.pending_signal != 0) return kRestart;
  Host& state = host();
  Cluster* const cluster = state.cluster;
  const SharedDescriptors shared(wanted.flags, cluster);
  state.space.lock();
  state.actions.lock();
  const long saved = cluster != nullptr ? cluster->save_memory() : 0;
  if (saved < 0) {
    state.actions.unlock();
    state.space.unlock();
    return saved;
  }
  state.masks.lock();
  const pid_t caller = gettid();
  // The C library's fork() also mends its own locks, which another thread of the host may hold.
  const uint64_t special = wanted.flags & ~kByTheHost;
  // With CLONE_PIDFD the kernel stores a descriptor where parent_tid points.
  const uint64_t descriptor = wanted.has(CLONE_PIDFD) ? wanted.parent_tid : 0;
  const long child = special == SIGCHLD ? ::fork() : syscall(SYS_clone, special, 0, descriptor, nullptr, 0);
  const long result = child < 0 ? -errno : child;
  // A thread whose gs is its own stays, as does one whose parent has lent it something.
  if (cluster != nullptr && result == 0)
    cluster->become_child(saved, special == SIGCHLD && !call.thread.gs_is_guests);
  else if (result == 0 && state.forks_without_nodes != nullptr)
    state.forks_without_nodes->fetch_add(1, std::memory_order_relaxed);
  if (result == 0) state.masks.become_child(caller, gettid());
  state.masks.unlock();
  if (cluster != nullptr && result != 0) cluster->forget_saved_memory(saved);
  state.actions.unlock();
  state.space.unlock();
  if (result == 0) {
    begin_child(call, wanted);
    if (cluster != nullptr) cluster->place_child(call);
  } else if (result > 0 && wanted.has(CLONE_PARENT_SETTID)) {
    write_guest(wanted.parent_tid, static_cast<pid_t>(result));
  }
  return result;
}

// Describes a child that shares memory until it executes a program or ends; the parent's thread waits as long.
struct SharingChild {
  ThreadBlock& block;
  ucontext_t& context;
};

int run_sharing_child(void* argument) {
  auto& child = *static_cast<SharingChild*>(argument);
  if (!prepare_thread(child.block)) _exit(127);
  enter_guest(child.block, child.context);
  _exit(0);
}

long new_sharing_process(Call& call, const New& wanted) {
  const BlockedSignals blocked;
  if (call.thread.pending_signal != 0) return kRestart;
  const Result<ThreadBlock*> created = create_block();
  if (!created) return -EAGAIN;
  constexpr size_t kStack = size_t{64} << 10;
  void* const stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) {
    destroy_block(*created);
    return -EAGAIN;
  }
  ThreadBlock& block = **created;
  // The dispositions that the child asks for must not be taken for those of this process.
  SignalActions actions(*call.thread.actions);
  block.actions = &actions;
  block.hidden_mask = call.thread.hidden_mask;
  block.guest_fs = wanted.has(CLONE_SETTLS) ? wanted.thread_pointer : call.thread.guest_fs;
  block.gs_is_guests = call.thread.gs_is_guests;
  block.shares_memory = true;
  ucontext_t& context = copy_context(call.context, block);
  context.uc_mcontext.gregs[REG_RAX] = 0;
  if (wanted.stack != 0) context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(wanted.stack);
  SharingChild child{.block = block, .context = context};
  const int flags = static_cast<int>(wanted.flags & ~kByTheHost);
  auto* const descriptor = reinterpret_cast<pid_t*>(wanted.has(CLONE_PIDFD) ? wanted.parent_tid : 0);
  const SharedDescriptors shared(wanted.flags, host().cluster);
  const int result = ::clone(&run_sharing_child, static_cast<std::byte*>(stack) + kStack, flags, &child, descriptor);
  const long returned = result < 0 ? -errno : result;
  munmap(stack, kStack);
  destroy_block(&block);
  if (returned > 0 && wanted.has(CLONE_PARENT_SETTID)) write_guest(wanted.parent_tid, result);
  return returned;
}

long start(Call& call, const New& wanted) {
  if (wanted.has(CLONE_THREAD)) return new_thread(call, wanted);
  if (!wanted.has(CLONE_VM)) return new_process(call, wanted);
  if (wanted.has(CLONE_VFORK)) return new_sharing_process(call, wanted);
  // A process that shares memory and runs beside this one would need a host's thread pointer of its own.
  return -EINVAL;
}

}  // namespace

long clone(Call& call) {
  const auto& argument = call.arguments;
  return start(call, {.flags = argument[0] & 0xffff'ffff,
                      .stack = argument[1],
                      .parent_tid = argument[2],
                      .child_tid = argument[3],
                      .thread_pointer = argument[4]});
}

long fork(Call& call) {
  return start(call, {.flags = SIGCHLD, .stack = 0, .parent_tid = 0, .child_tid = 0, .thread_pointer = 0});
}

long vfork(Call& call) {
  return start(
      call,
      {.flags = CLONE_VM | CLONE_VFORK | SIGCHLD, .stack = 0, .parent_tid = 0, .child_tid = 0, .thread_pointer = 0});
}

long exit_thread(Call& call) {
  if (call.thread.shares_memory) syscall(SYS_exit, call.integer(0));
  end_thread(call.thread, call.integer(0));
}

long exit_process(Call& call) {
  if (host().cluster != nullptr && !call.thread.shares_memory) host().cluster->exit_guest(call.integer(0));
  syscall(SYS_exit_group, call.integer(0));
  return 0;
}

long set_tid_address(Call& call) {
  call.thread.clear_tid = call.arguments[0];
  return gettid();
}

long set_robust_list(Call& call) {
  // The kernel needs the list, too, for a process that is killed.
  const long result = pass(call);
  if (result == 0) call.thread.robust_list = call.arguments[0];
  return result;
}

long arch_prctl(Call& call) {
  constexpr int kRequestRegisters = 0x1023;  // ARCH_REQ_XCOMP_PERM
  switch (call.integer(0)) {
    case ARCH_SET_FS:
      if (call.arguments[1] >= uint64_t{1} << 47) return -EPERM;
      call.thread.guest_fs = call.arguments[1];
      return 0;
    case ARCH_GET_FS:
      return write_guest(call.arguments[1], call.thread.guest_fs) ? 0 : -EFAULT;
    case ARCH_SET_GS: {
      // Calls of this thread trap from here on, unless the guest gives the register back.
      const long result = pass_call(call.number, call.arguments, call.thread);
      if (result != 0) return result;
      call.thread.gs_is_guests = true;
      if (call.arguments[1] == 0) point_gs(call.thread);
      return 0;
    }
    case ARCH_GET_GS: {
      uint64_t base = 0;
      if (call.thread.gs_is_guests) asm volatile("rdgsbase %0" : "=r"(base));
      return write_guest(call.arguments[1], base) ? 0 : -EFAULT;
    }
    case kRequestRegisters: {
      // The kernel's frames then get another format, and those of each thread at another time.
      const long result = pass(call);
      if (result == 0) host().space.trap_all_calls();
      return result;
    }
    default:
      return pass(call);
  }
}

long prctl(Call& call) {
  constexpr int kUserDispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH
  switch (call.integer(0)) {
    case kUserDispatch:
    case PR_SET_SECCOMP:
    case PR_SET_MM:
      return -EINVAL;
    default:
      return pass(call);
  }
}

}  // namespace multigrain::guest::call
