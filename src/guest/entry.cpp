#include "guest/entry.h"

#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "guest/gates.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif
#ifndef HWCAP2_FSGSBASE
#define HWCAP2_FSGSBASE (1 << 1)
#endif

static_assert(offsetof(multigrain::guest::ThreadBlock, selector) == 0);
static_assert(offsetof(multigrain::guest::ThreadBlock, pending_signal) == 4);
static_assert(offsetof(multigrain::guest::ThreadBlock, host_fs) == 8);
static_assert(offsetof(multigrain::guest::ThreadBlock, guest_fs) == 16);
static_assert(offsetof(multigrain::guest::ThreadBlock, host_stack) == 24);
static_assert(offsetof(multigrain::guest::ThreadBlock, stack_top) == 32);
static_assert(offsetof(multigrain::guest::ThreadBlock, guest_mask) == 56);
static_assert(offsetof(ucontext_t, uc_sigmask) == 296);
static_assert(multigrain::guest::kBlockSize == 262144);

// While a handler runs, these registers keep their values over the C++ code that it calls: rbx has the block, r12 the
// ucontext, r13 the selector and r14 the thread pointer of the interrupted code, and r15 the stack. ebp says whether
// the handler returns to the guest.
//
// The handler needs no push and no epilogue of a compiler, because rt_sigreturn restores every register.
asm(R"(
  .text
  .p2align 4
  .globl multigrain_guest_allowed
  .hidden multigrain_guest_allowed
multigrain_guest_allowed:
  .globl multigrain_guest_handler
  .hidden multigrain_guest_handler
  .type multigrain_guest_handler, @function
multigrain_guest_handler:
  movq %rsp, %rbx
  andq $-262144, %rbx
  movq %rdx, %r12
  movzbl 0(%rbx), %r13d
  movb $0, 0(%rbx)
  rdfsbase %r14
  movq 8(%rbx), %rax
  wrfsbase %rax
  movq %rsp, %r15
  andq $-16, %rsp
  movq %rbx, %rcx
  movq %r14, %r8
  movl %r13d, %r9d
  call multigrain_guest_on_signal
  movl %eax, %ebp

  .globl multigrain_guest_return
  .hidden multigrain_guest_return
multigrain_guest_return:
  testl %ebp, %ebp
  jz 1f
  cmpl $0, 4(%rbx)
  jne multigrain_guest_return_again
  movq 296(%r12), %rax
  movq %rax, 56(%rbx)
  movb $1, 0(%rbx)
  movq 16(%rbx), %rax
  jmp 2f
1:
  movb %r13b, 0(%rbx)
  movq %r14, %rax
2:
  wrfsbase %rax
  movq %r12, %rsp
  movl $15, %eax
  syscall
  .globl multigrain_guest_return_end
  .hidden multigrain_guest_return_end
multigrain_guest_return_end:
  ud2

  .globl multigrain_guest_return_again
  .hidden multigrain_guest_return_again
multigrain_guest_return_again:
  movb $0, 0(%rbx)
  movq 8(%rbx), %rax
  wrfsbase %rax
  movq %r15, %rsp
  andq $-16, %rsp
  movq %r12, %rdi
  movq %rbx, %rsi
  call multigrain_guest_deliver_pending
  jmp multigrain_guest_return

  .globl multigrain_guest_restorer
  .hidden multigrain_guest_restorer
multigrain_guest_restorer:
  movl $15, %eax
  syscall
  .globl multigrain_guest_allowed_end
  .hidden multigrain_guest_allowed_end
multigrain_guest_allowed_end:
  ud2
  .size multigrain_guest_handler, . - multigrain_guest_handler

  .p2align 4
  .globl multigrain_guest_enter
  .hidden multigrain_guest_enter
  .type multigrain_guest_enter, @function
multigrain_guest_enter:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, 24(%rdi)
  movq %rdi, %rbx
  movq %rsi, %r12
  movl $1, %ebp
  movq 32(%rdi), %r15
  jmp multigrain_guest_return
  .size multigrain_guest_enter, . - multigrain_guest_enter

  .p2align 4
  .globl multigrain_guest_leave
  .hidden multigrain_guest_leave
  .type multigrain_guest_leave, @function
multigrain_guest_leave:
  movq 24(%rdi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size multigrain_guest_leave, . - multigrain_guest_leave

  .p2align 4
  .globl multigrain_guest_call
  .hidden multigrain_guest_call
  .type multigrain_guest_call, @function
multigrain_guest_call:
  movq %rdi, %rax
  movq %rdx, %rcx
  movq 0(%rsi), %rdi
  movq 16(%rsi), %rdx
  movq 24(%rsi), %r10
  movq 32(%rsi), %r8
  movq 40(%rsi), %r9
  movq 8(%rsi), %rsi
  .globl multigrain_guest_call_begin
  .hidden multigrain_guest_call_begin
multigrain_guest_call_begin:
  cmpl $0, 4(%rcx)
  jne multigrain_guest_call_not_begun
  .globl multigrain_guest_call_instruction
  .hidden multigrain_guest_call_instruction
multigrain_guest_call_instruction:
  syscall
  ret
  .globl multigrain_guest_call_not_begun
  .hidden multigrain_guest_call_not_begun
multigrain_guest_call_not_begun:
  movq $-512, %rax
  ret
  .size multigrain_guest_call, . - multigrain_guest_call

  .p2align 4
  .globl multigrain_guest_copy
  .hidden multigrain_guest_copy
  .type multigrain_guest_copy, @function
multigrain_guest_copy:
  movq %rdx, %rcx
  xorl %eax, %eax
  .globl multigrain_guest_copy_instruction
  .hidden multigrain_guest_copy_instruction
multigrain_guest_copy_instruction:
  rep movsb
  ret
  .globl multigrain_guest_copy_failed
  .hidden multigrain_guest_copy_failed
multigrain_guest_copy_failed:
  movl $1, %eax
  ret
  .size multigrain_guest_copy, . - multigrain_guest_copy

  .p2align 4
  .globl multigrain_guest_load
  .hidden multigrain_guest_load
  .type multigrain_guest_load, @function
multigrain_guest_load:
  .globl multigrain_guest_load_instruction
  .hidden multigrain_guest_load_instruction
multigrain_guest_load_instruction:
  movl (%rdi), %ecx
  movl %ecx, (%rsi)
  xorl %eax, %eax
  ret
  .size multigrain_guest_load, . - multigrain_guest_load

  .p2align 4
  .globl multigrain_guest_exchange
  .hidden multigrain_guest_exchange
  .type multigrain_guest_exchange, @function
multigrain_guest_exchange:
  movl (%rsi), %eax
  .globl multigrain_guest_exchange_instruction
  .hidden multigrain_guest_exchange_instruction
multigrain_guest_exchange_instruction:
  lock cmpxchgl %edx, (%rdi)
  movl %eax, (%rsi)
  sete %al
  movzbl %al, %eax
  xorl $1, %eax
  addl %eax, %eax
  ret
  .size multigrain_guest_exchange, . - multigrain_guest_exchange
)");

extern "C" {
extern char multigrain_guest_allowed[];
extern char multigrain_guest_allowed_end[];
extern char multigrain_guest_handler[];
extern char multigrain_guest_restorer[];
extern char multigrain_guest_return[];
extern char multigrain_guest_return_end[];
extern char multigrain_guest_return_again[];
extern char multigrain_guest_call_begin[];
extern char multigrain_guest_call_instruction[];
extern char multigrain_guest_call_not_begun[];
extern char multigrain_guest_copy_instruction[];
extern char multigrain_guest_copy_failed[];
extern char multigrain_guest_load_instruction[];
extern char multigrain_guest_exchange_instruction[];
void multigrain_guest_enter(multigrain::guest::ThreadBlock* block, ucontext_t* context);
[[noreturn]] void multigrain_guest_leave(multigrain::guest::ThreadBlock* block);
long multigrain_guest_call(long number, const uint64_t* arguments, multigrain::guest::ThreadBlock* block);
// These return 0, or 1 for a fault.
int multigrain_guest_copy(void* to, const void* from, size_t bytes);
int multigrain_guest_load(const void* address, uint32_t* value);
// Returns 0; 1 for a fault; 2 if the word was not *before, where the word is stored then.
int multigrain_guest_exchange(void* address, uint32_t* before, uint32_t after);
}

namespace multigrain::guest {
namespace {

greg_t address(const char* label) {
  return static_cast<greg_t>(reinterpret_cast<uintptr_t>(label));
}

}  // namespace

Status check_machine() {
  if ((getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE) == 0)
    return fail(
        "this machine cannot host a program: its processor or kernel (older than 5.9) has no instructions for the "
        "thread pointer (fsgsbase)");
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0) != 0)
    return fail_errno(
        errno,
        "this machine cannot host a program: its kernel (older than 5.11) or its container has no Syscall "
        "User Dispatch");
  return {};
}

