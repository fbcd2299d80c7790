// This is the recorder's runtime, inside a traced program: what the instrumented code and the interposed functions of
// the C library share.
//
// The order of references. A thread's clock counts its references, shared and private, as if a processor made one a
// tick. Synchronisation carries clocks as in [Lamport]: an acquire sets the thread's clock past that of the release it
// follows, threads that leave a barrier have clocks past that of its last arrival, a thread starts after its creation,
// and a join ends after the thread. An atomic (or volatile) read comes after the write it may have seen, and atomic
// operations on one address come in the order in which they were done. The merged trace has all references in the order
// of these clocks, so:
//   - it contains every thread's references in program order,
//   - whatever happens before something else by that synchronisation precedes it in the trace,
//   - apart from that the threads advance together, one reference each, like the processors of [Bolosky]'s machine
//     (section 2.3.1), however few cores the traced run had.
// Two references that race are ordered by the clocks alone: possibly not as they happened. Synchronisation by other
// means (pipes, signals, futexes of one's own, inline assembly) is not seen; that of LLVM's OpenMP is (openmp.cpp).
//
// A thread's stack is memory like any other where other threads use it. Most of it they cannot: what was put there since the
// thread last synchronised in a way that lets another thread go on. References to that are private, and are only counted.
#pragma once

#include <cstdint>

#include "trace/record/raw.h"

#define MG_RECORD_EXPORT extern "C" __attribute__((visibility("default")))

namespace multigrain::trace::record {

// Returns true between the start of the runtime and the end of the recording.
bool active();

// A lock of the runtime's own, which no traced program sees: 0 is free. The thread that holds it does not call the program.
void lock_word(uint32_t& word);
void unlock_word(uint32_t& word);

// These are the clocks that synchronisation carries, by address of what it goes through. Two addresses that share a
// slot are ordered more than they need to be. A thread calls release_through() before the operation that lets another
// thread in, and acquire_through() after the one that lets itself in.
void release_through(uint64_t address);
void acquire_through(uint64_t address);
// These do the same without an event in the trace, for condition variables and semaphores.
void publish_through(uint64_t address);
void observe_through(uint64_t address);

inline constexpr uint32_t kNoProcessor = ~uint32_t{0};

// The calling thread waits for other threads from now on, which then do not wait for it to keep pace; or no longer.
void set_running(bool running);

// Returns the calling thread's number, or kNoProcessor if it has none.
uint32_t own_processor();
// The caller is about to let the waiting thread of that number go on, which will be at `clock`. The others, the caller among
// them, wait for it to keep pace from now on, however late this machine lets it run.
void resume(uint32_t processor, uint64_t clock);

// While a Blocked exists, the thread is in a system call that ends when another thread makes progress.
class Blocked {
 public:
  Blocked();
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
};

// Records an event of this thread at its present clock, which becomes one tick later.
void record_event(raw::Kind kind, uint64_t address, uint64_t value, uint32_t site);

uint64_t thread_clock();
// Returns the thread's clock for another thread, which will begin or go on after it, and may know this thread's stack then.
uint64_t publish_clock();
// Moves the thread's clock forward to `clock`, if it is earlier.
void advance_clock(uint64_t clock);

// Returns a processor for a thread that is about to be created by one whose clock is `clock`: the lowest number that no thread
// has, and that no thread had after that clock; or kNoProcessor.
uint32_t reserve_processor(uint64_t clock);
void give_up_processor(uint32_t processor);
// The present thread begins or ends to be that processor. end_thread() returns its clock.
void begin_thread(uint32_t processor, uint64_t clock);
uint64_t end_thread();
// Waits while this thread is far ahead of the slowest thread that runs.
void keep_pace();

// Returns the site of an allocation that `caller` asked for: what the pass noted down, or one made up for the calling
// function.
uint32_t allocation_site(void* caller);

// While one exists, the thread's references are the runtime's and not the program's.
class InRuntime {
 public:
  InRuntime();
  ~InRuntime();
  InRuntime(const InRuntime&) = delete;
  InRuntime& operator=(const InRuntime&) = delete;
  // This says whether the thread was in it already.
  [[nodiscard]] bool nested() const { return nested_; }

 private:
  bool nested_;
};

}  // namespace multigrain::trace::record
