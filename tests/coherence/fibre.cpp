#include "fibre.h"

#include <sched.h>

// A driver that has tried again a few times yields its core. There are no other threads here, and other programs would
// take the core for milliseconds.
extern "C" int sched_yield() noexcept {
  return 0;
}

asm(R"(
  .pushsection .text
  .globl multigrain_switch_stacks
  .type multigrain_switch_stacks, @function
multigrain_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size multigrain_switch_stacks, .-multigrain_switch_stacks
  .popsection
)");

namespace multigrain::exploring_driver {

void Fibre::begin(void (*play)()) {
  if (stack_ == nullptr) stack_ = std::make_unique_for_overwrite<std::byte[]>(kStack);
  // These are the contents of a stack from which `play` is entered by the first switch: six registers and the address
  // to go to.
  auto** const top = reinterpret_cast<void**>(stack_.get() + kStack) - 2;
  top[0] = reinterpret_cast<void*>(play);
  top[1] = nullptr;
  context_ = top - 6;
}

}  // namespace multigrain::exploring_driver