Status resume_dispatch(ThreadBlock& block) {
  const auto length = static_cast<unsigned long>(multigrain_guest_allowed_end - multigrain_guest_allowed);
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, multigrain_guest_allowed, length, &block.selector) != 0)
    return fail_errno(errno, "cannot have the guest's system calls dispatched");
  return {};
}

void point_gs(ThreadBlock& block) {
  block.gs_is_guests = false;
  asm volatile("wrgsbase %0" : : "r"(&block));
}

Status prepare_thread(ThreadBlock& block) {
  asm volatile("rdfsbase %0" : "=r"(block.host_fs));
  if (!block.gs_is_guests) point_gs(block);
  const stack_t stack = block.stack();
  if (sigaltstack(&stack, nullptr) != 0) return fail_errno(errno, "cannot set the stack of a guest's signal handlers");
  return resume_dispatch(block);
}

void retire_thread() {
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  sigaltstack(&none, nullptr);
}

void enter_guest(ThreadBlock& block, ucontext_t& context) {
  multigrain_guest_enter(&block, &context);
}

void leave_guest(ThreadBlock& block) {
  multigrain_guest_leave(&block);
}

long pass_call(long number, const uint64_t arguments[6], ThreadBlock& block) {
  return multigrain_guest_call(number, arguments, &block);
}

