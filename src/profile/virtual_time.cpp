#include "profile/virtual_time.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/futex.h"
#include "base/spin_lock.h"
#include "base/thread_state.h"
#include "profile/cpu_clock.h"
#include "profile/this_thread.h"

namespace multigrain::virtual_time {
namespace internal {

constinit bool g_on = false;
constinit const MachineCosts* g_costs = nullptr;

}  // namespace internal

namespace {

using internal::ThreadClock;

// How long, in nanoseconds, a processor that is ahead sleeps before it looks whether the slowest is asleep, too. It
// takes two looks.
constexpr Nanoseconds kLook = 20'000'000;

constinit Shared g_shared;
constinit Options g_options;
constinit std::atomic<uint32_t> g_next_interrupted{0};
constinit std::atomic<uint64_t> g_phases{0};  // how many measured phases have begun
// Processors are late when they have left so many barriers.
constinit std::atomic<uint64_t> g_late_behind{0};

[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadClock t_own;
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadClock* t_active = nullptr;  // nullptr: t_own
[[gnu::tls_model("initial-exec")]] constinit thread_local Nanoseconds t_floor = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_has_waited = false;  // since its last fault
[[gnu::tls_model("initial-exec")]] constinit thread_local ProcessorClock* t_processor = nullptr;
// How many measured phases had begun when the calling processor came to the barrier in which it is.
[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t t_barriers_left = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local unsigned t_unaccounted = 0;  // how many UnaccountedMessages

// What a RuntimeCall costs outside the time between its two readings of the clock, and between them; and how much of the
// first the calling thread's program has still been charged with.
constinit double g_outside_call_ns = 0;
constinit Nanoseconds g_inside_call_ns = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local double t_owed = 0;

// Everything that the calling thread has spent, in picoseconds, its code's count left out.
[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t t_spent = 0;

Nanoseconds scaled(Nanoseconds cpu, double factor) {
  return static_cast<Nanoseconds>(static_cast<double>(cpu) * factor);
}

ThreadClock& active() {
  return t_active != nullptr ? *t_active : t_own;
}

std::span<ProcessorClock> ours() {
  return g_shared.processors.subspan(g_options.first_processor, g_options.processors);
}

void raise(std::atomic<uint64_t>& value, uint64_t to) {
  uint64_t old = value.load(std::memory_order_relaxed);
  while (old < to && !value.compare_exchange_weak(old, to, std::memory_order_seq_cst)) {
  }
}

bool is_runnable(uint32_t state) {
  return state == ProcessorClock::kRuns || state == ProcessorClock::kWaitsFor;
}

// The runnable processor whose published clock was the least.
struct Slowest {
  ProcessorClock* processor = nullptr;  // nullptr if there was none
  // That clock, as it was compared with the others: published clocks grow, so every runnable processor has come at least
  // this far. When its clock is read again, the processor may have overtaken another one meanwhile.
  uint64_t clock = ~uint64_t{0};
};

Slowest slowest() {
  Slowest found;
  for (ProcessorClock& processor : g_shared.processors) {
    if (!is_runnable(processor.state.load(std::memory_order_seq_cst))) continue;
    const uint64_t clock = processor.published.load(std::memory_order_seq_cst);
    if (found.processor == nullptr || clock < found.clock) found = {.processor = &processor, .clock = clock};
  }
  return found;
}

// Called after every change that may have let the slowest processor come further.
void wake_sleepers() {
  if (g_shared.sleepers->load(std::memory_order_seq_cst) == 0) return;
  const uint64_t reached = slowest().clock;
  for (ProcessorClock& processor : g_shared.processors) {
    uint64_t until = processor.until.load(std::memory_order_seq_cst);
    if (until == ProcessorClock::kNever || until > reached) continue;
    if (!processor.until.compare_exchange_strong(until, ProcessorClock::kNever, std::memory_order_seq_cst)) continue;
    g_shared.sleepers->fetch_sub(1, std::memory_order_seq_cst);
    processor.ahead.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(processor.ahead, FutexScope::kMachine);
  }
}

void publish(ProcessorClock& processor, Nanoseconds clock, ProcessorClock::State state) {
  processor.published.store(clock, std::memory_order_seq_cst);
  processor.state.store(state, std::memory_order_seq_cst);
  wake_sleepers();
}

// What a thread's clock is compared with.
uint64_t own_time() {
  return is_counted() ? g_options.count().now : thread_cpu_ns();
}

void add_picoseconds(ThreadClock& clock, uint64_t picoseconds) {
  const uint64_t all = clock.rest_ps + picoseconds;
  clock.add(all / 1000);
  clock.rest_ps = all % 1000;
}

// The number of a processor of this node among the participants.
unsigned participant_of(unsigned local_processor) {
  return handler_of(g_options.first_processor / g_options.processors) + 1 + local_processor;
}

// How long a thread that spins does so between two looks: at first so many nanoseconds, then this part of how long it has
// spun. Each look is a turn, and many processors may spin for as long as a page takes on the network.
constexpr Nanoseconds kSpin = 200;
constexpr Nanoseconds kPartOfSpin = 8;
// When the calling thread began to spin, and when it last looked.
[[gnu::tls_model("initial-exec")]] constinit thread_local Nanoseconds t_spins_since = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local Nanoseconds t_spun_until = 0;

// The calling processor's code polls after it has counted as much as the skew, or as much as the time until what it has
// started happens.
void expect_poll() {
  mg_count& count = g_options.count();
  count.limit = count.now + g_options.skew_ns * 1000;
  if (const Nanoseconds due = ordered::next_due(); due != ordered::Later::kNever) expect_event(due);
}

// This node's processors have to be late, but for the one that is in time.
void be_late(uint64_t phase, const ProcessorClock* in_time) {
  if (g_options.perturbation.most == 0) return;
  for (unsigned i = 0; i < g_options.processors; ++i) {
    ProcessorClock& processor = ours()[i];
    const Nanoseconds late =
        &processor == in_time ? 0 : lateness(g_options.perturbation, g_options.first_processor + i, phase);
    processor.late_ns.store(late, std::memory_order_relaxed);
  }
}

// Puts the cost of the handlers that interrupted the calling processor on its clock, as time of the protocol.
void take_interrupts() {
  const Nanoseconds cost = t_processor->interrupted_ns.exchange(0, std::memory_order_relaxed);
  if (cost == 0) return;
  ProcessorProfile& profile = this_profile();
  const Nanoseconds before = t_own.read();
  const Category category = profile.enter_at(Category::kProtocol, before);
  t_own.base += cost;
  profile.enter_at(category, t_own.base);
}

// Called when a processor that has been in the program's code until now comes from there in a way that costs `cost`, a
// part of what has passed since its clock was read. From here on it is in `category`. Returns how much of the cost had
// passed, which is on no clock yet; nothing if the calling thread is no such processor.
std::optional<Nanoseconds> come_from_program(Nanoseconds cost, Category category) {
  if (t_processor == nullptr || t_active != nullptr || !t_own.runs) return std::nullopt;
  ProcessorProfile& profile = this_profile();
  if (profile.current() != Category::kUser) return std::nullopt;
  if (is_counted()) {
    profile.enter_at(category, t_own.read());
    return 0;
  }
  const Nanoseconds cpu = thread_cpu_ns();
  const Nanoseconds passed = std::min(cost, cpu - t_own.mark);
  t_own.base += scaled(cpu - t_own.mark - passed, g_options.scale);
  t_own.mark = cpu;
  profile.enter_at(category, t_own.base);
  return passed;
}

// Does the same for a cost that the emulated machine has as well, or, in counted time, for a price: it is the protocol's.
// Returns false in place of nothing.
bool come_to_protocol(Nanoseconds cost, uint64_t MachineCosts::* price) {
  const std::optional<Nanoseconds> passed = come_from_program(cost, Category::kProtocol);
  spend(price);
  if (passed) t_own.base += scaled(*passed, g_options.protocol_scale);
  return passed.has_value();
}

// Returns whether the thread sleeps or is stopped; false if that cannot be found out.
bool is_asleep(uint32_t process, uint32_t thread) {
  const char state = thread_state(process, thread).letter;
  return state == 'S' || state == 'D' || state == 'T';
}

}  // namespace

// --- Clocks

namespace internal {

Nanoseconds ThreadClock::read() {
  if (runs && is_counted()) {
    const uint64_t count = own_time();
    add_picoseconds(*this, count - std::exchange(mark, count));
  } else if (runs) {
    const Nanoseconds cpu = thread_cpu_ns();
    // The time since then belongs to the category in which the thread has been, for each change of category
    // reads the clock.
    const bool program = !of_handler && this_profile().current() == Category::kUser;
    add(scaled(cpu - mark, program ? g_options.scale : g_options.protocol_scale));
    // Finding time for a handler's work is no part of that work.
    mark = time == nullptr ? cpu : thread_cpu_ns();
  }
  return base;
}

void ThreadClock::add(Nanoseconds length) {
  worked += length;
  if (time == nullptr)
    base += length;
  else if (length != 0)
    base = time->take(base, length);
}

void ThreadClock::run() {
  if (runs) return;
  mark = own_time();
  runs = true;
}

Nanoseconds ThreadClock::stop() {
  read();
  runs = false;
  return base;
}

void advance(Nanoseconds when) {
  ThreadClock& clock = active();
  const Nanoseconds now = clock.read();
  // A handler that waits keeps the node from handling another message.
  if (now < when) clock.add(when - now);
}

void spend(uint64_t picoseconds) {
  ThreadClock& clock = active();
  t_spent += picoseconds;
  if (clock.runs) add_picoseconds(clock, picoseconds);
}

void announce(const void* event, Nanoseconds when) {
  const Unaccounted emulation;
  bool found = false;
  for (ProcessorClock& processor : ours()) {
    if (processor.event.load(std::memory_order_seq_cst) != event) continue;
    raise(processor.published, when);
    if (is_counted())
      ordered::make_ready(participant_of(static_cast<unsigned>(&processor - ours().data())), processor.published);
    uint32_t state = ProcessorClock::kWaitsUntil;
    if (!processor.state.compare_exchange_strong(state, ProcessorClock::kRuns, std::memory_order_seq_cst) &&
        state == ProcessorClock::kWaitsFor)
      processor.state.compare_exchange_strong(state, ProcessorClock::kRuns, std::memory_order_seq_cst);
    found = true;
  }
  if (found) wake_sleepers();
}

}  // namespace internal

namespace {

// How many calls' cost a processor may owe.
constexpr double kMostOwed = 4;

// Measures what a RuntimeCall costs: what a processor that does nothing but such calls has as its program's time, and as
// the runtime's. The calling thread is made a processor for that, and is none afterwards.
void measure_call() {
  constexpr unsigned kBatches = 33;
  constexpr unsigned kCalls = 256;
  const Options options = std::exchange(g_options, {});
  ProcessorClock processor{};
  ProcessorProfile profile;
  ProcessorProfile& outer = this_profile();
  set_this_profile(profile);
  t_processor = &processor;
  t_own.run();
  profile.start();
  std::array<double, kBatches> outside{}, inside{};
  ProfileSnapshot before, after;
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    profile.snapshot(before);
    for (unsigned i = 0; i < kCalls; ++i) const RuntimeCall call(Category::kProtocol);
    profile.snapshot(after);
    const ProfileSnapshot passed = after.since(before);
    outside[batch] = static_cast<double>(passed.ticks[static_cast<size_t>(Category::kUser)]) / kCalls;
    inside[batch] = static_cast<double>(passed.ticks[static_cast<size_t>(Category::kProtocol)]) / kCalls;
  }
  set_this_profile(outer);
  t_processor = nullptr;
  t_own = {};
  g_options = options;
  const auto median = [](std::array<double, kBatches>& costs) {
    std::ranges::nth_element(costs, costs.begin() + kBatches / 2);
    return costs[kBatches / 2];
  };
  g_outside_call_ns = median(outside);
  g_inside_call_ns = static_cast<Nanoseconds>(median(inside));
}

}  // namespace

void start(const Shared& shared, const Options& options) {
  MG_CHECK(!internal::g_on && shared.sleepers != nullptr);
  MG_CHECK(options.first_processor + options.processors <= shared.processors.size());
  g_shared = shared;
  g_options = options;
  if (options.costs != nullptr) {
    ordered::start(shared.order);
    MG_CHECK(options.count != nullptr);
    internal::g_costs = options.costs;
    be_late(0, &g_shared.processors[0]);
    on_held_lock(&spin_in_turn);
  } else {
    calibrate_thread_cpu_clock();
  }
  internal::g_on = true;
  if (!is_counted()) measure_call();
}

// SplitMix64 (Steele, Lea and Flood, 2014) makes of each input another number, in which all bits depend on all of its.
Nanoseconds lateness(const Perturbation& perturbation, unsigned processor, uint64_t phase) {
  const auto mixed = [](uint64_t number) {
    number += 0x9e3779b97f4a7c15;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
    return number ^ (number >> 31);
  };
  const uint64_t random = mixed(mixed(mixed(perturbation.seed) + phase) + processor);
  __extension__ using Product = unsigned __int128;
  return static_cast<Nanoseconds>((static_cast<Product>(random) * (perturbation.most + 1)) >> 64);
}

Nanoseconds now() {
  return t_own.read();
}

Nanoseconds stamp() {
  return std::max(active().read(), t_floor);
}

Nanoseconds work_ns() {
  if (is_counted()) return (t_spent + own_time()) / 1000;
  return scaled(thread_cpu_ns(), g_options.protocol_scale);
}

StampFloor::StampFloor(Nanoseconds when) {
  if (!on()) return;
  outer_ = t_floor;
  t_floor = std::max(t_floor, when);
}

StampFloor::~StampFloor() {
  if (on()) t_floor = outer_;
}

Unaccounted::Unaccounted() {
  if (!on() || !active().runs) return;
  clock_ = &active();
  clock_->stop();
}

Unaccounted::~Unaccounted() {
  if (clock_ != nullptr) clock_->run();
}

UnaccountedMessages::UnaccountedMessages() {
  ++t_unaccounted;
}

UnaccountedMessages::~UnaccountedMessages() {
  --t_unaccounted;
}

bool UnaccountedMessages::on() {
  return t_unaccounted != 0;
}

// --- Processors

void adopt(unsigned local_processor) {
  if (!on()) return;
  t_processor = &ours()[local_processor];
  t_processor->process.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
  t_processor->thread.store(static_cast<uint32_t>(gettid()), std::memory_order_relaxed);
}

unsigned handler_of(unsigned node) {
  return node * (g_options.processors + 1);
}

void take_part() {
  if (!is_counted()) return;
  const auto local = static_cast<unsigned>(t_processor - ours().data());
  const bool runs = t_own.runs;
  ordered::join(participant_of(local), runs ? std::optional(t_own.read()) : std::nullopt);
  if (runs) expect_poll();
}

void take_part_as_handler() {
  if (is_counted()) ordered::join(handler_of(g_options.first_processor / g_options.processors), std::nullopt);
}

void leave() {
  if (takes_turns()) ordered::leave();
}

void spend_rights_change(bool grants, uint64_t pages) {
  if (is_counted()) internal::spend(rights_change(*internal::g_costs, grants, pages, g_options.processors));
}

void spend_shoot_down(uint32_t processors) {
  if (is_counted()) internal::spend(rights_change(*internal::g_costs, false, 1, processors));
}

void spend_in(Category category, uint64_t MachineCosts::* price) {
  if (!is_counted()) return;
  ProcessorProfile& profile = this_profile();
  const Category before = profile.enter(category);
  spend(price);
  profile.enter(before);
}

void hand_over(unsigned local_processor, Nanoseconds when) {
  if (!on()) return;
  ProcessorClock& processor = ours()[local_processor];
  raise(processor.published, when);
  processor.state.store(ProcessorClock::kRuns, std::memory_order_seq_cst);
  if (is_counted()) ordered::make_ready(participant_of(local_processor), processor.published);
}

void begin_function(Nanoseconds when) {
  if (!on()) return;
  // Another thread may have been this processor before, and have come further than what gives it work now.
  t_own.base = std::max({t_own.base, when, t_processor->published.load(std::memory_order_relaxed)});
  const Nanoseconds late = t_processor->late_ns.exchange(0, std::memory_order_relaxed);
  t_own.base += late;
  t_own.run();
  publish(*t_processor, t_own.base, ProcessorClock::kRuns);
  if (!is_counted()) return;
  // What others do until then comes first.
  if (late != 0 && ordered::takes_part()) ordered::pass(t_own.base);
  expect_poll();
}

void begin_program() {
  if (!is_counted()) return;
  // The count, too: what intervals of work are rounded to depends on where it stands.
  g_options.count().now = 0;
  t_own.base = t_processor->published.load(std::memory_order_relaxed);
  t_own.rest_ps = 0;
  t_own.mark = 0;
  expect_poll();
}

void begin_phase(uint64_t barriers) {
  if (!is_counted()) return;
  g_late_behind.store(barriers + 1, std::memory_order_relaxed);
  be_late(1 + g_phases.fetch_add(1, std::memory_order_relaxed), t_active == nullptr ? t_processor : nullptr);
}

uint64_t barriers_left() {
  return t_barriers_left;
}

// Processors count the barriers of the whole machine alike. Whether one has come to a barrier when the phase begins would
// not do: some have, and others are on their way.
void left_barrier() {
  if (!is_counted() || t_processor == nullptr || t_active != nullptr) return;
  if (++t_barriers_left < g_late_behind.load(std::memory_order_relaxed)) return;
  const Nanoseconds late = t_processor->late_ns.exchange(0, std::memory_order_relaxed);
  if (late == 0) return;
  advance(t_own.read() + late);
  internal::synchronise();
}

void end_function() {
  if (!on()) return;
  publish(*t_processor, t_own.stop(), ProcessorClock::kAway);
  t_processor->interrupted_ns.store(0, std::memory_order_relaxed);
}

void begin_system_call() {
  if (on() && t_processor != nullptr && t_active == nullptr)
    publish(*t_processor, t_own.read(), ProcessorClock::kWaitsUntil);
}

void end_system_call() {
  if (on() && t_processor != nullptr && t_active == nullptr) publish(*t_processor, t_own.read(), ProcessorClock::kRuns);
}

WorkFor::WorkFor(Nanoseconds when) {
  if (!on()) return;
  t_own.base = std::max(t_own.base, when);
  t_own.run();
}

WorkFor::~WorkFor() {
  if (on()) t_own.stop();
}

std::optional<unsigned> running_processor() {
  if (t_processor == nullptr || t_active != nullptr || !t_own.runs) return std::nullopt;
  return static_cast<unsigned>(t_processor - ours().data());
}

Nanoseconds clock_of(unsigned local_processor) {
  const ProcessorClock& processor = ours()[local_processor];
  if (&processor == t_processor) return t_own.read();
  return processor.published.load(std::memory_order_relaxed);
}

void trapped() {
  if (!on()) return;
  const bool cold = std::exchange(t_has_waited, false);
  if (come_to_protocol(cold ? g_options.cold_trap_ns : g_options.trap_ns, &MachineCosts::fault_entry))
    this_profile().enter_at(Category::kUser, t_own.base);
}

// One in another one, as the driver's in that of the runtime's entry, is no miss of its own.
bool MissedCheck::begin() {
  const std::optional<Nanoseconds> passed = come_from_program(g_options.check_ns, Category::kProtocol);
  if (!passed) return false;
  spend(&MachineCosts::check_miss);
  t_own.base += scaled(*passed, g_options.protocol_scale);
  return true;
}

void MissedCheck::end() {
  this_profile().enter(Category::kUser);
}

bool RuntimeCall::begin(Category category) {
  if (is_counted()) return come_from_program(0, category).has_value();
  // A call after hardly any of the program's code cannot pay for all of its cost. The next one pays for the rest, so that
  // the sum is right; but what is owed for longer, because the clock is read between, is forgotten.
  const double cost = std::min(t_owed + g_outside_call_ns, kMostOwed * g_outside_call_ns);
  const std::optional<Nanoseconds> passed = come_from_program(static_cast<Nanoseconds>(cost), category);
  if (passed) t_owed = cost - static_cast<double>(*passed);
  return passed.has_value();
}

void RuntimeCall::end() {
  if (is_counted()) {
    this_profile().enter_at(Category::kUser, t_own.read());
    return;
  }
  const Nanoseconds cpu = thread_cpu_ns();
  const Nanoseconds passed = cpu - t_own.mark;
  t_own.base += scaled(passed - std::min(passed, g_inside_call_ns), g_options.protocol_scale);
  t_own.mark = cpu;
  this_profile().enter_at(Category::kUser, t_own.base);
}

void internal::synchronise() {
  if (t_processor == nullptr || t_active != nullptr) return;
  const Unaccounted emulation;
  ProcessorClock& self = *t_processor;
  if (is_counted()) {
    // What interrupts this processor while it waits for its turn comes before this event, and delays it.
    do {
      take_interrupts();
      publish(self, t_own.read(), ProcessorClock::kRuns);
      if (ordered::takes_part()) ordered::pass(t_own.base);
    } while (self.interrupted_ns.load(std::memory_order_relaxed) != 0);
    expect_poll();
    return;
  }
  take_interrupts();
  const Nanoseconds clock = t_own.read();
  publish(self, clock, ProcessorClock::kRuns);
  const auto far_enough = [until = clock > g_options.skew_ns ? clock - g_options.skew_ns : 0] {
    return slowest().clock >= until;
  };
  if (far_enough()) return;

  g_shared.sleepers->fetch_add(1, std::memory_order_seq_cst);
  self.until.store(clock - g_options.skew_ns, std::memory_order_seq_cst);
  const ProcessorClock* suspect = nullptr;
  uint64_t suspect_clock = 0;
  while (true) {
    const uint32_t seen = self.ahead.load(std::memory_order_seq_cst);
    if (self.until.load(std::memory_order_seq_cst) == ProcessorClock::kNever || far_enough()) break;
    const Nanoseconds began = monotonic_ns();
    futex_wait(self.ahead, seen, FutexScope::kMachine, kLook);
    if (monotonic_ns() - began < kLook) continue;
    // No processor has come further for long. A processor that sleeps in a system call of the program's is not
    // runnable, and cannot say so itself.
    const auto [last, last_clock] = slowest();
    if (last == nullptr || last->state.load() != ProcessorClock::kRuns ||
        last->until.load() != ProcessorClock::kNever || !is_asleep(last->process.load(), last->thread.load())) {
      suspect = nullptr;
    } else if (last == suspect && last_clock == suspect_clock) {
      uint32_t state = ProcessorClock::kRuns;
      last->state.compare_exchange_strong(state, ProcessorClock::kWaitsUntil, std::memory_order_seq_cst);
      wake_sleepers();
    } else {
      suspect = last;
      suspect_clock = last_clock;
    }
  }
  if (self.until.exchange(ProcessorClock::kNever, std::memory_order_seq_cst) != ProcessorClock::kNever)
    g_shared.sleepers->fetch_sub(1, std::memory_order_seq_cst);
  t_has_waited = true;
}

void poll() {
  // What is no processor has nobody to let pass.
  if (t_processor == nullptr || t_active != nullptr || !takes_turns()) {
    g_options.count().limit = UINT64_MAX;
    return;
  }
  internal::synchronise();
}

// --- Turns

void let_others_come_to(Nanoseconds when) {
  if (!takes_turns()) return;
  const Unaccounted emulation;
  // What makes the thread ready before that is not what it wants.
  while (ordered::pass(when) < when) {
  }
}

void wait_until_time(Nanoseconds when) {
  let_others_come_to(when);
  internal::advance(when);
}

bool spin_in_turn() {
  if (!takes_turns()) return false;
  const Nanoseconds now = stamp();
  // Whose clock has moved since its last look has got what it wanted then.
  if (now != t_spun_until) t_spins_since = now;
  t_spun_until = now + std::max(kSpin, (now - t_spins_since) / kPartOfSpin);
  wait_until_time(t_spun_until);
  return true;
}

void expect_event(Nanoseconds when) {
  if (t_processor == nullptr || !takes_turns()) return;
  const Nanoseconds now = t_own.read();
  mg_count& count = g_options.count();
  count.limit = std::min(count.limit, count.now + (when > now ? (when - now) * 1000 : 0));
}

// --- Waiting

namespace {

ProcessorClock::State kind_of_wait() {
  switch (this_profile().current()) {
    case Category::kLock:
    case Category::kBarrier:
    case Category::kStopped:
    case Category::kIdle:
    case Category::kSystem:
      return ProcessorClock::kWaitsUntil;
    case Category::kUser:
    case Category::kDataWait:
    case Category::kProtocol:
      break;
  }
  return ProcessorClock::kWaitsFor;
}

}  // namespace

Wait::Wait(const void* event, const std::atomic<Nanoseconds>& when) : event_(event), when_(when) {
  if (!on() || t_active != nullptr) return;
  active_ = true;
  ran_ = t_own.runs;
  t_own.stop();
  if (t_processor == nullptr) return;
  take_interrupts();
  const Nanoseconds clock = t_own.base;
  t_processor->handled_ns.store(0, std::memory_order_relaxed);
  t_processor->event.store(event_, std::memory_order_seq_cst);
  publish(*t_processor, clock, kind_of_wait());
}

void Wait::again() {
  if (!active_ || t_processor == nullptr) return;
  if (t_processor->state.load(std::memory_order_relaxed) != ProcessorClock::kRuns) return;
  publish(*t_processor, t_own.base, kind_of_wait());
}

Wait::~Wait() {
  if (!active_) return;
  const Nanoseconds begin = t_own.base;
  t_own.base = std::max(begin, when_.load(std::memory_order_relaxed));
  if (t_processor != nullptr) {
    t_processor->event.store(nullptr, std::memory_order_seq_cst);
    const Nanoseconds handled =
        std::min(t_processor->handled_ns.exchange(0, std::memory_order_relaxed), t_own.base - begin);
    if (handled != 0) {
      ProcessorProfile& profile = this_profile();
      const Category category = profile.enter_at(Category::kProtocol, t_own.base - handled);
      profile.enter_at(category, t_own.base);
    }
    publish(*t_processor, t_own.base, ProcessorClock::kRuns);
  }
  // Other threads have had the core, as far as can be known.
  t_has_waited = true;
  if (ran_) t_own.run();
}

// --- Handlers

HandlerScope::HandlerScope(Nanoseconds arrival, Nanoseconds overhead, HandlerTime& time)
    : clock_{.base = time.take(arrival, overhead), .of_handler = true, .time = &time, .worked = overhead},
      outer_(t_active),
      outer_ran_(active().runs),
      outer_unaccounted_(std::exchange(t_unaccounted, 0)) {
  active().stop();
  clock_.run();
  t_active = &clock_;
}

HandlerScope::~HandlerScope() {
  t_unaccounted = outer_unaccounted_;
  t_active = outer_;
  if (outer_ran_) active().run();
}

Nanoseconds HandlerScope::elapsed() {
  clock_.read();
  return clock_.worked;
}

UnaccountedHandler::UnaccountedHandler() : outer_(t_active), outer_ran_(active().runs) {
  active().stop();
  ++t_unaccounted;
  t_active = &clock_;
}

UnaccountedHandler::~UnaccountedHandler() {
  t_active = outer_;
  --t_unaccounted;
  if (outer_ran_) active().run();
}

Interrupted choose_interrupted() {
  const std::span<ProcessorClock> processors = ours();
  const uint32_t first = g_next_interrupted.fetch_add(1, std::memory_order_relaxed);
  Interrupted chosen;
  for (size_t i = 0; i < processors.size(); ++i) {
    ProcessorClock& processor = processors[(first + i) % processors.size()];
    if (processor.state.load(std::memory_order_relaxed) == ProcessorClock::kAway) continue;
    if (processor.event.load(std::memory_order_relaxed) != nullptr) return {&processor, true};
    if (chosen.processor == nullptr) chosen.processor = &processor;
  }
  return chosen;
}

void charge(const Interrupted& interrupted, Nanoseconds cost) {
  if (interrupted.processor == nullptr) return;
  // The processor's wait may be over by now, because of this handler: then the cost was part of the wait.
  (interrupted.waits ? interrupted.processor->handled_ns : interrupted.processor->interrupted_ns)
      .fetch_add(cost, std::memory_order_relaxed);
}

}  // namespace multigrain::virtual_time
