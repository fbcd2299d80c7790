#include "runtime/program_stacks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/config.h"
#include "memory/layout.h"

namespace multigrain::program_stacks {
namespace {

// Each processor has so much address space. The program's stack ends at half of it, and its thread's at the end.
constexpr uintptr_t kBase = 0x1200'0000'0000;
constexpr uint64_t kSlot = uint64_t{1} << 30;
constexpr uint64_t kMost = uint64_t{256} << 20;
constexpr uint64_t kLeast = uint64_t{8} << 20;
constexpr uint64_t kUnlimited = uint64_t{64} << 20;
constexpr uint64_t kThreadStack = uint64_t{8} << 20;
#if !defined(MULTIGRAIN_UNDER_TSAN)
static_assert(kBase >= layout::kBootHeapBase + layout::kBootHeapSize);
static_assert(kBase + Config::kMaxProcessorsPerNode * kSlot <= layout::kViewBase);
#endif

constinit bool g_exist = false;
constinit mg_function g_stays = nullptr;
uint64_t g_size = 0;

// Where the thread goes on when the program's function returns.
struct Outer {
  uint64_t rsp = 0;
  uint64_t canary = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local Outer t_outer;

uint64_t size_of_stacks() {
  rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::clamp<uint64_t>(limit.rlim_cur / page * page, kLeast, kMost);
}

bool map(uintptr_t begin, uint64_t size) {
  // What lies below was never mapped, and so ends a program whose stack overflows.
  return mmap(reinterpret_cast<void*>(begin), size, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK | MAP_FIXED_NOREPLACE, -1,
              0) == reinterpret_cast<void*>(begin);
}

// A vector of strings such as argv is copied below `top`, its strings first. Returns where the vector is.
char** copy_strings(char** strings, uintptr_t& top) {
  size_t count = 0;
  size_t bytes = 0;
  for (; strings[count] != nullptr; ++count) bytes += std::strlen(strings[count]) + 1;
  auto* to = reinterpret_cast<char*>(top - bytes);
  auto* const vector = reinterpret_cast<char**>((top - bytes - (count + 1) * sizeof(char*)) / 16 * 16);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = std::strlen(strings[i]) + 1;
    std::memcpy(to, strings[i], length);
    vector[i] = to;
    to += length;
  }
  vector[count] = nullptr;
  top = reinterpret_cast<uintptr_t>(vector);
  return vector;
}

}  // namespace

extern "C" {

// Assembler below. Calls function(a, b, c) on the stack that ends at `top`.
[[gnu::visibility("hidden")]] int multigrain_call_on_stack(const void* function, uint64_t a, const void* b,
                                                           const void* c, uintptr_t top, void* outer);
[[gnu::visibility("hidden")]] int multigrain_resume_context(const Context* context, void* outer);

// The base calls this when the program's function has returned: only the thread that is here now knows its own.
[[gnu::used, gnu::visibility("hidden")]] void* multigrain_outer_of_this_thread() {
  return &t_outer;
}
}

// The layouts of Context and Outer are here as numbers. The base is the outermost frame for unwinders.
asm(R"(
  .pushsection .text
  .type multigrain_call_on_stack, @function
  .hidden multigrain_call_on_stack
  .globl multigrain_call_on_stack
multigrain_call_on_stack:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%r9)
  movq %fs:0x28, %rax
  movq %rax, 8(%r9)
  movq %r8, %rsp
  .cfi_def_cfa %rsp, 8
  .cfi_undefined %rip
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  xorl %ebp, %ebp
  callq *%rax
  movq %rax, %rbx
  callq multigrain_outer_of_this_thread
  movq 8(%rax), %rcx
  movq %rcx, %fs:0x28
  movq (%rax), %rsp
  movq %rbx, %rax
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
  .cfi_endproc
  .size multigrain_call_on_stack, .-multigrain_call_on_stack

