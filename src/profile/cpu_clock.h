// Reads the CPU time of the calling thread, cheaply enough for every category switch.
//
// CLOCK_THREAD_CPUTIME_ID is exact and costs a system call: most of a microsecond on the machines on which clusters are
// emulated. The time-stamp counter costs 10 ns, but goes on while another thread has the core. So the counter is used
// for as long as the thread has not lost its core since the last system call, and Linux says when it has: it clears the
// pointer to a restartable sequence (rseq(2)) of a thread that is preempted, sleeps or gets a signal. The sequence
// registered here contains no code; only the clearing is of use. Where the C library has not registered the thread's
// rseq area, every reading is a system call.
#pragma once

#include "base/clock.h"

namespace multigrain {

// Returns the calling thread's CPU time, user and system, since an arbitrary moment, in nanoseconds, never decreasing.
// The cost of its own system calls is left out. Async-signal-safe, but not when the signal interrupts it.
Nanoseconds thread_cpu_ns();

// Measures what a reading costs, once, so that it can be left out. Called before the first reading.
void calibrate_thread_cpu_clock();

}  // namespace multigrain
