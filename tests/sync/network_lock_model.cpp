#include "network_lock_model.h"

#include <algorithm>
#include <utility>

namespace multigrain::network_lock_model {
namespace {

constexpr uint64_t kHere = NetworkLocks::kHere;
constexpr uint64_t kHeld = NetworkLocks::kHeld;
constexpr uint64_t kSleeps = NetworkLocks::kSleeps;
constexpr uint64_t kFromMask = NetworkLocks::kFromMask;

unsigned next_of(uint64_t slot) {
  return static_cast<unsigned>(slot >> NetworkLocks::kNextShift & 0xff);
}
unsigned from_of(uint64_t slot) {
  return static_cast<unsigned>(slot >> NetworkLocks::kFromShift & 0xff);
}
uint64_t from_bits(unsigned node_plus_one) {
  return uint64_t{node_plus_one} << NetworkLocks::kFromShift;
}

uint64_t compare_and_swap(uint64_t& word, uint64_t expected, uint64_t desired) {
  const uint64_t old = word;
  if (old == expected) word = desired;
  return old;
}
uint64_t fetch_add(uint64_t& word, uint64_t addend) {
  return std::exchange(word, word + addend);
}

}  // namespace

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kTakeWhatIsHeld:
      return "take a lock that is held at the node before";
    case Mutant::kSleepUnseen:
      return "go to sleep without looking whether the lock has just come";
    case Mutant::kNoWake:
      return "bring the lock to a sleeper without a word";
    case Mutant::kReleaseAfterSend:
      return "send the lock, then release";
    case Mutant::kNoRelease:
      return "leave the lock here, and release nothing";
    case Mutant::kAcquireFromBefore:
      return "acquire from where a free lock lies, not from who released it";
    case Mutant::kForgetWhatCame:
      return "acquire nothing for a lock that came after its try";
    case Mutant::kForgetRequest:
      return "forget that a try has joined the queue";
    case Mutant::kNoPassingOn:
      return "leave the lock with a node of which only a try asked";
    case Mutant::kNoBound:
      return "hand the lock on in the node without a bound";
    case Mutant::kResetAfterSwap:
      return "make the slot ready after joining the queue";
    case Mutant::kPlainFree:
      return "set the lock free without compare-and-swap";
    case Mutant::kLeaveBeforeClear:
      return "let the next processor in before the slot is cleared";
    case Mutant::kQuietLeave:
      return "look for waiters of the node before leaving, not after";
    case Mutant::kKeepFrom:
      return "let the slot go on naming where the lock came from";
    case Mutant::kHandOnWhatIsWanted:
      return "send the lock of a section that was handed on without a release";
  }
  return "?";
}

const char* Machine::name(At at) {
  constexpr std::array kNames = {"begin",          "take ticket",    "look at serving",
                                 "race",           "announce",       "withdraw",
                                 "try: serving",   "try: ticket",    "wait: prepare",
                                 "wait: look",     "asleep",         "take if here",
                                 "take what came", "ask: look",      "ask: hold",
                                 "ask: ready",     "try: look",      "try: ready",
                                 "try: tail",      "try: last",      "swap tail",
                                 "ready late",     "add next",       "arrive first",
                                 "arrive free",    "poll",           "say sleeps",
                                 "say awake",      "look what came", "clear from",
                                 "acquire",        "section",        "unlock: look",
                                 "others wait",    "release",        "let free",
                                 "plain free",     "gone",           "send",
                                 "wake sleeper",   "release late",   "gone late",
                                 "look first",     "leave",          "look for waiters",
                                 "notify"};
  static_assert(kNames.size() == static_cast<size_t>(At::kNotify) + 1);
  return kNames[static_cast<size_t>(at)];
}

Machine::Machine(const Scenario& scenario) : scenario_(&scenario), threads_(scenario.programs.size()) {}

// --- What can happen

