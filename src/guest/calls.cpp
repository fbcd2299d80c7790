#include "guest/calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "guest/call_functions.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/gates.h"
#include "guest/host.h"
#include "guest/long_calls.h"
#include "guest/package.h"
#include "guest/signals.h"

namespace multigrain::guest {
namespace {

// Says what a call is about, which matters when several nodes share the guest's memory.
enum class About : uint8_t {
  kContents,   // the memory at the addresses among its arguments
  kAddresses,  // the addresses themselves
  kThisMemory  // memory shared with the kernel, which is refused
};

struct Entry {
  const char* name = nullptr;
  long (*carry_out)(Call&) = nullptr;  // null: refused
  int refused_with = ENOSYS;
  bool is_silent = false;
  About about = About::kContents;
};

constexpr std::array<Entry, kCalls> make_table() {
  std::array<Entry, kCalls> table{};
#define PASS(name, form) table[SYS_##name] = {#name, &pass, 0, true};
#define SEEN(name, function, form) table[SYS_##name] = {#name, &call::function, 0, true};
#define HOST(name, function) table[SYS_##name] = {#name, &call::function, 0, true};
#define MEMORY(name, function) table[SYS_##name] = {#name, &call::function, 0, true, About::kAddresses};
#define ALONE(name, function) table[SYS_##name] = {#name, &call::function, ENOSYS, false, About::kThisMemory};
#define LATE(name, number, form) table[number] = {#name, &pass, 0, true};
#define LATE_MEMORY(name, number) table[number] = {#name, &pass, 0, true, About::kAddresses};
#define LACK(name, code) table[SYS_##name] = {#name, nullptr, code, false};
#define NONE(name, code) table[SYS_##name] = {#name, nullptr, code, true};
#include "guest/calls.def"
#undef PASS
#undef SEEN
#undef HOST
#undef MEMORY
#undef ALONE
#undef LATE
#undef LATE_MEMORY
#undef LACK
#undef NONE
  return table;
}

constexpr std::array<Entry, kCalls> kTable = make_table();

Entry entry_of(long number) {
  return static_cast<uint64_t>(number) < kCalls ? kTable[static_cast<size_t>(number)] : Entry{};
}

// Writes one line to the guest's standard error for each call that is not supported.
void warn(long number, const char* name, long code) {
  static std::array<std::atomic<bool>, kCalls> warned;
  const auto place = static_cast<size_t>(number) < kCalls ? static_cast<size_t>(number) : kCalls - 1;
  if (warned[place].exchange(true)) return;
  const std::string line =
      fmt::format("multigrain: the program's system call {} ({}) is not supported; it fails with {}\n", number,
                  name == nullptr ? "unknown" : name, strerrorname_np(static_cast<int>(-code)));
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

// Announces a copy, so that the pages of it that other nodes have come together.
void expect_copy(uint64_t address, size_t bytes, bool is_write) {
  if (bytes > kPageSize && host().cluster != nullptr) host().cluster->expect_copy(address, bytes, is_write);
}

// Measures a call for the statistics of a guest on several nodes.
class MeasuredCall {
 public:
  MeasuredCall() {
    if (host().cluster != nullptr) host().cluster->call_begins();
  }
  ~MeasuredCall() {
    // A process that the call has forked has no nodes.
    if (host().cluster != nullptr) host().cluster->call_ends();
  }
  MeasuredCall(const MeasuredCall&) = delete;
  MeasuredCall& operator=(const MeasuredCall&) = delete;
};

}  // namespace

long carry_out_of_table(Call& call) {
  const Entry entry = entry_of(call.number);
  return entry.carry_out == nullptr ? -ENOSYS : entry.carry_out(call);
}

bool passes_unseen(uint64_t number) {
  const Entry entry = entry_of(static_cast<long>(number));
  return entry.carry_out == &pass && !host().memory_is_shared && host().cluster == nullptr;
}

long pass(Call& call) {
  if (host().memory_is_shared && entry_of(call.number).about == About::kContents) return pass_copied(call);
  return pass_call(call.number, call.arguments, call.thread);
}

long carry_out(Package& package, ThreadBlock& thread) {
  return host().cluster != nullptr ? host().cluster->carry_out(package, thread) : package.carry_out(thread);
}

const char* name_of_call(long number) {
  const char* const name = entry_of(number).name;
  return name == nullptr ? "an unknown call" : name;
}

long call_at_home(Call& call) {
  return host().cluster->call_at_home(call.number, call.arguments, call.thread);
}

long refuse(const Call& call, long code) {
  warn(call.number, entry_of(call.number).name, code);
  return code;
}

void carry_out(ucontext_t& context, ThreadBlock& thread) {
  const MeasuredCall measured;
  auto& registers = context.uc_mcontext.gregs;
  Call call{.number = static_cast<long>(registers[REG_RAX]),
            .arguments = {static_cast<uint64_t>(registers[REG_RDI]), static_cast<uint64_t>(registers[REG_RSI]),
                          static_cast<uint64_t>(registers[REG_RDX]), static_cast<uint64_t>(registers[REG_R10]),
                          static_cast<uint64_t>(registers[REG_R8]), static_cast<uint64_t>(registers[REG_R9])},
            .context = context,
            .thread = thread};
  const Entry entry = entry_of(call.number);
  long result = -entry.refused_with;
  if (thread.away == nullptr && is_about_hosts_descriptor(call.number, call.arguments))
    result = -EBADF;
  else if (const auto on_nodes = host().cluster != nullptr ? carry_out_on_nodes(call) : std::nullopt)
    result = *on_nodes;
  else if (entry.carry_out != nullptr && (entry.about != About::kThisMemory || !host().memory_is_shared))
    result = entry.carry_out(call);
  else if (!entry.is_silent)
    refuse(call, result);
  if (call.replaces_context) return;
  if (result == kRestart) {
    // The guest makes the call again, once its handler has returned; rax still has the number.
    constexpr greg_t kInstruction = 2;  // bytes of a syscall instruction
    registers[REG_RIP] -= kInstruction;
    return;
  }
  registers[REG_RAX] = result;
}

void tell_mask(const ucontext_t& context, ThreadBlock& thread) {
  if (thread.away == nullptr) return;
  const uint64_t mask = mask_of(context, thread);
  if (mask == thread.mask_at_home && thread.signals_acted_on == thread.signals_answered) return;
  host().cluster->set_mask_at_home(mask, true, thread);
}

bool read_guest(uint64_t address, void* to, size_t bytes) {
  expect_copy(address, bytes, false);
  if (copy_guarded(to, reinterpret_cast<const void*>(address), bytes)) return true;
  return host().cluster != nullptr && host().cluster->copy_at_home(address, to, bytes, false);
}

bool write_guest(uint64_t address, const void* from, size_t bytes) {
  expect_copy(address, bytes, true);
  if (copy_guarded(reinterpret_cast<void*>(address), from, bytes)) return true;
  return host().cluster != nullptr && host().cluster->copy_at_home(address, const_cast<void*>(from), bytes, true);
}

std::optional<std::string> read_guest_string(uint64_t address, size_t longest) {
  std::string text;
  while (text.size() <= longest) {
    // A page can be read as a whole, or not at all.
    const size_t chunk = std::min(kPageSize - address % kPageSize, uint64_t{256});
    char piece[256];
    if (!read_guest(address, piece, chunk)) {
      errno = EFAULT;
      return std::nullopt;
    }
    const size_t length = strnlen(piece, chunk);
    text.append(piece, length);
    if (length < chunk) {
      if (text.size() > longest) break;
      return text;
    }
    address += chunk;
  }
  errno = ENAMETOOLONG;
  return std::nullopt;
}

}  // namespace multigrain::guest

using multigrain::guest::ThreadBlock;

// The instructions of entry.cpp call these. multigrain_guest_on_signal() handles every signal that is not left to the
// kernel, and returns whether the way back leads to the guest.
extern "C" [[gnu::visibility("hidden")]] int multigrain_guest_on_signal(int signal, siginfo_t* info,
                                                                        ucontext_t* context, ThreadBlock* thread,
                                                                        uint64_t thread_pointer, uint64_t selector);
extern "C" [[gnu::visibility("hidden")]] void multigrain_guest_deliver_pending(ucontext_t* context,
                                                                               ThreadBlock* thread);

int multigrain_guest_on_signal(int signal, siginfo_t* info, ucontext_t* context, ThreadBlock* thread,
                               uint64_t thread_pointer, uint64_t selector) {
  using namespace multigrain::guest;
  auto& registers = context->uc_mcontext.gregs;
  const bool from_guest = selector == kCallsTrap && !thread->contains(static_cast<uint64_t>(registers[REG_RSP]));
  const bool is_fault = (signal == SIGSEGV || signal == SIGBUS) && info->si_code > 0;
  Cluster* const cluster = host().cluster;
  if (from_guest) {
    thread->guest_fs = thread_pointer;
    // A fault in a call gate says that gs is not the host's; the call then arrives by a signal.
    const uint64_t at = static_cast<uint64_t>(registers[REG_RIP]);
    if (leave_gate(registers, host().space.site_of_stub(at)) && is_fault) return 1;
    if (is_fault && info->si_code == SI_KERNEL && host().space.step_over(registers)) return 1;
  }
  if (is_fault && cluster != nullptr && cluster->on_fault(signal, *info, *context, *thread)) return from_guest ? 1 : 0;
  siginfo_t from_home{};
  if (signal == kKick && thread->away != nullptr) {
    from_home = cluster->take_signal(*thread);
    if (from_home.si_signo == 0) {
      // The node ends, and with it what the process has here.
      if (from_guest && thread->needs_home) cluster->come_home(*context, *thread);
      return from_guest ? 1 : 0;
    }
    info = &from_home;
    signal = from_home.si_signo;
  }
  if (!from_guest) {
    if (is_fault) {
      if (!move_if_copying(registers[REG_RIP])) die_of(signal);
      return 0;
    }
    // The signal is of an instruction of the host's own, to which the handler would return.
    const bool is_of_instruction = signal == SIGILL || signal == SIGFPE || signal == SIGTRAP;
    if (is_of_instruction && info->si_code > 0) die_of(signal);
    if (is_hidden(signal)) {
      hold(*info, *thread);
      if (thread->away != nullptr) thread->signals_acted_on = thread->signals_acted_on + 1;
      if (thread->pending_signal == 0) thread->pending_signal = -1;
      move_if_restartable(registers[REG_RIP]);
      return 0;
    }
    thread->pending_info = *info;
    thread->pending_signal = signal;
    // No other signal may come until this one is delivered: not SIGILL, SIGFPE and SIGTRAP either, which a process can
    // send and the guest may have blocked. The host's own instructions die of those in any case.
    sigfillset(&context->uc_sigmask);
    for (const int fault : {SIGSEGV, SIGBUS}) sigdelset(&context->uc_sigmask, fault);
    move_if_restartable(registers[REG_RIP]);
    return 0;
  }
  // The guest makes the access again, at home or after a signal.
  if (is_fault && thread->needs_home) {
    cluster->come_home(*context, *thread);
    return 1;
  }
  if (is_fault && cluster != nullptr) cluster->explain_fault(*info, *thread);
  constexpr int kUserDispatch = 2;  // SYS_USER_DISPATCH
  if (signal == SIGSYS && info->si_code == kUserDispatch) {
    if (!host().traps_all_calls) host().space.see_call(*context);
    carry_out(*context, *thread);
    if (thread->needs_home) cluster->come_home(*context, *thread);
  } else {
    deliver(signal, *info, *context, *thread);
  }
  if (info == &from_home) thread->signals_acted_on = thread->signals_acted_on + 1;
  tell_mask(*context, *thread);
  return 1;
}

void multigrain_guest_deliver_pending(ucontext_t* context, ThreadBlock* thread) {
  const siginfo_t info = thread->pending_info;
  const int signal = thread->pending_signal;
  thread->pending_signal = 0;
  using namespace multigrain::guest;
  if (signal > 0) {
    deliver(signal, info, *context, *thread);
    if (thread->away != nullptr) thread->signals_acted_on = thread->signals_acted_on + 1;
  }
  while (true) {
    const siginfo_t held = take_held(~mask_of(*context, *thread), *thread);
    if (held.si_signo == 0) break;
    deliver(held.si_signo, held, *context, *thread);
  }
  tell_mask(*context, *thread);
}
