// The bootstrap of the nodes of a run over UCX, which is the first thing that they do: through the launcher's wire-up
// they agree on what each must know of all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/wireup/wireup.h"

namespace multigrain {

struct Bootstrap {
  // Meets the other nodes if MULTIGRAIN_WIREUP says how; returns nothing otherwise. Afterwards the environment holds
  // node 0's settings. Called before other threads exist, and before anything is loaded at run time. Errors: the
  // launcher or a node is gone, or the nodes do not agree (the sentence says which one, and on which host).
  static Result<std::optional<Bootstrap>> run();

  // Completes the bootstrap: opens UCX, with the region's `frames` behind kFrames and the line table behind kLines, and
  // connects to all nodes. `lost` is called as UcxOptions::peer_failed says.
  Result<std::unique_ptr<UcxFabric>> connect(const Config& config, std::span<std::byte> frames,
                                             std::span<std::byte> lines,
                                             void (*lost)(void* context, NodeId node, const char* reason),
                                             void* context);

  std::unique_ptr<Wireup> wireup;
  std::vector<std::string> hosts;  // the host of every node
};

}  // namespace multigrain
