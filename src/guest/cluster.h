// The host of a guest whose threads run on several nodes reaches the nodes by this interface. One node is the *home*:
// it alone has the kernel's state of the guest (descriptors, process ids, signals) and the account of the guest's
// areas. Every thread on another node has a *shadow* at home: a thread of the home's process with the number (tid) that
// the guest knows. The shadow carries out the thread's calls.
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

  // Returns whether this node is the home.
  [[nodiscard]] virtual bool is_home() const = 0;
  // Returns the number of this node's first processor.
  [[nodiscard]] virtual unsigned first_processor() const = 0;

  // Handles a fault of the guest, or of a copy of the host's (entry.h). Returns true if the access can be made again.
  // Sets ThreadBlock::needs_home if it can be made at home alone.
  virtual bool on_fault(int signal, const siginfo_t& info, const ucontext_t& context, ThreadBlock& thread) = 0;

  // Handles what on_fault() has found if that is ThreadBlock::needs_home: the thread goes on at home, with this context
  // of the guest's. Returns if a signal has come before; the guest then makes its access, or its call, again.
  virtual void come_home(const ucontext_t& context, ThreadBlock& thread) = 0;
  // Copies between memory of the guest that only the home has and the host's. Returns false if the guest has no such
  // right to some of it, or if this node is the home.
  virtual bool copy_at_home(uint64_t address, void* bytes, size_t size, bool is_write) = 0;

  // Announces that the calling thread is about to copy to these addresses of the guest's, or from them.
  virtual void expect_copy(uint64_t address, uint64_t bytes, bool is_write) = 0;

  // Changes `info` of a fault that is the guest's own to what the kernel would have said about it.
  virtual void explain_fault(siginfo_t& info, ThreadBlock& thread) = 0;

  // These carry out the system call futex(), and FUTEX_WAKE for the ends of threads.
  virtual long futex(Call& call) = 0;
  virtual void wake(uint64_t address, uint32_t count) = 0;

  // Starts a thread where there is room for it. `parent` runs on this node. Returns the new thread's number
  // (tid), or -errno.
  virtual long start_thread(const ThreadStart& start, ThreadBlock& parent) = 0;

  // A thread of the home that has the lock of the address space calls this before a fork(). It saves all of the guest's
  // memory as it is now, for the child, and returns -errno, or a number for the two functions that follow. The child
  // has the memory as its own, and no nodes.
  virtual long save_memory() = 0;
  virtual void forget_saved_memory(long saved) = 0;
  // `can_be_placed`: the child shares nothing with its parent but what every child of fork() does, so it may run on another
  // node.
  virtual void become_child(long saved, bool can_be_placed) = 0;
  // The calling thread tells these, for the statistics, that it is the guest's and is about to enter it, that it is
  // about to make a system call, and that it goes on in the guest.
  virtual void thread_begins(const ThreadBlock& thread, const ThreadStart& start) = 0;
  virtual void call_begins() = 0;
  virtual void call_ends() = 0;
  // A thread of the home tells that the guest's first process is about to die of a signal, or to be replaced by another
  // program, of which there are no statistics.
  virtual void process_ends(int status) = 0;

  // Between these, a thread of the home starts a process that gets the guest's descriptors, or executes another program
  // in the place of the guest. `shares_table`: both have one table of descriptors from then on.
  virtual void begin_sharing_descriptors(bool shares_table) = 0;
  virtual void end_sharing_descriptors() = 0;

  // Carries out exit_group(), for a thread of the home.
  [[noreturn]] virtual void exit_guest(int status) = 0;

  // Makes the call of a package, for a thread of any node. What the kernel gives is in the package then.
  virtual long carry_out(Package& package, ThreadBlock& thread) = 0;

  // --- Threads that are away from home call these.

  // Makes a call with numbers for arguments, or one of which the home knows more. The home reads and writes the
  // guest's memory itself.
  virtual long call_at_home(long number, const uint64_t (&arguments)[6], ThreadBlock& thread) = 0;
  // Carries out clone(), fork() or vfork() of a process.
  virtual long start_process_at_home(Call& call) = 0;
  // Does what rt_sigaction() does. Either action may be null.
  virtual long action_at_home(int signal, const SystemAction* wanted, SystemAction* before, ThreadBlock& thread) = 0;
  // Tells the shadow the thread's new mask, and that the thread has acted on ThreadBlock::signals_acted_on signals.
  // Returns kRestart, unless `must_take`, if a signal has come before; the mask is as it was then.
  virtual long set_mask_at_home(uint64_t mask, bool must_take, ThreadBlock& thread) = 0;
  // Does what the kernel does by default with this signal: most signals end the guest. Returns if the guest has
  // survived. `is_forced`: the guest cannot go on, whatever it does about the signal.
  virtual void act_by_default_at_home(int signal, bool is_forced, ThreadBlock& thread) = 0;
  // Returns the signal that the home has sent to this thread; si_signo is 0 if there is none.
  virtual siginfo_t take_signal(ThreadBlock& thread) = 0;

  // --- Threads of any node call these when they end.

  // The guest's thread has ended, all but its number.
  virtual void thread_has_ended(ThreadBlock& thread) = 0;
  // The guest's first thread has ended, on the home. The process ends with this status if its last thread ends.
  [[noreturn]] virtual void first_thread_has_ended(int status) = 0;

  // --- Whole processes that are away from home (nodes/placed_process.h).

  // A child that is ready to go on in the guest calls this. It goes on on another node if one has been chosen for it:
  // this process is its shadow then, and goes on in the guest when it comes home. Otherwise this returns.
  virtual void place_child(Call& call) = 0;
  // Returns whether this is such a process, and not a node.
  [[nodiscard]] virtual bool is_process_away() const { return false; }
};

}  // namespace multigrain::guest
