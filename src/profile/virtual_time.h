// Virtual time: what the emulated machine would have taken, so that 32 processors can be studied on two cores
// ([GeNIMA], section III, for emulating a cluster on one machine).
//
// Every processor has a clock. It grows
//   - by the CPU time of its thread, scaled (a factor for the program's code, one for the rest), while it runs the
//     program's code or the protocol's;
//   - while the processor waits, to the time at which what it waits for happens (a message's handler, another
//     processor's release): the time that passes meanwhile on this host is on no clock;
//   - by the cost of the handlers that interrupted it.
// A message's handler has a clock of its own, which begins when the message arrives and the node's protocol
// handler is free (fabric/emulation/virtual_fabric.h). What it sends, and what it announces to waiting processors,
// carries that clock.
//
// Invariants
//   V1  A clock never goes back.
//   V2  A thread that waited for something goes on no earlier than the thread that made it true did so:
//       EventCount::notify() leaves its time with the event, and every wait ends with advance().
//   V3  No processor makes a synchronisation call while its clock is more than `skew` ahead of the slowest runnable
//       processor's. A processor is runnable if it runs a function, and waits neither in a lock or barrier nor, for
//       something of which the runtime does not know, in a system call. So requests reach locks in the order of their
//       virtual times but for `skew`, and work that processors share through locks is shared as the emulated machine
//       would share it. The slowest runnable processor never waits for this, so some processor always goes on.
//
// Processors' clocks stand in memory that all nodes map; all nodes are on one host. A processor publishes its clock
// where it synchronises, faults, begins and ends to wait. Between these it runs, and processors that need it to come
// further sleep.
//
// In counted time (--clock counted) a processor's own time is not measured but counted: the program's code adds up what
// its instructions cost (count/abi.h), and the runtime spends the prices of a machine description
// (base/machine_costs.h) for what it does. Processors and protocol handlers take turns (emulation/ordered_execution.h),
// so V3 holds with a skew of 0 at every event, and a run is the same every time. How far a processor's code may run
// from one event to the next, so that what other participants do meanwhile meets it too late, is bounded by `skew`:
// compiled code polls when it has counted that much.
//
// Everything here costs one test of a constant when the run's clock is the wall's.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/machine_costs.h"
#include "count/abi.h"
#include "emulation/ordered_execution.h"

namespace multigrain {
enum class Category : uint8_t;  // profile/profile.h
}

