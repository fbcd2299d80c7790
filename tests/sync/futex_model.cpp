#include "futex_model.h"

#include <algorithm>
#include <utility>

namespace multigrain::futex_model {
namespace {

constexpr uint64_t kFirstKey = 4;

uint64_t key_of(unsigned word) {
  return kFirstKey + 4 * word;
}
bool is_lock(Kind kind) {
  return kind == Kind::kLock || kind == Kind::kTimedLock || kind == Kind::kLockAgain;
}
WaiterId id_of(unsigned thread) {
  return WaiterId(thread + 1);
}

}  // namespace

const char* name(Mutant mutant) {
  constexpr std::array kNames = {"none",
                                 "count as confirmed when queued",
                                 "look before queueing only",
                                 "look before kQueued has come",
                                 "leave without looking for a wake",
                                 "compare, then hold the keys",
                                 "change the word, then hold the keys",
                                 "a wake passes over tentative waiters",
                                 "a wake takes tentative waiters",
                                 "queue while an operation is pending",
                                 "pending operations overtake each other",
                                 "hold a key with tentative waiters",
                                 "nothing goes on after a cancel",
                                 "nothing goes on after a confirm",
                                 "nothing goes on after a holder",
                                 "only one goes on",
                                 "a woken waiter is told that it left",
                                 "pending at the first bucket only"};
  static_assert(kNames.size() == static_cast<size_t>(Mutant::kCount));
  return kNames[static_cast<size_t>(mutant)];
}

const char* Machine::name(At at) {
  constexpr std::array kNames = {"begin",         "look",           "exchange",   "wake the next",
                                 "await kQueued", "look again",     "asleep",     "await kLeft",
                                 "await kHeld",   "look as holder", "await kDone"};
  static_assert(kNames.size() == static_cast<size_t>(At::kAwaitDone) + 1);
  return kNames[static_cast<size_t>(at)];
}

Machine::Machine(const Scenario& scenario) : scenario_(&scenario), engine_({}, {}) {}

std::string Machine::in_words(const Event& event) {
  constexpr std::array kNames = {"step of", "the server serves", "an answer comes to", "the time is up of"};
  return fmt::format("{} {}", kNames[static_cast<size_t>(event.what)], event.thread);
}

void Machine::enabled(std::vector<Event>& events) const {
  using What = Event::What;
  events.clear();
  for (uint8_t i = 0; i < scenario_->programs.size(); ++i) {
    const Thread& thread = threads_[i];
    const bool is_over = thread.at == At::kOp && thread.pc == scenario_->programs[i].size();
    const bool is_running = thread.at == At::kLook || thread.at == At::kExchange || thread.at == At::kWakeNext ||
                            thread.at == At::kLookAgain || thread.at == At::kHeldLook ||
                            (thread.at == At::kOp && !is_over) ||
                            (thread.at == At::kAwaitQueued && has(Mutant::kLooksWhileQueueing) && !thread.has_looked &&
                             words_[op(i).word] == expected(i));
    if (is_running) events.push_back({What::kStep, i});
    if (!to_server_[i].empty()) events.push_back({What::kServe, i});
    if (!to_thread_[i].empty()) events.push_back({What::kAnswer, i});
    if (thread.at == At::kAsleep && (op(i).kind == Kind::kTimedWait || op(i).kind == Kind::kTimedLock))
      events.push_back({What::kTimeUp, i});
  }
}

std::string Machine::apply(const Event& event, std::string* log) {
  narrate_to(log);
  mutant_of_engine = scenario_->mutant;
  const unsigned thread = event.thread;
  switch (event.what) {
    case Event::What::kStep:
      note("thread {}: {}", thread, name(threads_[thread].at));
      step(thread);
      break;
    case Event::What::kServe:
      serve(thread);
      break;
    case Event::What::kAnswer:
      receive(thread);
      break;
    case Event::What::kTimeUp:
      note("thread {}: its time is up", thread);
      send(thread, FutexCall::kLeave);
      threads_[thread].at = At::kAwaitLeft;
      break;
  }
  note(", words {} {} {}\n", words_[0], words_[1], words_[2]);
  return verdict();
}

// --- Threads

// Returns what the word must hold for the thread to wait.
uint8_t Machine::expected(unsigned thread) const {
  return is_lock(op(thread).kind) ? 2 : op(thread).value;
}

void Machine::step(unsigned thread) {
  Thread& self = threads_[thread];
  switch (self.at) {
    case At::kOp:
      begin(thread);
      return;
    case At::kLook:
      look(thread);
      return;
    case At::kExchange: {
      uint8_t& word = words_[op(thread).word];
      const bool is_mine = word == 0;
      word = 2;
      if (is_mine)
        finish(thread);
      else
        self.at = At::kLook;
      return;
    }
    case At::kWakeNext:
      send(thread, FutexCall::kWake, {.key = key_of(op(thread).word), .count = 1});
      self.at = At::kAwaitDone;
      return;
    case At::kAwaitQueued:  // only a mutant comes here
      self.has_looked = true;
      judge_begin(thread);
      return;
    case At::kLookAgain:
      look_again(thread);
      return;
    case At::kHeldLook:
      held_look(thread);
      return;
    default:
      wrong("a thread that waits makes a step");
  }
}

void Machine::begin(unsigned thread) {
  Thread& self = threads_[thread];
  const Op& what = op(thread);
  uint8_t& word = words_[what.word];
  switch (what.kind) {
    case Kind::kWait:
    case Kind::kTimedWait:
    case Kind::kWaitWhile:
      look(thread);
      return;
    case Kind::kLock:
    case Kind::kTimedLock:
      if (word == 0) {
        word = 1;
        finish(thread);
      } else {
        self.at = At::kExchange;
      }
      return;
    case Kind::kLockAgain:
      self.at = At::kExchange;
      step(thread);
      return;
    case Kind::kUnlock: {
      if (inside_ == 0) wrong("nobody holds the lock that is unlocked");
      inside_ = 0;
      const bool is_wanted = word == 2;
      word = 0;
      if (is_wanted)
        self.at = At::kWakeNext;
      else
        finish(thread);
      return;
    }
    case Kind::kStore:
      word = what.value;
      finish(thread);
      return;
    case Kind::kWake:
      request_op(thread, FutexCall::kWake);
      return;
    case Kind::kRequeue:
      request_op(thread, FutexCall::kRequeue);
      return;
    case Kind::kCmpRequeue:
      if (word != what.value) {
        finish(thread);  // -EAGAIN
        return;
      }
      has_looked_[thread] = has(Mutant::kComparesFirst);
      request_op(thread, FutexCall::kHold);
      return;
    case Kind::kWakeOp: {
      uint8_t& second = words_[what.second_word];
      if (has(Mutant::kChangesFirst)) {
        has_looked_[thread] = true;
        self.has_looked = second == 0;
        second = what.value;
      }
      request_op(thread, FutexCall::kHold);
      return;
    }
  }
}

void Machine::request_op(unsigned thread, FutexCall call) {
  const Op& what = op(thread);
  send(thread, call,
       {.bitset = what.bitset,
        .key = key_of(what.word),
        .second_key = key_of(what.second_word),
        .count = what.count,
        .second_count = what.second_count});
  threads_[thread].at = call == FutexCall::kHold ? At::kAwaitHeld : At::kAwaitDone;
}

// This is the first look of wait().
void Machine::look(unsigned thread) {
  Thread& self = threads_[thread];
  if (words_[op(thread).word] != expected(thread)) {
    wait_returns(thread, false);
    return;
  }
  if (has(Mutant::kLooksFirst)) {
    self.has_looked = true;
    judge_begin(thread);
  }
  send(thread, FutexCall::kEnqueue, {.bitset = op(thread).bitset, .key = key_of(op(thread).word)});
  self.at = At::kAwaitQueued;
}

// This is what wait() does after kQueued.
void Machine::look_again(unsigned thread) {
  Thread& self = threads_[thread];
  if (!self.has_looked && words_[op(thread).word] != expected(thread)) {
    waiting_[thread] = {};
    std::erase(order_, thread);
    send(thread, has(Mutant::kConfirmsBlindly) ? FutexCall::kLeave : FutexCall::kCancel);
    wait_returns(thread, false);
    return;
  }
  if (!self.has_looked) judge_begin(thread);
  self.has_looked = false;
  if (!has(Mutant::kConfirmsBlindly)) send(thread, FutexCall::kConfirm);
  self.at = At::kAsleep;
}

void Machine::held_look(unsigned thread) {
  Thread& self = threads_[thread];
  const Op& what = op(thread);
  has_looked_[thread] = true;
  FutexRequest request{.key = key_of(what.word),
                       .second_key = key_of(what.second_word),
                       .count = what.count,
                       .second_count = what.second_count};
  FutexCall call = FutexCall::kHeldRequeue;
  if (what.kind == Kind::kWakeOp) {
    uint8_t& word = words_[what.second_word];
    const bool was_zero = has(Mutant::kChangesFirst) ? self.has_looked : word == 0;
    if (!was_zero) request.second_count = 0;
    if (!has(Mutant::kChangesFirst)) word = what.value;
    self.has_looked = false;
    call = FutexCall::kHeldWake;
  } else if (words_[what.word] != what.value && !has(Mutant::kComparesFirst)) {
    has_looked_[thread] = false;
    send(thread, FutexCall::kHeldNothing);
    finish(thread);
    return;
  }
  send(thread, call, request);
  self.at = At::kAwaitDone;
}

// FUTEX_WAIT is over. The guest's own loops look again.
void Machine::wait_returns(unsigned thread, bool woken) {
  Thread& self = threads_[thread];
  self.has_looked = false;
  if (waiting_[thread].is_woken && !woken) wrong(fmt::format("a wake of thread {} is lost", thread));
  if (!waiting_[thread].is_woken && woken) wrong(fmt::format("thread {} is woken, and nobody has", thread));
  if (woken) waiting_[thread] = {};
  switch (op(thread).kind) {
    case Kind::kLock:
    case Kind::kTimedLock:
    case Kind::kLockAgain:
      self.at = At::kExchange;
      return;
    case Kind::kWaitWhile:
      if (words_[op(thread).word] == op(thread).value)
        self.at = At::kLook;
      else
        finish(thread);
      return;
    default:
      finish(thread);
  }
}

void Machine::finish(unsigned thread) {
  const Kind kind = op(thread).kind;
  if (is_lock(kind)) {
    if (inside_ != 0) wrong("two threads hold the lock");
    inside_ = static_cast<uint8_t>(thread + 1);
  }
  threads_[thread].at = At::kOp;
  ++threads_[thread].pc;
}

// --- Messages

void Machine::send(unsigned thread, FutexCall call, FutexRequest request) {
  request.call = call;
  to_server_[thread].push_back(request);
}

void Machine::serve(unsigned thread) {
  const FutexRequest request = to_server_[thread].front();
  to_server_[thread].erase(to_server_[thread].begin());
  note("the server serves call {} of thread {}", static_cast<int>(request.call), thread);
  FutexServer server = this->server();
  const FutexAnswers answers{[](void* machine, WaiterId to, FutexAnswer answer, uint32_t result) {
                               static_cast<Machine*>(machine)->answered(to.value - 1, answer, result);
                             },
                             this};
  server.serve(id_of(thread), request, answers);
  for (unsigned i = 0; i < kMaxThreads && has(Mutant::kConfirmsBlindly); ++i)
    if (entries_[i + 1].state == FutexEntry::State::kTentative)
      server.serve(id_of(i), {.call = FutexCall::kConfirm}, answers);
  engine_ = server;
  if (!told_.empty()) wrong("waiters are told that they are woken by an operation that is not carried out");
}

// The server tells an answer. This is a moment at which something happens in the judging futex.
void Machine::answered(unsigned thread, FutexAnswer answer, uint32_t result) {
  note("; answers {} to thread {}", static_cast<int>(answer), thread);
  to_thread_[thread].push_back(answer);
  switch (answer) {
    case FutexAnswer::kQueued:
      judge_queued(thread);
      return;
    case FutexAnswer::kWoken:
      told_.push_back(static_cast<uint8_t>(thread));
      return;
    case FutexAnswer::kLeft:
      if (waiting_[thread].is_woken) wrong(fmt::format("thread {} leaves, and has been woken", thread));
      waiting_[thread] = {};
      std::erase(order_, thread);
      return;
    case FutexAnswer::kDone:
      judge_done(thread, result);
      return;
    default:
      return;
  }
}

void Machine::receive(unsigned thread) {
  const FutexAnswer answer = to_thread_[thread].front();
  to_thread_[thread].erase(to_thread_[thread].begin());
  note("answer {} comes to thread {}", static_cast<int>(answer), thread);
  Thread& self = threads_[thread];
  const At at = self.at;
  if (answer == FutexAnswer::kQueued && at == At::kAwaitQueued) {
    self.at = At::kLookAgain;
  } else if (answer == FutexAnswer::kWoken && (at == At::kAsleep || at == At::kAwaitLeft)) {
    wait_returns(thread, at == At::kAsleep || !has(Mutant::kLeavesAtOnce));
  } else if (has(Mutant::kConfirmsBlindly) && answer == FutexAnswer::kLeft && at != At::kAwaitLeft) {
    // The thread's call has ended long ago.
  } else if (answer == FutexAnswer::kLeft && at == At::kAwaitLeft) {
    wait_returns(thread, false);
  } else if (answer == FutexAnswer::kHeld && at == At::kAwaitHeld) {
    self.at = At::kHeldLook;
  } else if (answer == FutexAnswer::kDone && at == At::kAwaitDone) {
    finish(thread);
  } else {
    wrong(fmt::format("thread {} ({}) does not expect answer {}", thread, name(at), static_cast<int>(answer)));
  }
}

// --- The futex that judges

// Something happens to the waiters of a word. No holder may have looked before this and be carried out after it.
void Machine::disturb(unsigned word, const char* what) {
  for (unsigned i = 0; i < scenario_->programs.size(); ++i)
    if (has_looked_[i] && (op(i).word == word || op(i).second_word == word))
      wrong(fmt::format("{} between thread {}'s look at its word and its operation", what, i));
}

void Machine::judge_queued(unsigned thread) {
  if (std::exchange(waiting_[thread].is_queued, true)) return;
  waiting_[thread].word = op(thread).word;
  order_.push_back(static_cast<uint8_t>(thread));
}

void Machine::judge_begin(unsigned thread) {
  judge_queued(thread);
  waiting_[thread].is_waiting = true;
  disturb(op(thread).word, "a wait begins");
}

// Wakes waiters in the judging futex. `told` counts those of them that have been told.
uint32_t Machine::judge_wake(unsigned word, unsigned count, uint32_t bitset, unsigned& told) {
  uint32_t woken = 0;
  for (size_t i = 0; i < order_.size() && woken < count;) {
    const unsigned thread = order_[i];
    Waiting& waiter = waiting_[thread];
    if (!waiter.is_waiting || waiter.word != word || (op(thread).bitset & bitset) == 0) {
      ++i;
      continue;
    }
    waiter.is_woken = true;
    waiter.is_waiting = waiter.is_queued = false;
    order_.erase(order_.begin() + static_cast<ptrdiff_t>(i));
    ++woken;
    told += std::count(told_.begin(), told_.end(), static_cast<uint8_t>(thread)) == 1 ? 1 : 0;
  }
  if (woken != 0) disturb(word, "a wake");
  return woken;
}

uint32_t Machine::judge_move(unsigned from, unsigned count, unsigned to) {
  std::vector<uint8_t> moved;
  for (const uint8_t thread : order_)
    if (moved.size() < count && waiting_[thread].is_waiting && waiting_[thread].word == from) moved.push_back(thread);
  for (const uint8_t thread : moved) {
    waiting_[thread].word = static_cast<uint8_t>(to);
    if (from == to) continue;
    std::erase(order_, thread);
    order_.push_back(thread);
  }
  if (!moved.empty()) {
    disturb(from, "a move");
    disturb(to, "a move");
  }
  return static_cast<uint32_t>(moved.size());
}

void Machine::judge_done(unsigned thread, uint32_t result) {
  const Op& what = op(thread);
  has_looked_[thread] = false;
  unsigned told = 0;
  uint32_t done = 0;
  uint32_t woken = 0;
  switch (what.kind) {
    case Kind::kUnlock:
      done = woken = judge_wake(what.word, 1, ~uint32_t{0}, told);
      break;
    case Kind::kWake:
      done = woken = judge_wake(what.word, what.count, what.bitset, told);
      break;
    case Kind::kRequeue:
    case Kind::kCmpRequeue:
      woken = judge_wake(what.word, what.count, ~uint32_t{0}, told);
      done = woken + judge_move(what.word, what.second_count, what.second_word);
      break;
    case Kind::kWakeOp:
      woken = judge_wake(what.word, what.count, ~uint32_t{0}, told);
      // The request says what the thread found, because words have changed since.
      woken += judge_wake(what.second_word, entries_[id_of(thread).value].request.second_count, ~uint32_t{0}, told);
      done = woken;
      break;
    default:
      wrong("an operation that is none is done");
  }
  if (told_.size() != woken || told != woken)
    wrong(fmt::format("thread {} should wake {}, and of {} that it wakes, {} are those", thread, woken, told_.size(),
                      told));
  if (done != result) wrong(fmt::format("thread {} is told {}, and it is {}", thread, result, done));
  told_.clear();
}

// --- States

std::string Machine::check_end() const {
  for (unsigned i = 0; i < scenario_->programs.size(); ++i) {
    const Thread& thread = threads_[i];
    if (thread.at == At::kOp) continue;
    if (thread.at != At::kAsleep) return fmt::format("thread {} waits for ever: {}", i, name(thread.at));
    if (scenario_->must_end) return fmt::format("thread {} sleeps for ever", i);
    if (!waiting_[i].is_waiting) return fmt::format("thread {} sleeps, and has been woken", i);
  }
  return {};
}

void Machine::serialise(std::vector<uint8_t>& out) const {
  const auto put = [&](auto value) { out.push_back(static_cast<uint8_t>(value)); };
  const auto put_request = [&](const FutexRequest& request) {
    put(request.call);
    put(request.bitset);
    put(request.key);
    put(request.second_key);
    put(request.count);
    put(request.second_count);
  };
  for (const uint8_t word : words_) put(word);
  put(inside_);
  for (unsigned i = 0; i < scenario_->programs.size(); ++i) {
    put(threads_[i].pc);
    put(threads_[i].at);
    put(threads_[i].has_looked | has_looked_[i] << 1);
    put(waiting_[i].is_queued | waiting_[i].is_waiting << 1 | waiting_[i].is_woken << 2);
    put(waiting_[i].word);
    put(to_server_[i].size());
    for (const FutexRequest& request : to_server_[i]) put_request(request);
    put(to_thread_[i].size());
    for (const FutexAnswer answer : to_thread_[i]) put(answer);
    const FutexEntry& entry = entries_[i + 1];
    put(entry.state);
    if (entry.state == FutexEntry::State::kIdle) continue;
    put_request(entry.request);
    put(entry.next.value);
    put(entry.previous.value);
  }
  put(order_.size());
  for (const uint8_t thread : order_) put(thread);
}

std::string Machine::describe() const {
  std::string out;
  for (unsigned i = 0; i < scenario_->programs.size(); ++i)
    out += fmt::format("thread {}: call {}, {}; state {} at the server\n", i, threads_[i].pc, name(threads_[i].at),
                       static_cast<int>(entries_[i + 1].state));
  return out;
}

}  // namespace multigrain::futex_model
