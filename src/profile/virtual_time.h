// Virtual time: what the emulated machine would have taken, so that 32 processors can be studied on two cores
// ([GeNIMA], section III, for emulating a cluster on one machine).
//
// Every processor has a clock. It grows
//   - by the CPU time of its thread, scaled (a factor for the program's code, one for the rest), while it runs the
//     program's code or the protocol's;
//   - to the time at which what it waits for happens (a message's handler, another processor's release), while it
//     waits: the time that passes meanwhile on this host is nobody's;
//   - by what handlers cost that interrupted it.
// A message's handler has a clock of its own, which begins when the message arrives and the node's protocol handler is
// free (fabric/emulation/virtual_fabric.h). What it sends, and what it announces to waiting processors, carries that
// clock.
//
// Invariants
//   V1  A clock never goes back.
//   V2  Who waited for something goes on no earlier than whoever made it true did so: EventCount::notify() leaves its
//       time with the event, and every wait ends with advance().
//   V3  No processor makes a synchronisation call while its clock is more than `skew` ahead of the slowest runnable
//       processor's. Runnable: runs a function, and does not wait in a lock or barrier, nor, for something that the
//       runtime does not know of, in a system call. So requests reach locks in the order of their virtual times but
//       for `skew`, and work that processors share through locks is shared as the emulated machine would share it.
//       The slowest runnable processor never waits for this, so somebody always goes on.
//
// Processors' clocks stand in memory that all nodes map; all nodes are on one host. A processor publishes its clock
// where it synchronises, faults, begins and ends to wait. Between these it runs, and others that need it to come
// further sleep.
//
// Everything here costs one test of a constant when the run's clock is the wall's.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace multigrain::virtual_time {

// One processor, as all nodes see it. All zero: runs nothing.
struct alignas(64) ProcessorClock {
  enum State : uint32_t {
    kAway,        // runs no function
    kRuns,        //
    kWaitsFor,    // for a message that is certain to come: no progress of a processor is needed
    kWaitsUntil,  // until another processor does something
  };
  std::atomic<uint64_t> published;       // nanoseconds, at most the processor's clock
  std::atomic<uint32_t> state;           // State
  std::atomic<uint32_t> process;         // pid and tid of the thread
  std::atomic<uint32_t> thread;          //
  std::atomic<uint32_t> ahead;           // a futex word: grows when the slowest has come to `until`
  std::atomic<uint64_t> until;           // of a processor that sleeps because it is ahead; else kNever
  std::atomic<const void*> event;        // what it waits for, an address in its own process
  std::atomic<uint64_t> handled_ns;      // what handlers cost that ran while it waited
  std::atomic<uint64_t> interrupted_ns;  // and while it did not; not yet on its clock
  static constexpr uint64_t kNever = 0;
};
static_assert(sizeof(ProcessorClock) == 64);

// What all processors of the machine share: in memory that every node maps, zero at first.
struct Shared {
  std::span<ProcessorClock> processors;       // of the machine
  std::atomic<uint32_t>* sleepers = nullptr;  // how many processors sleep because they are ahead
};

struct Options {
  double scale = 1;              // virtual nanoseconds for each of CPU time: in the program's code,
  double protocol_scale = 1;     // and everywhere else
  Nanoseconds trap_ns = 0;       // what a fault costs before its handler runs and after it has returned,
  Nanoseconds cold_trap_ns = 0;  // and if the processor has waited since the last
  Nanoseconds check_ns = 0;      // what a check that misses costs before the runtime begins and after it has ended
  Nanoseconds skew_ns = 20'000;  // V3
  unsigned first_processor = 0;  // of this node
  unsigned processors = 1;       // of this node
};

// Turns virtual time on in this process, for good. Once, before any other call here and before there are threads.
void start(const Shared& shared, const Options& options);

namespace internal {
extern bool g_on;

struct ThreadClock {
  Nanoseconds base = 0;  // virtual time at `mark`
  Nanoseconds mark = 0;  // thread_cpu_ns(), while it runs
  bool runs = false;
  bool of_handler = false;

  Nanoseconds read();
  void run();
  // Returns the time at which it stands.
  Nanoseconds stop();
};

void advance(Nanoseconds when);
void announce(const void* event, Nanoseconds when);
}  // namespace internal

[[nodiscard]] inline bool on() {
  return internal::g_on;
}

// --- Clocks. Of the calling thread; async-signal-safe.

// The thread's own clock, nanoseconds since the start of the run. What its profile is stamped with.
Nanoseconds now();
// The time of what the thread does: in a message's handler, the handler's clock; else its own. What messages and events
// are stamped with.
Nanoseconds stamp();
// Scaled CPU time of the thread: for intervals of work, wherever it is charged.
Nanoseconds work_ns();
// What caused this happened at `when`: the calling thread's clock is that far from now on (V2).
inline void advance(Nanoseconds when) {
  if (on()) internal::advance(when);
}