namespace multigrain::virtual_time {

// One processor, as all nodes see it. All zeroes mean that it runs nothing.
struct alignas(64) ProcessorClock {
  enum State : uint32_t {
    kAway,  // runs no function
    kRuns,  // runs one
    // It waits for a message that is certain to come: no processor need come further for that.
    kWaitsFor,
    kWaitsUntil,  // waits until another processor does something
  };
  std::atomic<uint64_t> published;  // nanoseconds, at most the processor's clock
  std::atomic<uint32_t> state;      // State
  std::atomic<uint32_t> process;    // pid and tid of the thread
  std::atomic<uint32_t> thread;     //
  // A futex word: it grows when the slowest processor has come to `until`.
  std::atomic<uint32_t> ahead;
  // The clock to which the slowest processor must come before this one, which is ahead, goes on; kNever if this one
  // does not sleep.
  std::atomic<uint64_t> until;
  // The event for which it waits, an address in its own process.
  std::atomic<const void*> event;
  // The cost of the handlers that ran while it waited.
  std::atomic<uint64_t> handled_ns;
  // The cost of the handlers that interrupted it, not yet on its clock.
  std::atomic<uint64_t> interrupted_ns;
  // How late it is still to be (Perturbation).
  std::atomic<uint64_t> late_ns;
  static constexpr uint64_t kNever = 0;
};
static_assert(sizeof(ProcessorClock) == 64);

// The words that all processors of the machine share, in memory that every node maps; it is zero at first.
struct Shared {
  std::span<ProcessorClock> processors;       // those of the machine
  std::atomic<uint32_t>* sleepers = nullptr;  // how many processors sleep because they are ahead
  ordered::Shared order;                      // in counted time
};

// How late processors start, so that runs in counted time, which are the same every time, can be varied a little, and a
// figure has a spread. A processor is late where it begins its first function, and again, by another length, in a measured
// phase: where it leaves the first barrier to which it has come in the phase, or begins a function if that is before.
// Processor 0, which starts the others, and the processor that begins the phase are never late: the others are late in
// comparison with them.
//
// All processors of a program are late between the same two barriers, so that the second one waits for the latest, and the
// phase is longer by at most `most`, but for what follows from another order. If a processor that is still in the barrier
// before the phase were late as soon as it leaves that, others would be late behind the next one, and both would be added.
struct Perturbation {
  uint64_t seed = 0;
  Nanoseconds most = 0;  // 0: none is late
};
// Returns how late a processor of the machine is: the same for the same arguments, from 0 to `most`, each length as often
// as any other. `phase` is 0 for the start, and then counts the measured phases. Async-signal-safe.
Nanoseconds lateness(const Perturbation& perturbation, unsigned processor, uint64_t phase);

struct Options {
  // Virtual nanoseconds for each nanosecond of CPU time in the program's code.
  double scale = 1;
  // The same everywhere else.
  double protocol_scale = 1;
  // The cost of a fault before its handler runs and after it has returned.
  Nanoseconds trap_ns = 0;
  // The same if the processor has waited since its last fault.
  Nanoseconds cold_trap_ns = 0;
  // The cost of a check that misses, before the runtime begins and after it has ended.
  Nanoseconds check_ns = 0;
  Nanoseconds skew_ns = 20'000;  // see V3
  unsigned first_processor = 0;  // the first of this node
  unsigned processors = 1;       // how many this node has
  // The prices of counted time. They live for ever. nullptr: processors' own time is measured, and all that follows
  // `scale` counts.
  const MachineCosts* costs = nullptr;
  Perturbation perturbation{};  // in counted time
  // In counted time: returns what the calling thread's code has counted, and up to where it does without a poll.
  mg_count& (*count)() = nullptr;
};

// Turns virtual time on in this process, for good. Called once, before any other function here and before there
// are threads.
void start(const Shared& shared, const Options& options);

// When the work of a message's handler is done, on a node that handles one message at a time.
class HandlerTime {
 public:
  virtual ~HandlerTime() = default;
  // Takes `length` nanoseconds of the node's time for handlers, of what is free from `from` on. Returns when the last of
  // them ends; with a length of 0, the first moment that is free.
  virtual Nanoseconds take(Nanoseconds from, Nanoseconds length) = 0;
};

namespace internal {
extern bool g_on;
extern const MachineCosts* g_costs;

struct ThreadClock {
  Nanoseconds base = 0;  // virtual time at `mark`
  // While it runs: thread_cpu_ns(), or, in counted time, what the thread's code has counted, in picoseconds.
  uint64_t mark = 0;
  uint64_t rest_ps = 0;  // in counted time: picoseconds that are not yet a nanosecond
  bool runs = false;
  bool of_handler = false;
  HandlerTime* time = nullptr;  // where a handler's work goes; nullptr: it follows itself without a gap
  Nanoseconds worked = 0;       // how much work of a handler has gone there

  Nanoseconds read();
  // Lets the clock go on by `length`.
  void add(Nanoseconds length);
  void run();
  // Stops the clock, and returns the time at which it stands.
  Nanoseconds stop();
};

void advance(Nanoseconds when);
void announce(const void* event, Nanoseconds when);
void spend(uint64_t picoseconds);
}  // namespace internal

[[nodiscard]] inline bool on() {
  return internal::g_on;
}
// Returns whether time is counted.
[[nodiscard]] inline bool is_counted() {
  return internal::g_costs != nullptr;
}

// --- Clocks. These functions are about the calling thread, and async-signal-safe.

// Returns the thread's own clock, in nanoseconds since the start of the run. The thread's profile is stamped with it.
Nanoseconds now();
// Returns the time of what the thread does: in a message's handler, the handler's clock; else the thread's own.
// Messages and events are stamped with it.
Nanoseconds stamp();
// Returns scaled CPU time of the thread: for intervals of work, wherever the work is charged.
Nanoseconds work_ns();
// The cause of what the thread does next happened at `when`: its clock is at least that far from now on (V2).
inline void advance(Nanoseconds when) {
  if (on()) internal::advance(when);
}

// The calling thread has done something, so many times, or with so many bytes, that has this price in counted time.
// Where time is measured, this does nothing.
inline void spend(uint64_t MachineCosts::* price, uint64_t times = 1) {
  if (is_counted()) internal::spend(internal::g_costs->*price * times);
}
// The calling thread has allowed its node more (`grants`) or less for that many consecutive pages, by one call.
void spend_rights_change(bool grants, uint64_t pages);
// The calling thread has taken rights to a page from so many processors of its node, each of which has rights of its own.
void spend_shoot_down(uint32_t processors);
// The calling thread, which may be in the program's code as far as its profile knows, has done something at this price,
// which is time of `category`.
void spend_in(Category category, uint64_t MachineCosts::* price);

// The prices of counted time, which is on.
[[nodiscard]] inline const MachineCosts& costs() {
  return *internal::g_costs;
}

// Keeps stamp() from being less than `when` for as long as it lives: for a transition that another thread caused, at a
// time later than that of the thread that carries it out.
class StampFloor {
 public:
  explicit StampFloor(Nanoseconds when);
  ~StampFloor();
  StampFloor(const StampFloor&) = delete;
  StampFloor& operator=(const StampFloor&) = delete;

