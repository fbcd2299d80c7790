#include "runtime/crash_record.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/clock.h"
#include "base/config.h"
#include "base/stack_text.h"
#include "memory/page_fault.h"
#include "runtime/interpose/signals.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

// The unwinder needs a few kilobytes; a program's handler, which may run here, may need more.
constexpr size_t kAlternateStack = size_t{256} << 10;
constexpr size_t kGuard = 4096;
// How long a thread waits, in milliseconds, while another thread that died first writes down why: long enough even on a
// busy machine.
constexpr unsigned kPatienceMs = 3000;

// The thread that is inside record_crash(), and the place where it goes on if it faults there; kGivenUp if it did.
constexpr pid_t kGivenUp = -1;
constinit std::atomic<pid_t> g_recording{0};
sigjmp_buf g_way_back;
// The id of this process. A child that was forked without the C library's knowledge has another id, and none of the
// memory of its parent's status.
constinit pid_t g_process = 0;

// Returns the number of the object in which the address lies, or kMaxModules if none is known there or
// there is no room.
uint32_t module_of(CrashRecord& crash, uint64_t address) {
  dl_find_object found;
  if (address == 0 || _dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return CrashRecord::kMaxModules;
  const uint64_t base = found.dlfo_link_map->l_addr;
  const char* const name = found.dlfo_link_map->l_name;
  const uint32_t count = crash.modules.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i)
    if (crash.module[i].base == base && std::strncmp(crash.module[i].path, name, sizeof crash.module[i].path - 1) == 0)
      return i;
  if (count == CrashRecord::kMaxModules) return count;
  crash.module[count].base = base;
  std::strncpy(crash.module[count].path, name, sizeof crash.module[count].path - 1);
  crash.modules.store(count + 1, std::memory_order_release);
  return count;
}

void add_frame(CrashRecord& crash, uint64_t pc, bool is_call) {
  const uint32_t number = crash.frames.load(std::memory_order_relaxed);
  CrashRecord::Frame& frame = number < CrashRecord::kMaxFrames
                                  ? crash.frame[number]
                                  : crash.last[(number - CrashRecord::kMaxFrames) % CrashRecord::kLastFrames];
  frame = {pc, module_of(crash, is_call ? pc - 1 : pc), is_call ? 1u : 0u};
  crash.frames.store(number + 1, std::memory_order_release);
}

struct Walk {
  CrashRecord& crash;
  bool found = false;  // the interrupted frame has been reached
};

_Unwind_Reason_Code on_frame(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  const uint64_t pc = _Unwind_GetIPInfo(context, &before_instruction);
  // The handler's own frames come first.
  if (!walk.found && pc != walk.crash.pc) return _URC_NO_REASON;
  if (walk.found && pc == 0) return _URC_END_OF_STACK;
  add_frame(walk.crash, pc, walk.found && before_instruction == 0);
  walk.found = true;
  return _URC_NO_REASON;
}

void follow_stack(CrashRecord& crash) {
  if (module_of(crash, crash.pc) == CrashRecord::kMaxModules) {
    // The program called through a pointer to no function: its caller is on top of the stack, and no table says more.
    add_frame(crash, crash.pc, false);
    add_frame(crash, *reinterpret_cast<const uint64_t*>(crash.stack_pointer), true);
    return;
  }
  Walk walk{crash};
  _Unwind_Backtrace(&on_frame, &walk);
  if (!walk.found) add_frame(crash, crash.pc, false);
}

void set_open(int how, std::array<int, 2> signals) {
  uint64_t mask = 0;
  for (const int number : signals) mask |= uint64_t{1} << (number - 1);
  syscall(SYS_rt_sigprocmask, how, &mask, nullptr, sizeof mask);
}

// Writes out, for a run whose launcher reads no status, addresses that a debugger's tools can turn into lines.
void write_out(const NodeStatus& status, const CrashRecord& crash) {
  StackText head;
  head.text("multigrain: node ").number(status.node);
  if (crash.processor != CrashRecord::kNoProcessor) head.text(", processor ").number(crash.processor);
  head.text(": signal ").number(crash.signal);
  if (crash.subject == CrashRecord::kAccess)
    head.text(crash.is_write != 0 ? ", writing to " : ", reading from ").hexadecimal(crash.address);
  head.text("; mgrun shows lines here, or addr2line -Cfie FILE ADDRESS:");
  head.write_out();
  const uint32_t frames = std::min(crash.frames.load(std::memory_order_relaxed), CrashRecord::kMaxFrames);
  for (uint32_t i = 0; i < frames; ++i) {
    const CrashRecord::Frame& frame = crash.frame[i];
    if (i != 0 && frame.pc == crash.frame[i - 1].pc) continue;  // recursion
    StackText line;
    line.text("  #").number(i).text(" ");
    if (frame.module < CrashRecord::kMaxModules) {
      const CrashRecord::Module& module = crash.module[frame.module];
      line.text(module.path[0] != '\0' ? module.path : status.program).text(" ");
      line.hexadecimal(frame.pc - frame.is_call - module.base);
    } else {
      line.hexadecimal(frame.pc);
    }
    line.write_out();
  }
}

