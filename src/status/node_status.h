// The status of a node says what its processors are doing, in memory that the node's launcher reads while the node
// runs and after it has died. So the launcher need ask nothing of a node that hangs, and a node that crashes need not
// send a message.
//
// The launcher makes a memfd for each node (create_node_status) and hands it to the process; a node without such a
// launcher uses private memory, so that its code need not ask which it has. A processor's part is written by its own
// thread with relaxed stores to cache lines of its own; that is all that it costs while all is well. A reader may see a
// mixture of several moments, and must believe no number that it has not checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "status/costs.h"
#include "timeline/timeline.h"

namespace multigrain {

// A processor's life, as far as the program's functions go. The thread of main() runs from the start on.
enum class Life : uint32_t { kNotStarted, kRuns, kReturned };

// The calls of the interface in which a processor can wait, with the meaning of `object` in each.
enum class Call : uint32_t {
  // The program's own code, or a call that does not wait for other processors.
  kNone,
  kLock,       // a lock
  kBarrier,    // a barrier
  kCondition,  // a condition; `lock` is given up meanwhile
  // A lock: mg_cond_wait was signalled and waits for it again.
  kRelock,
  kSemaphore,  // a semaphore
  kFlag,       // a flag; `lock` is the value wanted
  kJoin,       // a processor's number
  kCount
};

struct HeldLock {
  std::atomic<uint64_t> lock;  // its handle
  std::atomic<uint64_t> site;  // where the program took it
};

struct alignas(64) ProcessorStatus {
  static constexpr uint32_t kMaxHeld = 20;

  std::atomic<Life> life;
  std::atomic<Call> call;
  std::atomic<uint64_t> object;  // the call's
  std::atomic<uint64_t> lock;    // the call's
  std::atomic<uint64_t> site;    // the address in the program to which the call returns
  // It is odd while the processor sleeps in Multigrain: it grows whenever a sleep begins or ends.
  std::atomic<uint32_t> sleeps;
  // It grows with each call of the interface, and with each fault that the runtime handles.
  std::atomic<uint32_t> steps;
  // How many locks the processor holds; if they are more than kMaxHeld, the first are below.
  std::atomic<uint32_t> held;
  // When the wait in which the processor sleeps, or slept last, first put it to sleep.
  std::atomic<Nanoseconds> since;
  std::atomic<uint64_t> function;    // what it runs, or ran last; 0: main()
  std::atomic<uint64_t> stack_low;   // its stack is [stack_low, stack_high)
  std::atomic<uint64_t> stack_high;  //
  std::atomic<uint32_t> thread;      // as the system numbers it
  alignas(64) HeldLock locks[kMaxHeld];
};

// Remembers where something that the program made came from: a block of shared memory, by its address, or an object
// of synchronisation, by its handle (no handle is an address). A table of these forgets: of two things that fall on
// one entry the later one stays. An entry is valid if `key` is what the reader looks for both before and after it has
// read the entry.
struct alignas(64) Origin {
  static constexpr uint64_t kBusy = 1;
  std::atomic<uint64_t> key;
  // The size of a block, as the program asked for it; 0 in a node that did not make it.
  std::atomic<uint64_t> size;
  std::atomic<uint64_t> made;   // where; 0: not made by this node
  std::atomic<uint64_t> freed;  // where, if this node freed it
  // The ticks(), which on one machine are the same for all nodes.
  std::atomic<uint64_t> when;
};

// Everything that is known of a fatal signal. The thread that got the signal writes this, in its signal handler.
struct CrashRecord {
  static constexpr uint32_t kMaxFrames = 48;  // counted from the innermost on
  static constexpr uint32_t kLastFrames = 8;  // the outermost, of a deeper stack
  static constexpr uint32_t kMaxModules = 32;
  static constexpr uint32_t kNoProcessor = ~0u;
  enum State : uint32_t { kNone, kBegun, kComplete };
  enum Subject : uint32_t { kNoSubject, kAccess, kFreedPointer };  // what `address` is

  struct Frame {
    uint64_t pc;
    uint32_t module;   // an index below; kMaxModules: none is known
    uint32_t is_call;  // pc is where a call returns to
  };
  struct Module {
    uint64_t base;   // what was added to the file's addresses
    char path[256];  // empty: the program's own file
  };