 private:
  Nanoseconds outer_ = 0;
};

// The calling thread's clock stands for as long as this lives, because neither what the emulation itself costs, nor
// what the emulated machine would not do, is time of any processor.
class Unaccounted {
 public:
  Unaccounted();
  ~Unaccounted();
  Unaccounted(const Unaccounted&) = delete;
  Unaccounted& operator=(const Unaccounted&) = delete;

 private:
  internal::ThreadClock* clock_ = nullptr;  // if it ran
};

// Nor is what the calling thread sends as long as this lives, and what handlers of such messages do and send: it costs
// no processor time, and takes neither links nor handlers (fabric/emulation/virtual_fabric.h). A handler that runs
// meanwhile for another message is charged as ever.
class UnaccountedMessages {
 public:
  UnaccountedMessages();
  ~UnaccountedMessages();
  UnaccountedMessages(const UnaccountedMessages&) = delete;
  UnaccountedMessages& operator=(const UnaccountedMessages&) = delete;
  // Returns whether the calling thread has one.
  static bool on();

 private:
  const Unaccounted work_;
};

// --- Processors.

// Makes the calling thread this processor of the node; its clock stands still.
void adopt(unsigned local_processor);
// In counted time: from now on the calling thread, a processor, takes turns with the machine's other participants.
// Returns at its first turn: at once in its order if it runs a function (begin_function), else when it has been given
// one. Every processor of the machine and every node's protocol handler must come here, or to
// take_part_as_handler(), before the first one goes on.
void take_part();
// The same for the calling thread, which handles its node's messages, and nothing else until one comes.
void take_part_as_handler();
// In counted time: the calling thread is no participant any more. Another thread may take the processor's part.
void leave();
// The number of a node's protocol handler among the participants.
[[nodiscard]] unsigned handler_of(unsigned node);
// The thread that gives the processor a function calls this. From `when` on the processor counts as runnable.
void hand_over(unsigned local_processor, Nanoseconds when);
// The processor itself calls these when its function begins, no earlier than `when`, and when it ends.
void begin_function(Nanoseconds when);
// The thread of main() calls this when the program begins, and nobody has waited for it yet. What its thread has counted since
// begin_function() was the runtime's start, parts of which run in the program's copies of functions of the C++ library: how much that
// is depends on the host, whose process numbers have more or fewer digits. By the other clocks this does nothing.
void begin_program();
void end_function();
// A measured phase begins for this node's processors; the calling thread may be the one that begins it, or handles a message. That
// one had left so many barriers then.
void begin_phase(uint64_t barriers);
// Returns how many barriers the calling processor has left.
[[nodiscard]] uint64_t barriers_left();
// The calling processor has left a barrier, and holds no lock of the runtime.
void left_barrier();
// The calling processor makes a system call of the program's, in which it may wait for something of which the runtime
// does not know: it is not runnable until the call has ended.
void begin_system_call();
void end_system_call();

// A thread that is no processor works for one, from `when` on, for as long as this lives: its clock runs, and the times
// of the events for which it waits count.
class WorkFor {
 public:
  explicit WorkFor(Nanoseconds when);
  ~WorkFor();
  WorkFor(const WorkFor&) = delete;
  WorkFor& operator=(const WorkFor&) = delete;
};

// Returns which processor of its node the calling thread is, if its clock runs and it is in no message's handler; else
// nothing.
[[nodiscard]] std::optional<unsigned> running_processor();

// Returns a processor's clock, as far as the calling thread knows.
Nanoseconds clock_of(unsigned local_processor);

// The calling processor has faulted, and its handler has just begun. The time that the system took for that is the
// protocol's, and not the program's.
void trapped();

// A check of the calling processor's has missed, and called the runtime, which works on it as long as this lives. That
// time, and what it cost to come here with all registers kept, is the protocol's, and not the program's. This is done
// in virtual time only, which may scale the two by different factors; else these nanoseconds stay with the program.
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

// The calling processor has called the runtime, which works for it as long as this lives: in virtual time that is time
// of `category`, at the factor for the protocol and synchronisation, however short the call is. Without this, a call
// that changes no category by itself, such as that of a lock which nobody else wants, would be the program's code. What
// it costs to read the clock at both ends is the emulation's, and left out: it is measured once, when virtual time is
// turned on. On the wall clock this is one test of a constant at each end.
class RuntimeCall {
 public:
  explicit RuntimeCall(Category category) : came_(on() && begin(category)) {}
  ~RuntimeCall() {
    if (came_) end();
  }
  RuntimeCall(const RuntimeCall&) = delete;
  RuntimeCall& operator=(const RuntimeCall&) = delete;