void Machine::enabled(std::vector<Event>& events) const {
  events.clear();
  for (uint8_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (thread.at == At::kOp && thread.pc == scenario_->programs[i].size()) continue;
    // EventCount::sleep() returns when something was announced since prepare().
    if (thread.at == At::kAsleep && (nodes_[node_of(i)].unnotified >> i & 1) != 0) continue;
    events.push_back({i});
  }
  for (uint8_t n = 0; n < kMaxNodes; ++n)
    if (nodes_[n].wakes != 0) events.push_back({static_cast<uint8_t>(Event::kWakes + n)});
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  if (event.who >= Event::kWakes) {
    Node& node = nodes_[event.who - Event::kWakes];
    note("{}\n", in_words(event));
    --node.wakes;
    notify(node);  // on_wake()
  } else {
    note("processor {} of node {}: {}", event.who, node_of(event.who), name(threads_[event.who].at));
    step(event.who);
    note(", slots {:x} {:x} {:x}\n", nodes_[0].slot, nodes_[1].slot, nodes_[2].slot);
  }
  check();
  return verdict();
}

// --- Parts of steps

void Machine::wait_for(Thread& thread, bool lock) {
  thread.waits_for_lock = lock;
  thread.at = At::kWaitPrepare;
}

// What wait_until() waits for. Taking its turn by a race is part of looking.
bool Machine::is_done_waiting(unsigned processor) {
  const Thread& thread = threads_[processor];
  Node& node = nodes_[node_of(processor)];
  if (thread.waits_for_lock) return (node.slot & kHere) != 0;
  if (has_tickets()) return node.serving == thread.mine;
  if (node.tickets != 0) return false;
  node.tickets = 1;
  return true;
}

// wait_until() has returned.
void Machine::entered(unsigned processor) {
  Thread& thread = threads_[processor];
  if (thread.waits_for_lock)
    thread.at = At::kSayAwake;
  else
    thread.at = has_tickets() ? At::kTakeHere : At::kWithdraw;
  thread.mine = kNoTicket;
  thread.waits_for_lock = false;
}

// trylock() has joined no queue, or one in which it does not wait. It still has to leave the record.
void Machine::end_of_try(unsigned processor) {
  threads_[processor].failed = true;
  leave(threads_[processor], At::kOp);
}

void Machine::leave(Thread& thread, At then) {
  thread.then = then;
  thread.at = is(Mutant::kQuietLeave) ? At::kLookWaitersFirst : At::kLeave;
}

// The operation is over: on with the next of the program, or with the same try again.
void Machine::finish(unsigned processor) {
  Thread& thread = threads_[processor];
  const bool again = thread.failed && op_of(processor) == Op::kTryUntil;
  const auto pc = static_cast<uint8_t>(thread.pc + (again ? 0 : 1));
  thread = {};
  thread.pc = pc;
}

// The lock comes to `node`: in the order in which the nodes have asked.
void Machine::came(unsigned node) {
  if (queue_.empty() || queue_.front() != node) {
    wrong(fmt::format("the lock comes to node {}, which is not the next that asked", node));
    return;
  }
  queue_.erase(queue_.begin());
}

// --- One step of a processor

