// Gives the program's signal handlers hazards of their own. They run in the middle of other code of their thread, which
// may have hazards published over lines (docs/internals/fine-grain.md). Compiled code in a handler publishes and clears
// hazards as well, be it only for stores to private memory of which the compiler does not know that it is private.
//
// A handler need not return: it may leave by longjmp or an exception. Then the code that it interrupted does not go on,
// and would never clear its hazards: other nodes would wait for them for ever. So the runtime clears them then.
//
// The kernel calls a function of the runtime, which calls the program's handler. sigaction and signal report the
// program's handler back as if it had been installed itself.
#pragma once

#include <csignal>

namespace multigrain {

// From now on `begin` runs before each handler that the program installs by sigaction or signal, on the handler's
// thread, and `end` after it; `end` is told whether the handler has returned, to code that goes on. Nested handlers
// count as part of the outermost one. Both must be async-signal-safe.
void set_handler_hooks(void (*begin)(), void (*end)(bool returned));

// Does what sigaction does for a signal that is not the runtime's, with private arguments. If there are hooks it
// installs the runtime's function in place of a handler of the program's. Async-signal-safe.
int sigaction_of_program(int signo, const struct sigaction* action, struct sigaction* old);

// Returns whether the runtime's function calls the handlers.
bool has_handler_hooks();

// While it exists, a handler of the program's runs.
class HandlerScope {
 public:
  HandlerScope();
  // If the program's handler has not returned(), an exception leaves it.
  ~HandlerScope();
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;
  void returned() { returned_ = true; }

 private:
  bool outermost_ = false;
  bool returned_ = false;
};

}  // namespace multigrain
