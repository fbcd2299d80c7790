// Says where threads' stacks are, because a pointer into a stack is no use to another node: other nodes have stacks,
// too, perhaps at the same addresses, with something else in them.
#pragma once

#include <cstdint>

namespace multigrain {

struct Stack {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  [[nodiscard]] bool contains(uintptr_t address) const { return address - begin < end - begin; }
};

// Returns the calling thread's stack; of the stack of main()'s thread, the part that it uses now. Not
// async-signal-safe.
Stack stack_of_this_thread();

}  // namespace multigrain