 private:
  static bool begin(Category category);
  static void end();
  const bool came_;
};

namespace internal {
void synchronise();
}
// The calling processor is about to synchronise: waits until it is not too far ahead (V3). Here the processor
// also takes the cost of the handlers that interrupted it. The caller may hold no lock of the runtime, and may
// be no handler.
inline void synchronise() {
  if (on()) internal::synchronise();
}
// The calling processor's code polls, in counted time: it has run for as long as it may.
void poll();

// --- Turns in counted time. These do nothing for a thread that takes no turns.

// The calling thread gives its turn away until `when`, if that is to come. Its clock stays where it is: the time passes
// for the others.
void let_others_come_to(Nanoseconds when);
// The calling thread waits, and has nothing to do, until `when`: lets the others come to it, and is there itself then.
void wait_until_time(Nanoseconds when);
// The calling thread has found that something is not as it needs it, and looks again a moment later, as a processor that
// spins would. Returns false, and nothing has happened, if the thread takes no turns.
bool spin_in_turn();
// Something that the calling thread has started happens at `when`: its code polls by then.
void expect_event(Nanoseconds when);

// --- Waiting, for fabric/wait.h.

// In counted time: the calling thread is a participant, and gives its turn away until another one has announced what it
// waits for.
[[nodiscard]] inline bool takes_turns() {
  return is_counted() && ordered::takes_part();
}

// The calling thread waits for `event` as long as this lives, and its clock stands. The wait ends with the
// event's time.
class Wait {
 public:
  // `event` is the address that notify() gives to announce(); `when` is where the event's time will be.
  Wait(const void* event, const std::atomic<Nanoseconds>& when);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  // The event was announced, but what this thread waits for has not happened.
  void again();

 private:
  const void* event_;
  const std::atomic<Nanoseconds>& when_;
  bool active_ = false;
  bool ran_ = false;
};

// Processors of this node that wait for `event` are runnable since `when`.
inline void announce(const void* event, Nanoseconds when) {
  if (on()) internal::announce(event, when);
}

// --- Handlers, for fabric/emulation/virtual_fabric.h.

// The calling thread runs a message's handler, with a clock of its own, for as long as this lives. The clock starts at
// the first moment from `arrival` on that `time` has free, and the handler after `overhead` more of work.
class HandlerScope {
 public:
  HandlerScope(Nanoseconds arrival, Nanoseconds overhead, HandlerTime& time);
  ~HandlerScope();
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;
  // Returns how much the handler has worked so far, and waited, the overhead included.
  [[nodiscard]] Nanoseconds elapsed();

 private:
  internal::ThreadClock clock_;
  internal::ThreadClock* const outer_;
  const bool outer_ran_;
  const unsigned outer_unaccounted_;
};

// The calling thread runs the handler of a message that is not accounted, on a clock that stands at 0, for as long as
// this lives.
class UnaccountedHandler {
 public:
  UnaccountedHandler();
  ~UnaccountedHandler();
  UnaccountedHandler(const UnaccountedHandler&) = delete;
  UnaccountedHandler& operator=(const UnaccountedHandler&) = delete;

 private:
  internal::ThreadClock clock_;
  internal::ThreadClock* const outer_;
  const bool outer_ran_;
};

// The processor of this node that a handler which begins now would interrupt: one that waits, and so runs handlers
// without being interrupted, if there is one; else the next in turn. It is nullptr if none runs a function.
struct Interrupted {
  ProcessorClock* processor = nullptr;
  bool waits = false;
};
Interrupted choose_interrupted();

// Charges the processor with what the handler took.
void charge(const Interrupted& interrupted, Nanoseconds cost);

}  // namespace multigrain::virtual_time