void Machine::step(unsigned processor) {
  Thread& thread = threads_[processor];
  const unsigned self = node_of(processor);
  Node& node = nodes_[self];
  const uint64_t when_here = is_try(processor) ? kHere | kHeld : kHere;
  switch (thread.at) {
    case At::kOp:
      thread.at = !has_tickets() ? At::kRace : is_try(processor) ? At::kTryServing : At::kTakeTicket;
      step(processor);
      return;

    // enter(): by tickets
    case At::kTakeTicket:
      thread.mine = node.tickets++;
      thread.at = At::kLookServing;
      return;
    case At::kLookServing:
      if (node.serving != thread.mine) {
        wait_for(thread, false);
        return;
      }
      thread.mine = kNoTicket;
      thread.at = At::kTakeHere;
      return;
    // try_enter(): by tickets
    case At::kTryServing:
      thread.mine = node.serving;
      thread.at = At::kTryTicket;
      return;
    case At::kTryTicket:
      if (node.tickets == thread.mine) {
        ++node.tickets;
        thread.mine = kNoTicket;
        thread.at = At::kTakeHere;
      } else {
        thread.failed = true;
        thread.at = At::kOp;
      }
      break;
    // enter() and try_enter(): by a race
    case At::kRace:
      if (node.tickets == 0) {
        node.tickets = 1;
        thread.at = At::kTakeHere;
      } else if (is_try(processor)) {
        thread.failed = true;
        thread.at = At::kOp;
      } else {
        thread.at = At::kAnnounce;
      }
      break;
    case At::kAnnounce:
      ++node.serving;
      wait_for(thread, false);
      return;
    case At::kWithdraw:
      --node.serving;
      thread.at = At::kTakeHere;
      return;

    // wait_until(). That it looks before it prepares to sleep changes nothing: what it would see then, it sees below.
    case At::kWaitPrepare:
      node.unnotified = static_cast<uint8_t>(node.unnotified | 1u << processor);
      thread.at = At::kWaitLook;
      return;
    case At::kWaitLook:
      if (is_done_waiting(processor)) {
        node.unnotified = static_cast<uint8_t>(node.unnotified & ~(1u << processor));
        entered(processor);
      } else {
        thread.at = At::kAsleep;
      }
      return;
    case At::kAsleep:
      thread.at = At::kWaitPrepare;
      return;

    // take_if_here()
    case At::kTakeHere: {
      if (std::exchange(node.handed_on, false)) {
        thread.at = At::kSection;
        return;
      }
      const uint64_t old = compare_and_swap(node.slot, kHere, kHere | kHeld);
      if (old == kHere) {
        node.requested = false;
        thread.at = At::kSection;
      } else if ((old & ~kFromMask) == kHere) {
        thread.old = old;
        thread.at = At::kTakeCame;
      } else if (thread.trying_again) {
        end_of_try(processor);
      } else {
        thread.at = is_try(processor) ? At::kTryLook : At::kAskLook;
      }
      return;
    }
    case At::kTakeCame:
      if (compare_and_swap(node.slot, thread.old, thread.old | kHeld) == thread.old) {
        node.requested = false;
        thread.from = static_cast<uint8_t>(from_of(thread.old));
        thread.at = is(Mutant::kForgetWhatCame) ? At::kSection : At::kClearFrom;
      } else if (thread.trying_again) {
        end_of_try(processor);
      } else {
        thread.at = is_try(processor) ? At::kTryLook : At::kAskLook;
      }
      thread.old = 0;
      return;

    // ask(): to wait
    case At::kAskLook:
      thread.old = node.slot;
      thread.at = At::kAskHold;
      return;
    case At::kAskHold: {
      const uint64_t seen = compare_and_swap(node.slot, thread.old, thread.old | kHeld);
      if (seen != thread.old) {
        thread.old = seen;
        return;
      }
      const uint64_t old = std::exchange(thread.old, 0);
      if ((old & kHeld) != 0) wrong("MG_CHECK: the slot of a lock that is being asked for is held");
      const bool was_requested = std::exchange(node.requested, false);
      if ((old & kHere) != 0 && next_of(old) == 0) {
        thread.from = static_cast<uint8_t>(from_of(old));
        thread.at = thread.from != 0 ? At::kClearFrom : At::kSection;
      } else if ((old & kHere) == 0 && was_requested) {
        thread.at = At::kPoll;
      } else {
        thread.at = is(Mutant::kResetAfterSwap) ? At::kSwapTail : At::kAskReady;
      }
      return;
    }
    case At::kAskReady:
      node.slot = kHeld;
      thread.at = At::kSwapTail;
      return;
    // ask(): only to try
    case At::kTryLook:
      if ((node.slot & kHere) != 0 && next_of(node.slot) == 0) {
        thread.trying_again = true;
        thread.at = At::kTakeHere;
      } else if ((node.slot & kHere) == 0 && node.requested) {
        end_of_try(processor);
      } else {
        node.requested = false;
        thread.at = At::kTryReady;
      }
      return;
    case At::kTryReady:
      node.slot = 0;
      thread.at = At::kTryTail;
      return;
    case At::kTryTail:
      if (tail_ == self + 1u) wrong("MG_CHECK: a node that asks is the last of the queue");
      thread.before = tail_ != 0 ? static_cast<uint8_t>(tail_ - 1) : uint8_t{0};
      thread.at = tail_ != 0 ? At::kTryLast : At::kSwapTail;
      return;
    case At::kTryLast:
      if ((nodes_[thread.before].slot & ~kFromMask) != kHere)
        end_of_try(processor);
      else
        thread.at = At::kSwapTail;
      thread.before = 0;
      return;
    // ask(): both
    case At::kSwapTail: {
      const uint8_t tail = std::exchange(tail_, static_cast<uint8_t>(self + 1));
      queue_.push_back(static_cast<uint8_t>(self));
      if (tail == self + 1u) {
        wrong("panic: a lock's tail is no node that can be before this one");
        return;
      }
      thread.before = tail != 0 ? static_cast<uint8_t>(tail - 1) : uint8_t{0};
      thread.at = tail != 0 ? At::kAddNext : At::kArriveFirst;
      if (is(Mutant::kResetAfterSwap) && !is_try(processor)) {
        thread.then = thread.at;
        thread.at = At::kReadyLate;
      }
      return;
    }
    case At::kReadyLate:
      node.slot = kHeld;
      thread.at = std::exchange(thread.then, At::kOp);
      return;
    case At::kArriveFirst:
      came(self);
      fetch_add(node.slot, when_here);
      thread.at = At::kSection;
      return;
    case At::kAddNext: {
      const uint64_t theirs = fetch_add(nodes_[thread.before].slot, uint64_t{self + 1} << NetworkLocks::kNextShift);
      if (next_of(theirs) != 0) {
        wrong("panic: two nodes come after one in the queue of a lock");
        return;
      }
      if ((theirs & kHere) != 0 && ((theirs & kHeld) == 0 || is(Mutant::kTakeWhatIsHeld))) {
        const unsigned from = is(Mutant::kAcquireFromBefore) ? 0 : from_of(theirs);
        thread.from = static_cast<uint8_t>(from != 0 ? from : thread.before + 1u);
        thread.at = At::kArriveFree;
      } else if (is_try(processor)) {
        node.requested = !is(Mutant::kForgetRequest);
        end_of_try(processor);
      } else {
        thread.at = At::kPoll;
      }
      thread.before = 0;
      return;
    }
    case At::kArriveFree:
      came(self);
      fetch_add(node.slot, when_here);
      thread.at = At::kAcquire;
      return;

    // await_token(): it polls for as long as it happens to be before this step
    case At::kPoll:
      thread.at = (node.slot & kHere) != 0 ? At::kLookWhatCame : At::kSaySleeps;
      return;
    case At::kSaySleeps:
      if ((fetch_add(node.slot, kSleeps) & kHere) == 0 && !is(Mutant::kSleepUnseen)) {
        wait_for(thread, true);
      } else if (is(Mutant::kSleepUnseen)) {
        thread.waits_for_lock = true;
        node.unnotified = static_cast<uint8_t>(node.unnotified | 1u << processor);
        thread.at = At::kAsleep;
      } else {
        thread.at = At::kSayAwake;
      }
      return;
    case At::kSayAwake:
      fetch_add(node.slot, 0 - kSleeps);
      thread.at = At::kLookWhatCame;
      return;
    case At::kLookWhatCame:
      thread.from = static_cast<uint8_t>(from_of(node.slot));
      thread.at = thread.from == 0 ? At::kSection : is(Mutant::kKeepFrom) ? At::kAcquire : At::kClearFrom;
      return;
    // acquire_what_came()
    case At::kClearFrom:
      fetch_add(node.slot, 0 - from_bits(thread.from));
      thread.at = At::kAcquire;
      return;
    case At::kAcquire: {
      const Node& from = nodes_[thread.from - 1];
      node.has_seen = node.has_seen || from.has_published;
      // A timestamp holds what its node has acquired, too.
      node.has_published = node.has_published || from.has_published;
      thread.from = 0;
      thread.at = At::kSection;
      return;
    }

    case At::kSection:
      if (inside_ != 0) {
        wrong(fmt::format("processors {} and {} are inside", inside_ - 1, processor));
        return;
      }
      if (!node.has_seen) wrong(fmt::format("processor {} does not see what the section before it wrote", processor));
      if (next_of(node.slot) != 0 && ++node.entered > scenario_->handoff_bound + 1)
        wrong(fmt::format("node {} keeps a lock that another waits for", self));
      inside_ = static_cast<uint8_t>(processor + 1);
      for (Node& each : nodes_) each.has_seen = each.has_published = false;
      node.has_seen = true;
      thread.at = At::kUnlockLook;
      return;

    // unlock()
    case At::kUnlockLook:
      inside_ = 0;
      thread.old = node.slot;
      if ((thread.old & (kHere | kHeld)) != (kHere | kHeld)) wrong("unlock: the lock is not held");
      thread.at = At::kOthersWait;
      return;
    case At::kOthersWait: {
      const bool is_wanted = next_of(thread.old) != 0;
      const bool others_wait = has_tickets() ? node.tickets - node.serving > 1 : node.serving != 0;
      if (others_wait && (!is_wanted || is(Mutant::kNoBound) || node.hand_ons < scenario_->handoff_bound)) {
        node.hand_ons = is_wanted && !is(Mutant::kNoBound) ? static_cast<uint8_t>(node.hand_ons + 1) : uint8_t{0};
        node.handed_on = true;
        thread.old = 0;
        leave(thread, At::kOp);
        return;
      }
      thread.at = At::kRelease;
      return;
    }
    case At::kRelease: {
      const bool is_wanted = next_of(thread.old) != 0;
      const bool skip = is(Mutant::kReleaseAfterSend) || (is(Mutant::kNoRelease) && !is_wanted) ||
                        (is(Mutant::kHandOnWhatIsWanted) && node.hand_ons != 0);
      if (!skip) node.has_published = node.has_seen;
      node.hand_ons = 0;
      thread.at = !is_wanted ? At::kLetFree : is(Mutant::kLeaveBeforeClear) ? At::kGoneLate : At::kGone;
      if (thread.at == At::kGoneLate) leave(thread, At::kGoneLate);
      return;
    }
    case At::kLetFree:
      if (is(Mutant::kPlainFree)) {
        thread.old = node.slot;
        thread.at = thread.old == (kHere | kHeld) ? At::kPlainFree : At::kGone;
        return;
      }
      thread.old = compare_and_swap(node.slot, kHere | kHeld, kHere);
      if (thread.old == (kHere | kHeld)) {
        thread.old = 0;
        leave(thread, is(Mutant::kReleaseAfterSend) ? At::kReleaseLate : At::kOp);
      } else if (is(Mutant::kLeaveBeforeClear)) {
        leave(thread, At::kGoneLate);
      } else {
        thread.at = At::kGone;
      }
      return;
    case At::kPlainFree:
      node.slot = kHere;
      thread.old = 0;
      leave(thread, At::kOp);
      return;
    case At::kGone:
      node.slot = 0;
      node.entered = 0;
      leave(thread, At::kSend);
      return;
    case At::kGoneLate:
      node.slot = 0;
      node.entered = 0;
      thread.at = At::kSend;
      return;
    case At::kSend: {
      const unsigned next = next_of(thread.old);
      if (next == 0 || next > kMaxNodes) {
        wrong("panic: a lock is wanted by a node that cannot be");
        return;
      }
      const unsigned to = next - 1;
      came(to);
      thread.old = fetch_add(nodes_[to].slot, kHere | from_bits(self + 1));
      const bool is_last = (thread.old & kHeld) != 0 || next_of(thread.old) == 0 || is(Mutant::kNoPassingOn);
      const bool wakes = (thread.old & kSleeps) != 0 && !is(Mutant::kNoWake);
      thread.before = static_cast<uint8_t>(to);
      thread.then = is_last ? (is(Mutant::kReleaseAfterSend) ? At::kReleaseLate : At::kOp) : At::kSend;
      if (wakes) {
        thread.at = At::kWakeSleeper;
        return;
      }
      thread.at = thread.then;
      break;
    }
    case At::kWakeSleeper:
      if (thread.before == self)
        notify(node);
      else
        ++nodes_[thread.before].wakes;
      thread.at = thread.then;
      break;
    case At::kReleaseLate:
      node.has_published = node.has_seen;
      thread.at = At::kOp;
      break;

    // leave()
    case At::kLookWaitersFirst:
      thread.sees_waiters = has_tickets() ? node.tickets - node.serving > 1 : node.serving != 0;
      thread.at = At::kLeave;
      return;
    case At::kLeave:
      if (has_tickets())
        thread.mine = ++node.serving;
      else
        node.tickets = 0;
      thread.at = At::kLookWaiters;
      return;
    case At::kLookWaiters:
      if (!is(Mutant::kQuietLeave))
        thread.sees_waiters = has_tickets() ? node.tickets != thread.mine : node.serving != 0;
      thread.mine = kNoTicket;
      thread.at = std::exchange(thread.sees_waiters, false) ? At::kNotify : thread.then;
      break;
    case At::kNotify:
      notify(node);
      thread.at = thread.then;
      break;
  }
  if (thread.at == At::kOp) finish(processor);
}

