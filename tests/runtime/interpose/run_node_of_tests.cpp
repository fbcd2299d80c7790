#include "run_node_of_tests.h"

#include "runtime/start.h"

namespace multigrain {

StartSeen g_start_seen;

// There is no node behind these programs.
void stop_node() {}

int run_node(int argc, char** argv, char** envp, MainFunction user_main) {
  g_start_seen = {g_start_seen.calls + 1, argc, argv, envp};
  return user_main(argc, argv, envp);
}

}  // namespace multigrain