  .type multigrain_resume_context, @function
  .hidden multigrain_resume_context
  .globl multigrain_resume_context
multigrain_resume_context:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rsi)
  movq %fs:0x28, %rax
  movq %rax, 8(%rsi)
  movq 0(%rdi), %rbx
  movq 8(%rdi), %rbp
  movq 16(%rdi), %r12
  movq 24(%rdi), %r13
  movq 32(%rdi), %r14
  movq 40(%rdi), %r15
  ldmxcsr 72(%rdi)
  fldcw 76(%rdi)
  movq 64(%rdi), %rax
  movq %rax, %fs:0x28
  movq 48(%rdi), %rsp
  movl $1, %eax
  jmpq *56(%rdi)
  .cfi_endproc
  .size multigrain_resume_context, .-multigrain_resume_context

  .type __multigrain_save_context, @function
  .hidden __multigrain_save_context
  .globl __multigrain_save_context
__multigrain_save_context:
  .cfi_startproc
  movq %rbx, 0(%rdi)
  movq %rbp, 8(%rdi)
  movq %r12, 16(%rdi)
  movq %r13, 24(%rdi)
  movq %r14, 32(%rdi)
  movq %r15, 40(%rdi)
  leaq 8(%rsp), %rax
  movq %rax, 48(%rdi)
  movq (%rsp), %rax
  movq %rax, 56(%rdi)
  movq %fs:0x28, %rax
  movq %rax, 64(%rdi)
  stmxcsr 72(%rdi)
  fnstcw 76(%rdi)
  xorl %eax, %eax
  retq
  .cfi_endproc
  .size __multigrain_save_context, .-__multigrain_save_context
  .popsection
)");
static_assert(offsetof(Context, rsp) == 48 && offsetof(Context, rip) == 56 && offsetof(Context, canary) == 64 &&
              offsetof(Context, mxcsr) == 72 && offsetof(Context, x87_control) == 76);

Status create(unsigned processors) {
  MG_CHECK(!g_exist && processors <= Config::kMaxProcessorsPerNode);
  g_size = size_of_stacks();
  for (unsigned place = 0; place < processors; ++place) {
    const Stack of_program = of_processor(place);
    const Stack thread = of_thread(place);
    if (!map(of_program.begin, of_program.end - of_program.begin) || !map(thread.begin, thread.end - thread.begin))
      return fail_errno(errno, "--checkpoint: no stacks can be mapped for the program's processors");
  }
  g_exist = true;
  return {};
}

bool exist() {
  return g_exist;
}

Stack of_processor(unsigned place) {
  const uintptr_t end = kBase + place * kSlot + kSlot / 2;
  return {end - g_size, end};
}

Stack of_thread(unsigned place) {
  const uintptr_t end = kBase + (place + 1) * kSlot;
  return {end - kThreadStack, end};
}

void call(unsigned place, mg_function function, void* argument) {
  if (!g_exist || function == g_stays) {
    function(argument);
    return;
  }
  multigrain_call_on_stack(reinterpret_cast<const void*>(function), reinterpret_cast<uint64_t>(argument), nullptr,
                           nullptr, of_processor(place).end, &t_outer);
}

void stays_on_thread(mg_function function) {
  g_stays = function;
}

int call_main(int (*function)(int, char**, char**), int argc, char** argv, char** envp) {
  if (!g_exist) return function(argc, argv, envp);
  uintptr_t top = of_processor(0).end;
  environ = copy_strings(environ, top);
  argv = copy_strings(argv, top);
  return multigrain_call_on_stack(reinterpret_cast<const void*>(function), static_cast<uint64_t>(argc), argv, environ,
                                  top, &t_outer);
}

int resume(const Context& context) {
  return multigrain_resume_context(&context, &t_outer);
}

uintptr_t thread_block() {
  uintptr_t block;
  asm("movq %%fs:0, %0" : "=r"(block));
  return block;
}

}  // namespace multigrain::program_stacks