// --- What must hold

// A processor of `node` has found that the lock was here and is gone, and has yet to make the slot ready for asking.
bool Machine::asks_anew(unsigned node) const {
  for (unsigned i = 0; i < threads_.size(); ++i)
    if (node_of(i) == node && threads_[i].at == At::kAskReady) return true;
  return false;
}

void Machine::check() {
  // N1: the lock is at one node at most, where it can be taken or is held.
  unsigned tokens = 0;
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    const uint64_t slot = nodes_[n].slot;
    if ((slot & kHere) != 0 && (next_of(slot) == 0 || ((slot & kHeld) != 0 && !asks_anew(n)))) ++tokens;
  }
  if (tokens > 1) wrong("N1: the lock is at two nodes");
  if (inside_ != 0 && (nodes_[node_of(inside_ - 1u)].slot & (kHere | kHeld)) != (kHere | kHeld))
    wrong("a processor is inside, and its node does not have the lock");
  // N3: while the lock is at a node and not held, what was written under it is released where it came from.
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    const uint64_t slot = nodes_[n].slot;
    if ((slot & (kHere | kHeld)) != kHere || next_of(slot) != 0) continue;
    const unsigned from = from_of(slot) != 0 ? from_of(slot) - 1 : n;
    if (from < kMaxNodes && !nodes_[from].has_published) wrong("N3: a lock is free, and not released");
  }
}

