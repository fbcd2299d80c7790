#include "guest/gates.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#include "guest/calls.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/signals.h"

using multigrain::guest::CallSite;
using multigrain::guest::kGateState;
using multigrain::guest::ThreadBlock;

// The instructions below have these offsets as numbers.
static_assert(offsetof(ThreadBlock, self) == 40);
static_assert(offsetof(ThreadBlock, site) == 48);
static_assert(offsetof(ThreadBlock, guest_mask) == 56);
static_assert(offsetof(ThreadBlock, gate_frame) == 64);
static_assert(offsetof(CallSite, next) == 0 && offsetof(CallSite, number) == 8);
static_assert(kGateState == 1024);
static_assert(offsetof(ucontext_t, uc_mcontext) == 40 && REG_R8 == 0 && REG_R15 == 7 && REG_RDI == 8 && REG_EFL == 17);

// In a call gate, rax has the site; rcx and r11 are the call gate's own, since a `syscall` instruction changes them.
// Everything else is the guest's, flags and stack included. So nothing here changes a flag until the flags are saved
// (jrcxz does not look at any).
//
// Offsets in the block: the selector is at 0, pending_signal at 4, host_fs at 8, guest_fs at 16, stack_top at 32, and
// the frame at 64. The frame has r8 at 104 and the other registers behind it in the order of gregset_t; its
// floating-point state is at 1088.
asm(R"(
  .text
  .p2align 4
  .globl multigrain_guest_gates
  .hidden multigrain_guest_gates
  .type multigrain_guest_gates, @function
multigrain_guest_gates:
multigrain_guest_gate_closed:
  movq 0(%rax), %rcx
  leaq -2(%rcx), %rcx
  movl 8(%rax), %eax
  .globl multigrain_guest_gate_to_site
  .hidden multigrain_guest_gate_to_site
multigrain_guest_gate_to_site:
  jmp *%rcx

  .p2align 4
multigrain_guest_gate_direct:
  rdgsbase %rcx
  notq %rcx
  movq %gs:40, %r11
  leaq 1(%r11,%rcx), %rcx
  jrcxz 1f
  jmp multigrain_guest_gate_closed
1:
  movq %rax, 48(%r11)
  movb $0, 0(%r11)
  .globl multigrain_guest_direct_begin
  .hidden multigrain_guest_direct_begin
multigrain_guest_direct_begin:
  movl 4(%r11), %ecx
  movl 8(%rax), %eax
  jrcxz multigrain_guest_direct_instruction
  jmp multigrain_guest_direct_not_begun
  .globl multigrain_guest_direct_instruction
  .hidden multigrain_guest_direct_instruction
multigrain_guest_direct_instruction:
  syscall
  .globl multigrain_guest_direct_done
  .hidden multigrain_guest_direct_done
multigrain_guest_direct_done:
  movl %gs:4, %ecx
  jrcxz 2f
  movl $1, %ecx
  jmp multigrain_guest_gate_save
2:
  movq %gs:48, %rcx
  movq 0(%rcx), %rcx
  movb $1, %gs:0
  .globl multigrain_guest_direct_exit
  .hidden multigrain_guest_direct_exit
multigrain_guest_direct_exit:
  jmp *%rcx
  .globl multigrain_guest_direct_not_begun
  .hidden multigrain_guest_direct_not_begun
multigrain_guest_direct_not_begun:
  movl $2, %ecx
  jmp multigrain_guest_gate_save

  .p2align 4
multigrain_guest_gate_host:
  rdgsbase %rcx
  notq %rcx
  movq %gs:40, %r11
  leaq 1(%r11,%rcx), %rcx
  jrcxz 3f
  jmp multigrain_guest_gate_closed
3:
  movq %rax, 48(%r11)
  movb $0, 0(%r11)
  .globl multigrain_guest_host_begin
  .hidden multigrain_guest_host_begin
multigrain_guest_host_begin:
  movl $0, %ecx

multigrain_guest_gate_save:
  movq %r8, %gs:104
  movq %r9, %gs:112
  movq %r10, %gs:120
  movq %r12, %gs:136
  movq %r13, %gs:144
  movq %r14, %gs:152
  movq %r15, %gs:160
  movq %rdi, %gs:168
  movq %rsi, %gs:176
  movq %rbp, %gs:184
  movq %rbx, %gs:192
  movq %rdx, %gs:200
  movq %rax, %gs:208
  movq %rsp, %gs:224
  movq %gs:32, %rsp
  pushfq
  popq %gs:240
  cld
  movq %gs:40, %rbx
  movl %ecx, %ebp
  movl multigrain_guest_components(%rip), %eax
  movl 4+multigrain_guest_components(%rip), %edx
  xsave64 1088(%rbx)
  testb $1, 1600(%rbx)
  jz 4f
  fninit
4:
  ldmxcsr multigrain_guest_control(%rip)
  rdfsbase %rax
  movq %rax, 16(%rbx)
  movq 8(%rbx), %rax
  wrfsbase %rax
  movq %rbx, %rdi
  movl %ebp, %esi
  call multigrain_guest_on_gate
  testl %eax, %eax
  jnz multigrain_guest_gate_return
  .globl multigrain_guest_host_done
  .hidden multigrain_guest_host_done
multigrain_guest_host_done:
  cmpl $0, 4(%rbx)
  jne multigrain_guest_gate_return
  movq 16(%rbx), %rax
  wrfsbase %rax
  movl multigrain_guest_components(%rip), %eax
  movl 4+multigrain_guest_components(%rip), %edx
  xrstor64 1088(%rbx)
  pushq 240(%rbx)
  popfq
  movq 104(%rbx), %r8
  movq 112(%rbx), %r9
  movq 120(%rbx), %r10
  movq 168(%rbx), %rdi
  movq 176(%rbx), %rsi
  movq 184(%rbx), %rbp
  movq 200(%rbx), %rdx
  movq 208(%rbx), %rax
  movq 224(%rbx), %rsp
  movq 232(%rbx), %rcx
  movq 240(%rbx), %r11
  movq 192(%rbx), %rbx
  movb $1, %gs:0
  .globl multigrain_guest_host_exit
  .hidden multigrain_guest_host_exit
multigrain_guest_host_exit:
  jmp *%rcx

  .globl multigrain_guest_gate_again
  .hidden multigrain_guest_gate_again
multigrain_guest_gate_again:
  cld
  fninit
  ldmxcsr multigrain_guest_control(%rip)
  movq %gs:40, %rbx
  movq 8(%rbx), %rax
  wrfsbase %rax
multigrain_guest_gate_return:
  movq 32(%rbx), %r15
  leaq 64(%rbx), %r12
  movl $1, %ebp
  jmp multigrain_guest_return
  .size multigrain_guest_gates, . - multigrain_guest_gates

  .section .rodata
  .p2align 2
multigrain_guest_control:
  .long 0x1f80
  .text
)");

