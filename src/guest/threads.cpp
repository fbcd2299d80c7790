#include "guest/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <semaphore>

#include "guest/calls.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/signals.h"

namespace multigrain::guest {
namespace {

// The host's thread runs on its own stack only before it enters the guest and after it has left it.
constexpr size_t kHostStack = size_t{256} << 10;

struct Handover {
  const ThreadStart& start;
  ThreadBlock& block;
  ucontext_t& context;
  long result = 0;
  std::binary_semaphore begun{0};
};

void* thread_main(void* argument) {
  auto& handover = *static_cast<Handover*>(argument);
  // The handover is the parent's, so nothing of it is used once the parent goes on.
  run_thread(handover.block, handover.context, handover.start, [&handover](long result) {
    handover.result = result;
    handover.begun.release();
  });
  return nullptr;
}

void wake(uint64_t address, uint32_t count) {
  if (host().cluster != nullptr)
    host().cluster->wake(address, count);
  else
    syscall(SYS_futex, address, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

// Does what the kernel does with the list of a thread that ends: a thread that waits for one of its robust mutexes gets
// the mutex, and is told that the owner has died.
// [linux: Documentation/locking/robust-futex-ABI.rst]
class RobustList {
 public:
  RobustList(uint64_t head, pid_t tid) : head_(head), tid_(static_cast<uint32_t>(tid)) {}

  void give_up() {
    struct {
      uint64_t next;
      int64_t offset;
      uint64_t pending;
    } head{};
    if (head_ == 0 || !read_guest(head_, head)) return;
    // The kernel looks at that many entries, so that a circle ends.
    constexpr int kLimit = 2048;
    uint64_t entry = head.next;
    for (int i = 0; i < kLimit && (entry & ~kPriority) != head_; ++i) {
      uint64_t next = 0;
      const bool readable = read_guest(entry & ~kPriority, next);
      if ((entry & ~kPriority) != (head.pending & ~kPriority)) give_up_one(entry, head.offset);
      if (!readable) break;
      entry = next;
    }
    if (head.pending != 0) give_up_one(head.pending, head.offset);
  }

 private:
  static constexpr uint64_t kPriority = 1;  // marks a mutex with priority inheritance

  void give_up_one(uint64_t entry, int64_t offset) const {
    const uint64_t address = (entry & ~kPriority) + static_cast<uint64_t>(offset);
    uint32_t value = 0;
    if (address % sizeof value != 0 || !read_guest(address, value)) return;
    auto* const word = reinterpret_cast<uint32_t*>(address);
    while ((value & FUTEX_TID_MASK) == tid_) {
      const uint32_t waiters = value & FUTEX_WAITERS;
      const Exchange exchange = exchange_guarded(word, value, waiters | FUTEX_OWNER_DIED);
      if (exchange == Exchange::kDiffers) continue;
      if (exchange == Exchange::kDone && waiters != 0) wake(address, 1);
      return;
    }
  }

  uint64_t head_;
  uint32_t tid_;
};

}  // namespace

void run_thread(ThreadBlock& block, ucontext_t& context, const ThreadStart& start,
                const std::function<void(long)>& begun) {
  const Status prepared = prepare_thread(block);
  if (!prepared) {
    begun(-EAGAIN);
    return;
  }
  if (host().cluster != nullptr) host().cluster->thread_begins(block, start);
  const pid_t tid = number_of(block);
  if (start.creator != 0) host().masks.inherit(start.creator, tid);
  if (start.parent_tid != 0) write_guest(start.parent_tid, tid);
  if (start.child_tid != 0) write_guest(start.child_tid, tid);
  begun(tid);
  enter_guest(block, context);
  if (host().cluster != nullptr) host().cluster->thread_has_ended(block);
  retire_thread();
  destroy_block(&block);
}

long start_thread(const ThreadStart& start, const ThreadBlock& parent) {
  const Result<ThreadBlock*> created = create_block();
  if (!created) return -EAGAIN;
  ThreadBlock& block = **created;
  block.actions = parent.actions;
  block.hidden_mask = parent.hidden_mask;
  block.guest_fs = start.thread_pointer;
  block.gs_is_guests = parent.gs_is_guests;
  block.clear_tid = start.clear_tid;
  ucontext_t& context = copy_context(*start.context, block);
  context.uc_mcontext.gregs[REG_RAX] = 0;
  if (start.stack != 0) context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(start.stack);

  Handover handover{.start = start, .block = block, .context = context};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kHostStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const int failed = pthread_create(&thread, &attributes, &thread_main, &handover);
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    destroy_block(&block);
    return -failed;
  }
  // With its first thread, the host's C library has installed a handler of its own for setuid() and the like, which the
  // guest's library does itself. So the guest's disposition is restored. All signals are blocked here, and before that
  // first thread there was no other.
  constexpr int kSetIds = 33;  // SIGSETXID
  parent.actions->restore(kSetIds);
  handover.begun.acquire();
  if (handover.result < 0) destroy_block(&block);
  return handover.result;
}

void give_up_robust_mutexes(const ThreadBlock& thread) {
  RobustList(thread.robust_list, number_of(thread)).give_up();
}

void end_thread(ThreadBlock& thread, int status) {
  block_signals();
  give_up_robust_mutexes(thread);
  // The kernel must not take for a list what the guest does with the list's memory from here on.
  struct {
    void* next;
    long offset;
    void* pending;
  } none{&none, 0, nullptr};
  syscall(SYS_set_robust_list, &none, sizeof none);
  const uint32_t zero = 0;
  if (thread.clear_tid != 0 && write_guest(thread.clear_tid, zero)) wake(thread.clear_tid, 1);
  // The first thread has no host code to return to. The process has its status if the last thread ends this way.
  if (thread.away == nullptr && gettid() == getpid()) {
    // The other nodes find the files of the process by its first thread, which they cannot if that thread is gone.
    if (host().cluster != nullptr) host().cluster->first_thread_has_ended(status);
    syscall(SYS_exit, status);
  }
  leave_guest(thread);
}

}  // namespace multigrain::guest
