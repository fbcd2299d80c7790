// Starts, runs and ends threads of a guest. Each is a thread of this process, with the host's thread pointer while the
// host runs in it.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>

#include "guest/thread_block.h"

namespace multigrain::guest {

struct ThreadStart {
  const ucontext_t* context = nullptr;  // its first registers, except for those below
  uint64_t stack = 0;                   // its stack pointer
  uint64_t thread_pointer = 0;
  uint64_t parent_tid = 0;  // words that get its number, or null
  uint64_t child_tid = 0;
  // This word is cleared and woken when the thread ends, unless it is null.
  uint64_t clear_tid = 0;
  // At home, this is the number of the thread that starts the new one; else 0.
  int32_t creator = 0;
  // In a run in virtual time, the thread begins at this time (Cluster::thread_begins).
  uint64_t when = 0;
};

// Starts a thread that shares everything with this one. Returns its number (tid), or -errno. The caller
// blocks all signals.
long start_thread(const ThreadStart& start, const ThreadBlock& parent);
// Runs the calling thread of the host as a thread of the guest, until that has ended. `block` has everything that
// start_thread() gives a thread, and goes with the thread; the context lies in it. `begun` is called when the thread
// will enter the guest, or cannot: with the thread's number, or -errno.
void run_thread(ThreadBlock& block, ucontext_t& context, const ThreadStart& start,
                const std::function<void(long)>& begun);

// Does what the kernel does with the thread's list of robust mutexes when it ends.
void give_up_robust_mutexes(const ThreadBlock& thread);

// Ends the calling thread of the guest. Does not return.
[[noreturn]] void end_thread(ThreadBlock& thread, int status);

}  // namespace multigrain::guest
