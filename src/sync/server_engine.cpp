#include "sync/server_engine.h"

#include "base/error.h"

namespace multigrain {

void ServerState::unknown_call() {
  panic("a synchronisation call of an unknown kind");
}

}  // namespace multigrain
