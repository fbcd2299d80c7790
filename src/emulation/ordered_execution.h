// Ordered execution: the participants of an emulated machine, which are its processors and the protocol handlers of its
// nodes, take turns. One runs at a time on the whole machine, and the turn goes to the one whose next event is the
// earliest in virtual time. This makes a run in counted time the same, bit for bit, at every load of the host and on
// any number of its cores: a conservative discrete-event simulation with real programs in it.
//
// An event is what may depend on another participant, or matter to one: a call of synchronisation, a fault, the arrival
// of a message, a poll. Between two events a participant runs the program's own code.
//
// Invariants
//   O1  At most one participant has the turn. Only it runs the program's code, or changes what participants share; but for
//       the nodes' main threads when a run begins and ends, and threads that the program starts beside its processors.
//   O2  A participant that gives the turn away says when its next event is (pass), or that it has none until another
//       participant makes it ready (wait).
//   O3  The turn goes to the ready participant with the least (time, number). Numbers go node by node: first a node's
//       protocol handler, then its processors.
//   O4  No participant has the turn before all have joined: what the nodes do until then depends on the host.
// So whose turn it is depends on times and on what participants do in their turns, and on nothing else. By O1, a
// participant that is behind in virtual time may see what one that is ahead has done between its last event and the
// next. In the program's code a poll bounds by how much (virtual_time.h); one call of the runtime, such as the release of
// many pages, is done in one turn.
//
// What a participant has started may happen later than it has its turn: a remote memory operation takes effect when it
// has crossed the emulated network. That is an event of the participant as well (Later): pass() and wait() give the
// participant its turn for it, and see to it that it happens.
//
// A thread that has the turn and sleeps in a system call of its own, perhaps for something that another participant
// must do, would hold up all others. They look for that now and then: such a participant loses its turn, and waits for
// another one at its next event. Programs that synchronise by other means than Multigrain's may do this; then the
// run goes on, but its order depends on the host, and interruptions() is not 0.
//
// The functions allocate nothing, so a fault's handler may call them; a signal handler that interrupts one of them may not.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/spin_lock.h"

namespace multigrain::ordered {

// One participant, in memory that all nodes map. All zeroes mean that it has not joined. The state and what follows it
// belong to who holds the lock of the Turn.
struct alignas(64) Participant {
  enum State : uint32_t {
    kAbsent,   // it has not joined, or has left
    kWaits,    // it has no event until it is made ready
    kReady,    // it has an event at `time`
    kRuns,     // it has the turn
    kOutside,  // it runs, but has lost its turn because it slept
  };
  std::atomic<uint32_t> turns;       // a futex word: how many turns it has been given
  std::atomic<uint32_t> wants_lock;  // 1: its thread holds the lock of the Turn, or waits for it
  State state;
  Nanoseconds time;
  uint32_t process;  // pid and tid of its thread
  uint32_t thread;
  // It was made ready while it did not wait, or waited for something that it has started: then its next wait ends at once,
  // with an event at `made_ready_at`; or while it was absent: then its next thread is certain to come, and has an event at `time`.
  bool was_made_ready;
  bool waits_besides;  // it is ready for something that it has started, and waits as well
  Nanoseconds made_ready_at;
};

// Whose turn it is, in memory that all nodes map; zero at first.
struct alignas(64) Turn {
  MachineSpinLock lock;
  uint32_t joined;         // how many participants have ever joined, until all have
  uint32_t holder;         // 1 + the number of the participant that has the turn; 0: none has it
  uint64_t given;          // how many turns have been given
  uint64_t interruptions;  // how many participants have lost their turn
  // Of the looks at the participant that has the turn: when the next is due (monotonic_ns()); and if it slept at the last
  // one, `given` and its context switches then.
  Nanoseconds next_look;
  uint64_t sleeper_given;
  uint64_t sleeper_switches;
};

struct Shared {
  std::span<Participant> participants;
  std::span<uint32_t> tree;  // of a tournament of the participants, by their next events; zero at first
  Turn* turn = nullptr;
  // Not 0 if the run has failed: a participant that waits for its turn then ends its process with `status_of_abort`.
  const std::atomic<uint32_t>* aborted = nullptr;
  int status_of_abort = 1;
};

// Returns when the participant's next event is, if it is ready, or about to join; of these, the one with the least (time,
// number) comes first (O3).
std::optional<Nanoseconds> next_event(const Participant& participant);

// What the participants of this process have started, and will happen at later times.
class Later {
 public:
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};
  virtual ~Later() = default;
  // Returns when the next of it happens that the calling participant has started; kNever if there is none.
  [[nodiscard]] virtual Nanoseconds due() const = 0;
  // Makes that happen. The calling participant has the turn, and keeps it.
  virtual void happen() = 0;
};

// Turns ordered execution on in this process, for good. Called once, before any other function here.
void start(const Shared& shared);
// Sets what pass(), wait() and leave() ask; nullptr: nothing. It must live until no participant is left. Called before the
// first one joins, or by tests.
void set_later(Later* later);
// Returns when the next of what the calling participant has started happens; Later::kNever if there is none.
[[nodiscard]] Nanoseconds next_due();

namespace internal {
[[gnu::tls_model("initial-exec")]] extern constinit thread_local int t_participant;
}
// Returns whether the calling thread is a participant.
[[nodiscard]] inline bool takes_part() {
  return internal::t_participant >= 0;
}

// Returns the calling participant's number.
[[nodiscard]] inline unsigned participant() {
  return static_cast<unsigned>(internal::t_participant);
}

// The calling thread becomes the participant with this number, as soon as the thread that was it before has left, and
// returns when it has its first turn: its first event is at `time`, or, without one, when it is made ready.
void join(unsigned participant, std::optional<Nanoseconds> time);
// The calling participant ends, when what it has started has happened.
void leave();

// The calling participant is about to do what is an event at `time`: returns when it has the turn for that. The result
// is `time`, or an earlier time for which it has been made ready meanwhile. What it has started, and is due until then, has
// happened.
Nanoseconds pass(Nanoseconds time);
// The calling participant has no event: returns when it has the turn after it has been made ready, and for which time
// that was. What it has started happens meanwhile.
Nanoseconds wait();
// A participant that waits has an event at `time` now, or earlier. Any thread may call this.
void make_ready(unsigned participant, Nanoseconds time);

// Returns how many turns the machine's participants have been given so far.
uint64_t turns_given();
// Returns how often one lost its turn because it slept. If this is not 0, another run may have another order.
uint64_t interruptions();

}  // namespace multigrain::ordered