  std::atomic<uint32_t> state;
  uint32_t signal;
  int32_t code;        // si_code
  uint32_t sender;     // the process that sent it, if one did
  uint32_t processor;  // its number in the machine
  uint32_t thread;
  uint32_t is_write;  // 1 if the access was a write
  uint32_t subject;
  uint64_t address;
  uint64_t pc;
  uint64_t stack_pointer;
  uint64_t registers[16];
  std::atomic<uint32_t> modules;
  // How many frames there are; those beyond kMaxFrames are in a ring of kLastFrames.
  std::atomic<uint32_t> frames;
  // For a kFreedPointer, where mg_free was called.
  std::atomic<uint64_t> free_site;
  Module module[kMaxModules];
  Frame frame[kMaxFrames];
  Frame last[kLastFrames];
};

// The reason why a processor ended the run: a mistake of the program, with places in the program that only a launcher
// can turn into lines.
struct MistakeRecord {
  struct Place {
    uint64_t site;  // where a call returns to; 0: none
    char label[64];
  };
  std::atomic<uint32_t> state;  // 1: being written, 2: valid
  uint32_t processor;           // its number in the machine
  uint64_t lock;                // its handle
  char sentence[256];
  Place place[2];
};

struct NodeStatus {
  static constexpr uint64_t kMagic = 0x3153757461745367;
  static constexpr uint32_t kOrigins = 1u << 15;

  std::atomic<uint64_t> magic;  // kMagic once the rest of the head is valid
  uint32_t node;
  uint32_t processors;       // how many this node has
  uint32_t first_processor;  // its number in the machine
  uint32_t pid;
  uint32_t launched;          // a launcher reads this
  uint32_t threads_at_start;  // those of the process, before main()
  uint32_t nodes;             // of the machine
  uint32_t has_virtual_time;  // 1: the profiles' times are nanoseconds of it, and not ticks of this machine
  uint64_t started;           // when, by monotonic_ns()
  char protocol[32];
  uint64_t region;  // the shared region: its address
  uint64_t region_size;
  // No page of the region from here on was ever handed out, as far as is known.
  std::atomic<uint64_t> allocated_end;
  std::atomic<uint32_t> leaves;  // the program is ending
  // The program has ended, and with it this node's part of the run.
  std::atomic<uint32_t> run_over;
  // The address at which the program's file is loaded: it was added to the addresses in the file.
  uint64_t program_base;
  char program[4096];

  ProcessorStatus processor[Config::kMaxProcessorsPerNode];
  CrashRecord crash;
  MistakeRecord mistake;
  Origin origin[kOrigins];
  costs::Table costs;

  // The ProcessorProfiles (profile/profile.h) of the processors, and of the service thread behind them, once the node has made
  // them. Forked children keep this part.
  static constexpr size_t kProfileBytes = 5120;
  struct Profile {
    alignas(64) std::byte bytes[kProfileBytes];
  };
  alignas(4096) Profile profile[Config::kMaxProcessorsPerNode + 1];

