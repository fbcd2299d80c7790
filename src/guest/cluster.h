// What a guest whose threads run on several nodes needs of them. One node is the *home*: the kernel's state of the guest
// (descriptors, process ids, signals, areas) is there alone. Every thread on another node has a *shadow* at home, a thread
// of the home's process with the number (tid) that the guest knows, which carries out its calls.
//
// src/guest/nodes is the implementation. A guest on one node has none.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "guest/thread_block.h"

namespace multigrain::guest {

class Package;
struct Call;
struct ThreadStart;
struct SystemAction;

class Cluster {
 public:
  virtual ~Cluster() = default;

  // Whether this node is the home.
  [[nodiscard]] virtual bool is_home() const = 0;
  // How many processors the guest has, each node of it, and the number of the first of this node.
  [[nodiscard]] virtual unsigned processors() const = 0;
  [[nodiscard]] virtual unsigned processors_of_a_node() const = 0;
  [[nodiscard]] virtual unsigned first_processor() const = 0;

  // A fault of the guest, or of a copy of the host's (entry.h). True: the access can be made again.
  virtual bool on_fault(int signal, const siginfo_t& info, const ucontext_t& context, ThreadBlock& thread) = 0;

  // The calling thread is about to copy to these addresses of the guest's, or from them.
  virtual void expect_copy(uint64_t address, uint64_t bytes, bool is_write) = 0;

  // Of a fault that is the guest's own: what the system would have said about it.
  virtual void explain_fault(siginfo_t& info, ThreadBlock& thread) = 0;

  // The system call futex(), and FUTEX_WAKE for the ends of threads.
  virtual long futex(Call& call) = 0;
  virtual void wake(uint64_t address, uint32_t count) = 0;

  // Starts a thread where there is room for it. `parent` runs on this node. Its number (tid), or -errno.
  virtual long start_thread(const ThreadStart& start, ThreadBlock& parent) = 0;

  // Before a fork(), by a thread of the home that has the lock of the address space: all of the guest's memory as it is now, for the
  // child. -errno, or a number for the two that follow. The child has it as memory of its own, and no nodes.
  virtual long save_memory() = 0;
  virtual void forget_saved_memory(long saved) = 0;
  virtual void become_child(long saved) = 0;
  // Of the calling thread, for the statistics: it is the guest's, and is about to enter it; it is about to make a system call;
  // it goes on in the guest.
  virtual void thread_begins(const ThreadBlock& thread, const ThreadStart& start) = 0;
  virtual void call_begins() = 0;
  virtual void call_ends() = 0;
  // The guest's first process is about to die of a signal, or to be replaced by another program, of which there are no
  // statistics. By a thread of the home.
  virtual void process_ends(int status) = 0;

  // exit_group(), of a thread of the home.
  [[noreturn]] virtual void exit_guest(int status) = 0;

  // --- Of threads that are away from home.

  // The call of a package; what the system gives is in the package then.
  virtual long carry_out(Package& package, ThreadBlock& thread) = 0;
  // A call with numbers for arguments, or one of which the home knows more; its host reads and writes the guest's memory itself.
  virtual long call_at_home(long number, const uint64_t (&arguments)[6], ThreadBlock& thread) = 0;
  // clone(), fork() or vfork() of a process.
  virtual long start_process_at_home(Call& call) = 0;
  // As rt_sigaction(): either may be null.
  virtual long action_at_home(int signal, const SystemAction* wanted, SystemAction* before, ThreadBlock& thread) = 0;
  // The thread's mask is another one now, and it has acted on ThreadBlock::signals_acted_on signals. kRestart, unless `must_take`:
  // a signal has come before; the mask is as it was.
  virtual long set_mask_at_home(uint64_t mask, bool must_take, ThreadBlock& thread) = 0;
  // Does what the system does by default with this signal: most end the guest. Returns if the guest has survived. `is_forced`: the
  // guest cannot go on, whatever it does about the signal.
  virtual void act_by_default_at_home(int signal, bool is_forced, ThreadBlock& thread) = 0;
  // The signal that the home has sent to this thread; si_signo 0: none.
  virtual siginfo_t take_signal(ThreadBlock& thread) = 0;
  // The guest's thread has ended, all but its number.
  virtual void thread_has_ended(ThreadBlock& thread) = 0;
  // So has its first thread. The process ends with this status if its last thread ends.
  [[noreturn]] virtual void first_thread_has_ended(int status) = 0;
};

}  // namespace multigrain::guest
