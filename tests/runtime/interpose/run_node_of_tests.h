// The tests' run_node keeps here what it saw before it called the real main().
#pragma once

namespace multigrain {

struct StartSeen {
  int calls = 0;
  int argc = 0;
  char** argv = nullptr;
  char** envp = nullptr;
};
extern StartSeen g_start_seen;

}  // namespace multigrain
