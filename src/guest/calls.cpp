#include "guest/calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "guest/call_functions.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/signals.h"

namespace multigrain::guest {
namespace {

struct Entry {
  const char* name = nullptr;
  long (*carry_out)(Call&) = nullptr;  // null: refused
  int refused_with = ENOSYS;
  bool is_silent = false;
};

constexpr size_t kCalls = 512;

constexpr std::array<Entry, kCalls> make_table() {
  std::array<Entry, kCalls> table{};
#define PASS(name) table[SYS_##name] = {#name, &pass, 0, true};
#define HOST(name, function) table[SYS_##name] = {#name, &call::function, 0, true};
#define LATE(name, number) table[number] = {#name, &pass, 0, true};
#define LACK(name, code) table[SYS_##name] = {#name, nullptr, code, false};
#define NONE(name, code) table[SYS_##name] = {#name, nullptr, code, true};
#include "guest/calls.def"
#undef PASS
#undef HOST
#undef LATE
#undef LACK
#undef NONE
  return table;
}

constexpr std::array<Entry, kCalls> kTable = make_table();

// One line to the guest's standard error for each call that it lacks.
void warn(long number, const Entry& entry) {
  static std::array<std::atomic<bool>, kCalls> warned;
  const auto place = static_cast<size_t>(number) < kCalls ? static_cast<size_t>(number) : kCalls - 1;
  if (warned[place].exchange(true)) return;
  const std::string line =
      fmt::format("multigrain: the program's system call {} ({}) is not supported; it fails with {}\n", number,
                  entry.name == nullptr ? "unknown" : entry.name, entry.refused_with == ENOSYS ? "ENOSYS" : "EINVAL");
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

long pass(Call& call) { return pass_call(call.number, call.arguments, call.thread); }

void carry_out(ucontext_t& context, ThreadBlock& thread) {
  auto& registers = context.uc_mcontext.gregs;
  Call call{.number = static_cast<long>(registers[REG_RAX]),
            .arguments = {static_cast<uint64_t>(registers[REG_RDI]), static_cast<uint64_t>(registers[REG_RSI]),
                          static_cast<uint64_t>(registers[REG_RDX]), static_cast<uint64_t>(registers[REG_R10]),
                          static_cast<uint64_t>(registers[REG_R8]), static_cast<uint64_t>(registers[REG_R9])},
            .context = context,
            .thread = thread};
  const Entry entry = static_cast<uint64_t>(call.number) < kCalls ? kTable[static_cast<size_t>(call.number)] : Entry{};
  long result = 0;
  if (entry.carry_out != nullptr) {
    result = entry.carry_out(call);
  } else {
    if (!entry.is_silent) warn(call.number, entry);
    result = -entry.refused_with;
  }
  if (call.replaces_context) return;
  if (result == kRestart) {
    // The guest makes the call again, once its handler has returned; rax still has the number.
    constexpr greg_t kInstruction = 2;  // bytes of a syscall instruction
    registers[REG_RIP] -= kInstruction;
    return;
  }
  registers[REG_RAX] = result;
}

bool read_guest(uint64_t address, void* to, size_t bytes) {
  return copy_guarded(to, reinterpret_cast<const void*>(address), bytes);
}

bool write_guest(uint64_t address, const void* from, size_t bytes) {
  return copy_guarded(reinterpret_cast<void*>(address), from, bytes);
}

std::optional<std::string> read_guest_string(uint64_t address, size_t longest) {
  std::string text;
  while (text.size() <= longest) {
    // What is on a page can be read as a whole, or not at all.
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

// From entry.cpp: the handler of every signal that is not the system's. Whether it returns to the guest.
extern "C" [[gnu::visibility("hidden")]] int multigrain_guest_on_signal(int signal, siginfo_t* info, ucontext_t* context,
                                                                        ThreadBlock* thread, uint64_t thread_pointer);
extern "C" [[gnu::visibility("hidden")]] void multigrain_guest_deliver_pending(ucontext_t* context, ThreadBlock* thread);

int multigrain_guest_on_signal(int signal, siginfo_t* info, ucontext_t* context, ThreadBlock* thread, uint64_t thread_pointer) {
  using namespace multigrain::guest;
  auto& registers = context->uc_mcontext.gregs;
  const bool from_guest = !thread->contains(static_cast<uint64_t>(registers[REG_RSP]));
  if (!from_guest) {
    const bool is_fault = (signal == SIGSEGV || signal == SIGBUS) && info->si_code > 0;
    if (is_fault) {
      if (!move_if_copying(registers[REG_RIP])) die_of(signal);
      return 0;
    }
    if (is_hidden(signal)) {
      hold(*info, *thread);
      if (thread->pending_signal == 0) thread->pending_signal = -1;
      move_if_restartable(registers[REG_RIP]);
      return 0;
    }
    thread->pending_info = *info;
    thread->pending_signal = signal;
    sigfillset(&context->uc_sigmask);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigdelset(&context->uc_sigmask, fault);
    move_if_restartable(registers[REG_RIP]);
    return 0;
  }
  thread->guest_fs = thread_pointer;
  constexpr int kUserDispatch = 2;  // SYS_USER_DISPATCH
  if (signal == SIGSYS && info->si_code == kUserDispatch)
    carry_out(*context, *thread);
  else
    deliver(signal, *info, *context, *thread);
  return 1;
}

void multigrain_guest_deliver_pending(ucontext_t* context, ThreadBlock* thread) {
  const siginfo_t info = thread->pending_info;
  const int signal = thread->pending_signal;
  thread->pending_signal = 0;
  using namespace multigrain::guest;
  if (signal > 0) deliver(signal, info, *context, *thread);
  while (true) {
    const siginfo_t held = take_held(~mask_of(*context, *thread), *thread);
    if (held.si_signo == 0) return;
    deliver(held.si_signo, held, *context, *thread);
  }
}