extern "C" {
extern char multigrain_guest_gates[];
extern char multigrain_guest_gate_direct[];
extern char multigrain_guest_gate_host[];
extern char multigrain_guest_gate_closed[];
extern char multigrain_guest_gate_to_site[];
extern char multigrain_guest_direct_begin[];
extern char multigrain_guest_direct_instruction[];
extern char multigrain_guest_direct_done[];
extern char multigrain_guest_direct_exit[];
extern char multigrain_guest_direct_not_begun[];
extern char multigrain_guest_host_begin[];
extern char multigrain_guest_host_done[];
extern char multigrain_guest_host_exit[];
extern char multigrain_guest_gate_again[];
// The call gates save and restore these components of the floating-point state, which are those of the kernel's frames.
[[gnu::visibility("hidden")]] uint64_t multigrain_guest_components = 0;
// `why` says what the call gate wants (Why). Returns whether the way back to the guest is that of a signal handler.
[[gnu::visibility("hidden")]] int multigrain_guest_on_gate(ThreadBlock* thread, int why);
}

namespace multigrain::guest {
namespace {

constexpr uint64_t kSyscallBytes = 2;

// A call gate calls multigrain_guest_on_gate() with one of these.
enum Why : int { kCarryOut = 0, kHasResult = 1, kNotBegun = 2 };

uint64_t address(const char* label) {
  return reinterpret_cast<uint64_t>(label);
}

RegisterFormat g_format;

// Gives the thread the signal mask of this context. Returns false if a signal has come before.
bool take_mask(const ucontext_t& context, ThreadBlock& thread) {
  const uint64_t arguments[6] = {
      SIG_SETMASK, reinterpret_cast<uint64_t>(&context.uc_sigmask), 0, sizeof(uint64_t), 0, 0};
  if (pass_call(SYS_rt_sigprocmask, arguments, thread) != 0) return false;
  std::memcpy(&thread.guest_mask, &context.uc_sigmask, sizeof thread.guest_mask);
  return true;
}

}  // namespace

void go_to_site(gregset_t& registers, const CallSite& site) {
  registers[REG_RIP] = static_cast<greg_t>(site.next - kSyscallBytes);
  registers[REG_RAX] = static_cast<greg_t>(site.number);
  if (!site.is_xor) return;
  constexpr greg_t kZero = 0x40, kParity = 0x4, kOthers = 0x891;  // overflow, sign, adjust and carry
  registers[REG_EFL] = (registers[REG_EFL] & ~kOthers) | kZero | kParity;
}

uint64_t direct_gate() {
  return address(multigrain_guest_gate_direct);
}
uint64_t host_gate() {
  return address(multigrain_guest_gate_host);
}
uint64_t closed_gate() {
  return address(multigrain_guest_gate_closed);
}

bool learn_register_format(const ucontext_t& context) {
  const std::optional<RegisterFormat> format = register_format(context);
  if (!format) return false;
  if (g_format.components == 0) {
    g_format = *format;
    multigrain_guest_components = format->components;
  }
  return *format == g_format;
}

bool leave_gate(gregset_t& registers, const CallSite* site) {
  const auto at = static_cast<uint64_t>(registers[REG_RIP]);
  if (site != nullptr) {
    go_to_site(registers, *site);
    return true;
  }
  if (at < address(multigrain_guest_gates) || at > address(multigrain_guest_host_exit)) return false;
  for (const char* const exit :
       {multigrain_guest_gate_to_site, multigrain_guest_direct_exit, multigrain_guest_host_exit}) {
    if (at != address(exit)) continue;
    registers[REG_RIP] = registers[REG_RCX];
    return true;
  }
  // The selector says that the guest runs, so the call gate has changed nothing yet, and rax has the site.
  go_to_site(registers, *reinterpret_cast<const CallSite*>(registers[REG_RAX]));
  return true;
}

void move_if_in_gate(greg_t& instruction) {
  const auto at = static_cast<uint64_t>(instruction);
  const auto is_in = [at](const char* begin, const char* end) { return at >= address(begin) && at < address(end); };
  const auto move = [&instruction](const char* to) { instruction = static_cast<greg_t>(address(to)); };
  if (is_in(multigrain_guest_direct_begin, multigrain_guest_direct_done))
    move(multigrain_guest_direct_not_begun);
  else if (is_in(multigrain_guest_direct_done, multigrain_guest_direct_exit))
    move(multigrain_guest_direct_done);
  else if (is_in(multigrain_guest_host_done, multigrain_guest_host_exit))
    move(multigrain_guest_gate_again);
}

}  // namespace multigrain::guest

int multigrain_guest_on_gate(ThreadBlock* thread, int why) {
  using namespace multigrain::guest;
  const CallSite& site = *thread->site;
  ucontext_t& context = gate_context(*thread, g_format);
  auto& registers = context.uc_mcontext.gregs;
  registers[REG_RIP] = static_cast<greg_t>(site.next);
  registers[REG_RCX] = registers[REG_RIP];
  registers[REG_R11] = registers[REG_EFL];
  std::memcpy(&context.uc_sigmask, &thread->guest_mask, sizeof thread->guest_mask);
  if (why == kHasResult) return 1;
  if (why == kNotBegun) {
    go_to_site(registers, site);
    return 1;
  }
  registers[REG_RAX] = static_cast<greg_t>(site.number);
  carry_out(context, *thread);
  tell_mask(context, *thread);
  if (std::memcmp(&context.uc_sigmask, &thread->guest_mask, sizeof thread->guest_mask) == 0) return 0;
  return thread->pending_signal == 0 && take_mask(context, *thread) ? 0 : 1;
}
