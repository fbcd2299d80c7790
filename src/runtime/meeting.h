// The first thing that nodes of a run over UCX do: meet through the launcher's wire-up, and agree.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/wireup/wireup.h"

namespace multigrain {

struct Meeting {
  // Meets the other nodes if MULTIGRAIN_WIREUP says how; nothing otherwise. Afterwards the environment holds node 0's
  // settings. Before other threads exist, and before anything is loaded at run time. Errors: the launcher or a node is
  // gone, the nodes do not agree (which one, and on which host).
  static Result<std::optional<Meeting>> meet();

  // The second half: opens UCX, with the region's `frames` behind kFrames and the line table behind kLines, and
  // connects to everybody. `lost` is called as UcxOptions::peer_failed says.
  Result<std::unique_ptr<UcxFabric>> connect(const Config& config, std::span<std::byte> frames,
                                             std::span<std::byte> lines,
                                             void (*lost)(void* context, NodeId node, const char* reason),
                                             void* context);

  std::unique_ptr<Wireup> wireup;
  std::vector<std::string> hosts;  // of every node
};

}  // namespace multigrain