void fill(CrashRecord& crash, const NodeStatus& status, int signal, const siginfo_t* info, const void* context,
          const void* address) {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  crash.signal = static_cast<uint32_t>(signal);
  crash.code = info->si_code;
  crash.sender = info->si_code <= 0 ? static_cast<uint32_t>(info->si_pid) : 0;
  crash.thread = static_cast<uint32_t>(syscall(SYS_gettid));
  crash.processor = CrashRecord::kNoProcessor;
  if (const ProcessorStatus* const processor = this_status())
    crash.processor = status.first_processor + static_cast<uint32_t>(processor - status.processor);
  crash.pc = static_cast<uint64_t>(registers[REG_RIP]);
  crash.stack_pointer = static_cast<uint64_t>(registers[REG_RSP]);
  for (size_t i = 0; i < std::size(crash.registers); ++i) crash.registers[i] = static_cast<uint64_t>(registers[i]);
  if (address != nullptr || (info->si_code > 0 && (signal == SIGSEGV || signal == SIGBUS))) {
    crash.subject = CrashRecord::kAccess;
    crash.address = reinterpret_cast<uint64_t>(address);
    crash.is_write = PageFaultCode(context).is_write() ? 1 : 0;
  } else if (crash.free_site.load(std::memory_order_relaxed) != 0) {
    crash.subject = CrashRecord::kFreedPointer;
  }
}

void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  record_crash(signal, info, context, nullptr);
  struct sigaction fate = {};
  fate.sa_handler = SIG_DFL;
  real_sigaction(signal, &fate, nullptr);
  // A signal that was sent is not raised again by returning.
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

void use_alternate_stack() {
  stack_t now{};
  if (syscall(SYS_sigaltstack, nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  void* const memory =
      mmap(nullptr, kGuard + kAlternateStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  auto* const stack = static_cast<std::byte*>(memory) + kGuard;
  if (mprotect(stack, kAlternateStack, PROT_READ | PROT_WRITE) != 0) return;
  const stack_t ours{.ss_sp = stack, .ss_flags = 0, .ss_size = kAlternateStack};
  syscall(SYS_sigaltstack, &ours, nullptr);
}

void install_crash_handlers() {
  g_process = getpid();
  // The unwinder looks up what it needs at its first use, which therefore comes before any crash.
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
  for (const int signal : {SIGABRT, SIGFPE, SIGILL}) {
    struct sigaction before = {};
    if (real_sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_sigaction = &on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGSEGV);
    sigdelset(&action.sa_mask, SIGBUS);
    real_sigaction(signal, &action, nullptr);
  }
}

void record_crash(int signal, const siginfo_t* info, const void* context, const void* address) {
  NodeStatus* const status = node_status();
  if (status == nullptr || g_process != static_cast<pid_t>(syscall(SYS_getpid))) return;
  CrashRecord& crash = status->crash;
  pid_t nobody = 0;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  if (!g_recording.compare_exchange_strong(nobody, self)) {
    // This thread must not end the process before the first thread has written down why it ends.
    for (unsigned waited = 0;
         waited < kPatienceMs && crash.state.load() != CrashRecord::kComplete && g_recording.load() != kGivenUp;
         waited += 10)
      sleep_ns(10'000'000);
    return;
  }
  if (sigsetjmp(g_way_back, 1) != 0) {
    g_recording = kGivenUp;
    if (status->launched == 0) write_out(*status, crash);
    return;
  }
  set_open(SIG_UNBLOCK, {SIGSEGV, SIGBUS});
  fill(crash, *status, signal, info, context, address);
  crash.state.store(CrashRecord::kBegun, std::memory_order_release);
  // The program is noted first, so that it has a number for the addresses of its allocations, too.
  module_of(crash, getauxval(AT_PHDR));
  follow_stack(crash);
  set_open(SIG_BLOCK, {SIGSEGV, SIGBUS});
  crash.state.store(CrashRecord::kComplete, std::memory_order_release);
  if (status->launched == 0) write_out(*status, crash);
}

void return_to_crash_record() {
  const pid_t recording = g_recording.load(std::memory_order_relaxed);
  if (recording == 0) [[likely]]
    return;
  if (recording != static_cast<pid_t>(syscall(SYS_gettid))) return;
  siglongjmp(g_way_back, 1);
}

}  // namespace multigrain
