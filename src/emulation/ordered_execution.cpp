#include "emulation/ordered_execution.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/futex.h"
#include "base/lock_guard.h"
#include "base/thread_state.h"
#include "emulation/tournament.h"

namespace multigrain::ordered {
namespace internal {

constinit thread_local int t_participant = -1;

}  // namespace internal

namespace {

using internal::t_participant;

// How long, in nanoseconds, a participant waits for its turn before it looks whether the one that has the turn sleeps.
// It takes two looks in a row. Where many participants wait, each does so more seldom, so that all of them together look as
// often, but it sees at the latest after kLongestLook that the run has failed.
constexpr Nanoseconds kLook = 20'000'000;
constexpr size_t kLookers = 64;
constexpr Nanoseconds kLongestLook = 1'000'000'000;

// How long a thread that takes another's place waits for that one to leave before it looks again, in nanoseconds.
constexpr Nanoseconds kPredecessorLeaves = 100'000;

constinit Shared g_shared;
constinit std::atomic<Later*> g_later{nullptr};
constinit Tournament g_next;  // guarded by the lock of the turn
constinit Nanoseconds g_look = kLook;

Participant& self() {
  return g_shared.participants[static_cast<unsigned>(t_participant)];
}

unsigned own_holder() {
  return 1 + static_cast<unsigned>(t_participant);
}

// The participant's next event has changed, or whether it has one. The caller holds the lock of the turn.
void changed(const Participant& participant) {
  g_next.changed(static_cast<unsigned>(&participant - g_shared.participants.data()),
                 [](unsigned i) { return next_event(g_shared.participants[i]); });
}

// Holds the lock of the turn. Where many threads want few cores, a thread may sleep in that lock for long, though nobody has
// it: whoever let it go has not come to wake the sleeper. A participant in its turn that sleeps here does not sleep in a
// system call of its own.
//
// The participant that is given the turn meanwhile is woken when the lock has been let go: it may run on another core at
// once, and would find the lock taken for as long as the system call that wakes it lasts.
class MG_SCOPED_CAPABILITY TurnGuard {
 public:
  TurnGuard() MG_ACQUIRE(g_shared.turn->lock) {
    if (own_ != nullptr) own_->wants_lock.store(1, std::memory_order_seq_cst);
    g_shared.turn->lock.lock();
  }
  ~TurnGuard() MG_RELEASE() {
    g_shared.turn->lock.unlock();
    if (own_ != nullptr) own_->wants_lock.store(0, std::memory_order_seq_cst);
    if (to_wake_ != nullptr) futex_wake(to_wake_->turns, FutexScope::kMachine, 1);
  }
  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;

  void give();
  void give_away();

