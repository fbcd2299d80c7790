// Where threads' stacks are. Other nodes have stacks, too, perhaps at the same addresses, and something else in them.
#pragma once

#include <cstdint>

namespace multigrain {

struct Stack {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  [[nodiscard]] bool contains(uintptr_t address) const { return address - begin < end - begin; }
};

// The calling thread's; of the thread of main() the part that it uses now. Not async-signal-safe.
Stack stack_of_this_thread();

}  // namespace multigrain