bool copy_guarded(void* to, const void* from, size_t bytes) {
  return multigrain_guest_copy(to, from, bytes) == 0;
}

bool load_guarded(const void* address, uint32_t& value) {
  return multigrain_guest_load(address, &value) == 0;
}

Exchange exchange_guarded(void* address, uint32_t& before, uint32_t after) {
  return static_cast<Exchange>(multigrain_guest_exchange(address, &before, after));
}

void* handler_address() {
  return multigrain_guest_handler;
}
void* restorer_address() {
  return multigrain_guest_restorer;
}

bool move_if_copying(greg_t& instruction) {
  if (instruction != address(multigrain_guest_copy_instruction) &&
      instruction != address(multigrain_guest_load_instruction) &&
      instruction != address(multigrain_guest_exchange_instruction))
    return false;
  instruction = address(multigrain_guest_copy_failed);
  return true;
}

void move_if_restartable(greg_t& instruction) {
  if (instruction >= address(multigrain_guest_return) && instruction < address(multigrain_guest_return_end))
    instruction = address(multigrain_guest_return_again);
  else if (instruction >= address(multigrain_guest_call_begin) &&
           instruction <= address(multigrain_guest_call_instruction))
    instruction = address(multigrain_guest_call_not_begun);
  else
    move_if_in_gate(instruction);
}

}  // namespace multigrain::guest