// stamp() is at least `when` as long as this lives: for a transition that another caused, which came later than the
// thread that carries it out.
class StampFloor {
 public:
  explicit StampFloor(Nanoseconds when);
  ~StampFloor();
  StampFloor(const StampFloor&) = delete;
  StampFloor& operator=(const StampFloor&) = delete;

 private:
  Nanoseconds outer_ = 0;
};

// What the emulation itself costs here, and what the emulated machine would not do, is nobody's time: the calling
// thread's clock stands as long as this lives.
class Unaccounted {
 public:
  Unaccounted();
  ~Unaccounted();
  Unaccounted(const Unaccounted&) = delete;
  Unaccounted& operator=(const Unaccounted&) = delete;

 private:
  internal::ThreadClock* clock_ = nullptr;  // if it ran
};

// --- Processors.

// The calling thread is this processor of the node from now on; its clock stands still.
void adopt(unsigned local_processor);
// The processor is given a function at `when`: from now on it counts as runnable. By whoever hands it over.
void hand_over(unsigned local_processor, Nanoseconds when);
// The function begins no earlier than `when`, and ends. By the processor itself.
void begin_function(Nanoseconds when);
void end_function();
// The calling processor makes a system call of the program's, in which it may wait for what the runtime does not know: it is
// not runnable until the call has ended.
void begin_system_call();
void end_system_call();

// A thread that is no processor works for one, from `when` on, for as long as this lives: its clock runs, and what it waits for
// counts.
class WorkFor {
 public:
  explicit WorkFor(Nanoseconds when);
  ~WorkFor();
  WorkFor(const WorkFor&) = delete;
  WorkFor& operator=(const WorkFor&) = delete;
};

// A processor's clock, as far as the calling thread knows.
Nanoseconds clock_of(unsigned local_processor);

// The calling processor has faulted, and its handler has just begun: what the system took for that was no work of the
// program's but the protocol's.
void trapped();

// A check of the calling processor's has missed, and called the runtime, which works on it as long as this lives: that,
// and what it cost to come here with all registers kept, is no work of the program's but the protocol's. Only in
// virtual time, which may scale the two by different factors; else these nanoseconds stay with the program.
class MissedCheck {
 public:
  MissedCheck() : missed_(on() && begin()) {}
  ~MissedCheck() {
    if (missed_) end();
  }
  MissedCheck(const MissedCheck&) = delete;
  MissedCheck& operator=(const MissedCheck&) = delete;

 private:
  static bool begin();
  static void end();
  const bool missed_;
};

// The calling processor is about to synchronise: waits until it is not too far ahead (V3). Also where a processor picks
// up the cost of the handlers that interrupted it. No lock of the runtime may be held; not for handlers.
void synchronise();

// --- Waiting: what fabric/wait.h calls.

// From here to the end of its life the calling thread waits for `event`; its clock stands. It ends with the event's
// time.
class Wait {
 public:
  // `event`: the address that notify() gives to announce(); `when`: where the event's time will be.
  Wait(const void* event, const std::atomic<Nanoseconds>& when);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  // It was announced, but not what this thread waits for.
  void again();

 private:
  const void* event_;
  const std::atomic<Nanoseconds>& when_;
  bool active_ = false;
};

// Processors of this node that wait for `event` are runnable since `when`.
inline void announce(const void* event, Nanoseconds when) {
  if (on()) internal::announce(event, when);
}

// --- Handlers: what fabric/emulation/virtual_fabric.h calls.

// The calling thread runs a message's handler, with a clock of its own, for as long as this lives. The clock starts at
// `begin`, and the handler at `begin + overhead`.
class HandlerScope {
 public:
  HandlerScope(Nanoseconds begin, Nanoseconds overhead);
  ~HandlerScope();
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;
  // What the handler has taken so far, the overhead included.
  [[nodiscard]] Nanoseconds elapsed();

 private:
  const Nanoseconds begin_;
  internal::ThreadClock clock_;
  internal::ThreadClock* const outer_;
  const bool outer_ran_;
};

// The processor of this node that a handler which begins now would interrupt: one that waits, and so runs handlers
// without being interrupted, if there is one; else the next in turn. nullptr: none runs a function.
struct Interrupted {
  ProcessorClock* processor = nullptr;
  bool waits = false;
};
Interrupted choose_interrupted();

// Charges it with what the handler took.
void charge(const Interrupted& interrupted, Nanoseconds cost);

}  // namespace multigrain::virtual_time
