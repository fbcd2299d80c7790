// Threads of a guest: each is a thread of this process, with the host's thread pointer while the host runs in it.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>

#include "guest/thread_block.h"

namespace multigrain::guest {

struct ThreadStart {
  const ucontext_t* context = nullptr;  // where it begins, but for what follows
  uint64_t stack = 0;                   // its stack pointer
  uint64_t thread_pointer = 0;
  uint64_t parent_tid = 0;  // words that get its number, or null
  uint64_t child_tid = 0;
  uint64_t clear_tid = 0;  // the word that is cleared and woken when it ends, or null
  int32_t creator = 0;     // the number of the thread that starts it, at home; else 0
  uint64_t when = 0;       // of a run in virtual time: when it begins (Cluster::thread_begins)
};

// Starts a thread that shares everything with this one. Its number (tid), or -errno. All signals are blocked.
long start_thread(const ThreadStart& start, const ThreadBlock& parent);
// Runs the calling thread of the host as a thread of the guest, until that has ended. `block` has everything that
// start_thread() gives a thread, and goes with it; the context lies in it. `begun` is called when the thread will enter
// the guest, or cannot: with 0 or -errno.
void run_thread(ThreadBlock& block, ucontext_t& context, const ThreadStart& start,
                const std::function<void(long)>& begun);

// Ends the calling thread of the guest. Does not return.
[[noreturn]] void end_thread(ThreadBlock& thread, int status);

}  // namespace multigrain::guest