  // Returns whether the node has said who it is: the rest of the head is valid.
  [[nodiscard]] bool is_attached() const { return magic.load(std::memory_order_acquire) == kMagic; }
};

// --- For launchers.

// Makes a memfd that holds a NodeStatus of zeroes, close-on-exec. The caller owns it.
Result<int> create_node_status();
// Maps the memfd. unmap_node_status() takes the mapping away.
Result<NodeStatus*> map_node_status(int fd);
void unmap_node_status(NodeStatus* status);

// --- For the node.

// The environment variable that names the descriptor.
inline constexpr const char* kStatusVariable = "MULTIGRAIN_STATUS_FD";

// Makes this process's status: in the launcher's memory if the environment names it, else in private memory. Forked
// children do not inherit it. Called once, at start-up. Errors: the descriptor that the variable names is none.
Status open_node_status();
// Returns this process's status; nullptr before open_node_status() and in a forked child.
NodeStatus* node_status();
// Called in a forked child, which has no status.
void forget_node_status();

// The calling thread's status; nullptr in a thread that is no processor. Async-signal-safe.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ProcessorStatus* t_processor_status;
inline ProcessorStatus* this_status() {
  return t_processor_status;
}
// Makes `status` the calling thread's and writes down its thread and stack. It allocates meanwhile.
void become_processor(ProcessorStatus& status);

// Notes that the calling processor has got somewhere. Async-signal-safe.
inline void count_step(ProcessorStatus& status) {
  status.steps.store(status.steps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// While it exists the calling thread is in a call of the interface, which the time line shows.
class CallScope {
 public:
  CallScope(Call call, uint64_t object, const void* site, uint64_t lock = 0)
      : interval_({.key = object,
                   .site = reinterpret_cast<uint64_t>(site),
                   .kind = timeline::Kind::kCall,
                   .what = static_cast<uint8_t>(call)}),
        cost_(static_cast<uint32_t>(call), object, reinterpret_cast<uint64_t>(site)),
        status_(this_status()) {
    if (status_ == nullptr) return;
    count_step(*status_);
    outer_ = status_->call.load(std::memory_order_relaxed);
    status_->object.store(object, std::memory_order_relaxed);
    status_->lock.store(lock, std::memory_order_relaxed);
    status_->site.store(reinterpret_cast<uint64_t>(site), std::memory_order_relaxed);
    status_->call.store(call, std::memory_order_relaxed);
  }
  ~CallScope() {
    if (status_ != nullptr) status_->call.store(outer_, std::memory_order_relaxed);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  const timeline::Interval interval_;
  const costs::WaitScope cost_;
  ProcessorStatus* const status_;
  Call outer_ = Call::kNone;
};

// Used by calls that hardly ever wait: they note where the call is, so that a CallScope can be made of it
// should it wait.
inline void note_call_site(const void* site) {
  ProcessorStatus* const status = this_status();
  if (status == nullptr) return;
  count_step(*status);
  status->site.store(reinterpret_cast<uint64_t>(site), std::memory_order_relaxed);
}
[[nodiscard]] inline const void* noted_call_site() {
  const ProcessorStatus* const status = this_status();
  return status != nullptr ? reinterpret_cast<const void*>(status->site.load(std::memory_order_relaxed)) : nullptr;
}

// The calling processor has got a lock from another node, in a call whose site it has noted.
inline void note_fetched_lock(uint64_t lock) {
  if (costs::on()) [[unlikely]]
    costs::internal::add_fetched_lock(static_cast<uint32_t>(Call::kLock), lock,
                                      reinterpret_cast<uint64_t>(noted_call_site()));
}

// Says that the calling processor waits for a lock, in a call whose site it has noted: its own, or mg_cond_wait's.
[[nodiscard]] inline CallScope waits_for_lock(uint64_t lock) {
  const ProcessorStatus* const status = this_status();
  const bool again = status != nullptr && status->call.load(std::memory_order_relaxed) == Call::kRelock;
  return {again ? Call::kRelock : Call::kLock, lock, noted_call_site()};
}

// Surrounds each sleep of one wait; `since` is the wait's own, 0 at first.
class SleepScope {
 public:
  explicit SleepScope(Nanoseconds& since) : status_(this_status()) {
    if (status_ == nullptr) return;
    if (since == 0) since = monotonic_ns();
    status_->since.store(since, std::memory_order_relaxed);
    step();
  }
  ~SleepScope() {
    if (status_ != nullptr) step();
  }
  SleepScope(const SleepScope&) = delete;
  SleepScope& operator=(const SleepScope&) = delete;

 private:
  void step() { status_->sleeps.store(status_->sleeps.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  ProcessorStatus* const status_;
};

// --- The locks that the calling processor holds. For a thread that is no processor they are not known.

inline void note_taken(uint64_t lock, const void* site) {
  ProcessorStatus* const status = this_status();
  if (status == nullptr) return;
  const uint32_t held = status->held.load(std::memory_order_relaxed);
  if (held < ProcessorStatus::kMaxHeld) {
    status->locks[held].lock.store(lock, std::memory_order_relaxed);
    status->locks[held].site.store(reinterpret_cast<uint64_t>(site), std::memory_order_relaxed);
  }
  status->held.store(held + 1, std::memory_order_release);
}

// Returns whether the calling processor may let go: false if it is certain that it does not hold the lock.
bool note_let_go_slowly(ProcessorStatus& status, uint64_t lock);
[[nodiscard]] inline bool note_let_go(uint64_t lock) {
  ProcessorStatus* const status = this_status();
  if (status == nullptr) return true;
  const uint32_t held = status->held.load(std::memory_order_relaxed);
  if (held != 0 && held <= ProcessorStatus::kMaxHeld &&
      status->locks[held - 1].lock.load(std::memory_order_relaxed) == lock) [[likely]] {
    status->held.store(held - 1, std::memory_order_release);
    return true;
  }
  return note_let_go_slowly(*status, lock);
}

// Returns where the calling processor took the lock that it holds; 0 if it does not hold it, as far as is known.
[[nodiscard]] inline uint64_t taken_at(uint64_t lock) {
  const ProcessorStatus* const status = this_status();
  if (status == nullptr) return 0;
  const uint32_t held = status->held.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < held && i < ProcessorStatus::kMaxHeld; ++i)
    if (status->locks[i].lock.load(std::memory_order_relaxed) == lock)
      return status->locks[i].site.load(std::memory_order_relaxed);
  return 0;
}

// --- Origins. Any thread may call these.
void note_made(uint64_t key, uint64_t size, const void* site);
// Returns what it replaces: where the block was freed before, or 0. A `site` of 0 says that the block was not freed.
uint64_t note_freed(uint64_t key, uint64_t site);

}  // namespace multigrain