std::string Machine::check_end() const {
  for (size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].at != At::kOp || threads_[i].pc != scenario_->programs[i].size())
      return fmt::format("processor {} waits for ever, at: {}", i, name(threads_[i].at));
  if (!queue_.empty()) return fmt::format("the lock never came to node {}", queue_.front());
  unsigned tokens = 0;
  for (const Node& node : nodes_) {
    if (node.handed_on) return "a lock is handed on to nobody";
    if (has_tickets() ? node.tickets != node.serving : node.tickets != 0 || node.serving != 0)
      return "somebody never left a node's record";
    if ((node.slot & kSleeps) != 0) return "somebody is said to sleep";
    if ((node.slot & kHeld) != 0) return "the lock is held";
    if ((node.slot & kHere) != 0 && next_of(node.slot) == 0) ++tokens;
  }
  if (tokens != (tail_ != 0 ? 1u : 0u)) return fmt::format("the lock is at {} nodes", tokens);
  return {};
}

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto put = [&](auto... values) { (out.push_back(static_cast<uint8_t>(values)), ...); };
  const auto put_slot = [&](uint64_t slot) { put(slot, slot >> 8, slot >> 16); };
  // Tickets count on for ever, but only their differences matter.
  const auto serving = [&](const Node& node) { return has_tickets() ? node.serving : 0; };
  for (const Node& node : nodes_) {
    put_slot(node.slot);
    put(node.tickets - serving(node), node.serving - serving(node), node.handed_on, node.requested, node.hand_ons,
        node.wakes, node.unnotified, node.has_seen, node.has_published, node.entered);
  }
  for (unsigned i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    const Node& node = nodes_[node_of(i)];
    uint32_t mine = 0;
    if (has_tickets() && thread.at == At::kTryTicket)
      mine = thread.mine == node.tickets ? 1 : 0;  // if they differ, they always will
    else if (has_tickets() && thread.at == At::kLookWaiters)
      mine = thread.mine == node.serving ? 1 : 0;  // if others have left since, there are waiters, or were
    else if (has_tickets() && thread.mine != kNoTicket)
      mine = thread.mine - node.serving + 1;
    put(thread.pc, thread.at, thread.then, mine, thread.waits_for_lock, thread.sees_waiters, thread.trying_again,
        thread.failed, thread.before, thread.from);
    put_slot(thread.old);
  }
  put(tail_, inside_, queue_.size());
  for (const uint8_t node : queue_) put(node);
}

std::string Machine::describe() const {
  std::string out = fmt::format("tail {}, inside {}\n", tail_, inside_);
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    const Node& node = nodes_[n];
    out += fmt::format(
        "node {}: slot {:x}, tickets {}, serving {}, handed on {}, requested {}, hand-ons {}, wakes {}, unnotified "
        "{:x}, "
        "has seen {}, has published {}\n",
        n, node.slot, node.tickets, node.serving, node.handed_on, node.requested, node.hand_ons, node.wakes,
        node.unnotified, node.has_seen, node.has_published);
  }
  for (size_t i = 0; i < threads_.size(); ++i)
    out += fmt::format("processor {}: operation {}, at: {}\n", i, threads_[i].pc, name(threads_[i].at));
  return out;
}

}  // namespace multigrain::network_lock_model
