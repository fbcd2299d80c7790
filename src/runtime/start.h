// The runtime takes over a program here: its code runs instead of the program's main().
#pragma once

namespace multigrain {

using MainFunction = int (*)(int argc, char** argv, char** envp);

// Called in place of the program's main(), after all constructors. Node 0 starts the runtime, calls `user_main` and
// returns what it returns; other nodes wait for work and return the exit status when there will be no more. src/runtime
// supplies it.
int run_node(int argc, char** argv, char** envp, MainFunction user_main);

// Called at the very end of exit(), before the destructors of libraries.
void stop_node();

}  // namespace multigrain