 private:
  Participant* const own_ = takes_part() ? &self() : nullptr;
  Participant* to_wake_ = nullptr;
};

// Gives the turn, which nobody has, to the earliest participant, if one is ready.
void TurnGuard::give() {
  Turn& turn = *g_shared.turn;
  turn.holder = 0;
  if (turn.joined < g_shared.participants.size()) return;
  const std::optional<unsigned> next = g_next.first();
  if (!next) return;
  Participant& participant = g_shared.participants[*next];
  // Its thread is about to join, and takes the turn then.
  if (participant.state == Participant::kAbsent) return;
  participant.state = Participant::kRuns;
  changed(participant);
  turn.holder = 1 + *next;
  ++turn.given;
  participant.turns.fetch_add(1, std::memory_order_release);
  // Where the turn has come back to the caller, nobody sleeps.
  if (&participant != own_) to_wake_ = &participant;
}

// Gives the turn away if the caller has it, or if nobody does.
void TurnGuard::give_away() {
  const uint32_t holder = g_shared.turn->holder;
  if (holder == 0 || holder == own_holder()) give();
}

// Looks at the participant that has the turn, unless another thread has done so a moment ago. If it sleeps, and has slept
// since the last look, it loses its turn.
void look() {
  Turn& turn = *g_shared.turn;
  uint32_t process = 0;
  uint32_t thread = 0;
  uint64_t given = 0;
  {
    const TurnGuard hold;
    const Nanoseconds now = monotonic_ns();
    if (now < turn.next_look || turn.holder == 0) return;
    turn.next_look = now + kLook;
    const Participant& holder = g_shared.participants[turn.holder - 1];
    process = holder.process;
    thread = holder.thread;
    given = turn.given;
  }
  const ThreadState state = thread_state(process, thread);
  // A device answers by itself: 'D' is no reason. A thread that has slept and run meanwhile has another number of switches.
  TurnGuard hold;
  if (turn.given != given || turn.holder == 0) return;
  const bool wants_lock = g_shared.participants[turn.holder - 1].wants_lock.load(std::memory_order_seq_cst) != 0;
  const bool sleeps = (state.letter == 'S' || state.letter == 'T') && !wants_lock;
  const bool slept = turn.sleeper_given == given && turn.sleeper_switches == state.switches;
  turn.sleeper_given = sleeps ? given : 0;
  turn.sleeper_switches = state.switches;
  // Where nobody else has anything to do, nobody is held up.
  if (!sleeps || !slept || !g_next.first()) return;
  g_shared.participants[turn.holder - 1].state = Participant::kOutside;
  ++turn.interruptions;
  hold.give();
}

// Waits until the calling participant has been given more than `before` turns.
void await_turn(uint32_t before) {
  Participant& own = self();
  while (own.turns.load(std::memory_order_acquire) == before) {
    const Nanoseconds began = monotonic_ns();
    futex_wait(own.turns, before, FutexScope::kMachine, g_look);
    if (own.turns.load(std::memory_order_acquire) != before) return;
    if (g_shared.aborted != nullptr && g_shared.aborted->load(std::memory_order_relaxed) != 0)
      _exit(g_shared.status_of_abort);
    if (monotonic_ns() - began >= kLook) look();
  }
}

// Gives the turn away, and returns when the caller has it for an event at `time`, or earlier if it has been made ready. If
// it `waits_besides`, and is made ready for a time that is not earlier, that ends its next wait.
Nanoseconds pass_once(Nanoseconds time, bool waits_besides) {
  Participant& own = self();
  uint32_t before;
  {
    TurnGuard hold;
    before = own.turns.load(std::memory_order_relaxed);
    own.state = Participant::kReady;
    own.time = time;
    own.waits_besides = waits_besides;
    changed(own);
    hold.give_away();
  }
  await_turn(before);
  return own.time;
}

Nanoseconds wait_once() {
  Participant& own = self();
  uint32_t before;
  {
    TurnGuard hold;
    before = own.turns.load(std::memory_order_relaxed);
    own.state = Participant::kWaits;
    if (own.was_made_ready) {
      own.state = Participant::kReady;
      own.time = own.made_ready_at;
    }
    own.was_made_ready = false;
    changed(own);
    hold.give_away();
  }
  await_turn(before);
  return own.time;
}

bool is_taken(const Participant& participant) {
  const TurnGuard hold;
  return participant.state != Participant::kAbsent;
}

}  // namespace

std::optional<Nanoseconds> next_event(const Participant& participant) {
  const bool is_coming = participant.state == Participant::kAbsent && participant.was_made_ready;
  if (participant.state != Participant::kReady && !is_coming) return std::nullopt;
  return participant.time;
}

void start(const Shared& shared) {
  MG_CHECK(g_shared.turn == nullptr && shared.turn != nullptr && !shared.participants.empty());
  g_shared = shared;
  g_next = Tournament(shared.tree, shared.participants.size());
  g_look = std::min(kLook * std::max<size_t>(1, shared.participants.size() / kLookers), kLongestLook);
}

void set_later(Later* later) {
  g_later.store(later, std::memory_order_release);
}

Nanoseconds next_due() {
  const Later* const later = g_later.load(std::memory_order_acquire);
  return later != nullptr && takes_part() ? later->due() : Later::kNever;
}

void join(unsigned participant, std::optional<Nanoseconds> time) {
  MG_CHECK(participant < g_shared.participants.size() && !takes_part(), participant);
  t_participant = static_cast<int>(participant);
  Participant& own = self();
  while (is_taken(own)) sleep_ns(kPredecessorLeaves);
  uint32_t before;
  {
    TurnGuard hold;
    own.process = static_cast<uint32_t>(getpid());
    own.thread = static_cast<uint32_t>(gettid());
    before = own.turns.load(std::memory_order_relaxed);
    own.state = Participant::kWaits;
    if (time || own.was_made_ready) {
      own.state = Participant::kReady;
      if (time) own.time = *time;
      own.was_made_ready = false;
    }
    own.waits_besides = false;
    changed(own);
    if (g_shared.turn->joined < g_shared.participants.size()) ++g_shared.turn->joined;
    if (g_shared.turn->holder == 0) hold.give();
  }
  await_turn(before);
}

void leave() {
  while (next_due() != Later::kNever) {
    const Nanoseconds due = next_due();
    if (pass_once(due, false) >= due) g_later.load(std::memory_order_relaxed)->happen();
  }
  TurnGuard hold;
  self().state = Participant::kAbsent;
  if (self().was_made_ready) self().time = self().made_ready_at;
  changed(self());
  const bool held = g_shared.turn->holder == own_holder();
  t_participant = -1;
  if (held) hold.give();
}

Nanoseconds pass(Nanoseconds time) {
  for (Nanoseconds due; (due = next_due()) <= time && due != Later::kNever;) {
    if (const Nanoseconds came = pass_once(due, false); came < due) return came;
    g_later.load(std::memory_order_relaxed)->happen();
  }
  return pass_once(time, false);
}

Nanoseconds wait() {
  for (Nanoseconds due; (due = next_due()) != Later::kNever;) {
    if (const Nanoseconds came = pass_once(due, true); came < due) return came;
    g_later.load(std::memory_order_relaxed)->happen();
  }
  return wait_once();
}

void make_ready(unsigned participant, Nanoseconds time) {
  MG_CHECK(participant < g_shared.participants.size(), participant);
  TurnGuard hold;
  Participant& other = g_shared.participants[participant];
  switch (other.state) {
    case Participant::kWaits:
      other.state = Participant::kReady;
      other.time = time;
      changed(other);
      break;
    case Participant::kReady:
      if (time < other.time) {
        other.time = time;
        changed(other);
        return;
      }
      if (!other.waits_besides) return;
      [[fallthrough]];
    case Participant::kRuns:
    case Participant::kOutside:
      if (!other.was_made_ready || time < other.made_ready_at) other.made_ready_at = time;
      other.was_made_ready = true;
      return;
    case Participant::kAbsent:
      if (!other.was_made_ready || time < other.time) other.time = time;
      other.was_made_ready = true;
      changed(other);
      return;
  }
  if (g_shared.turn->holder == 0) hold.give();
}

uint64_t turns_given() {
  const TurnGuard hold;
  return g_shared.turn->given;
}

uint64_t interruptions() {
  const TurnGuard hold;
  return g_shared.turn->interruptions;
}

}  // namespace multigrain::ordered
