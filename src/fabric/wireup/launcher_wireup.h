// Wire-up over a descriptor that the node inherits from mgrun (or from its agent on another host): one end of a socket
// pair, over which frames travel.
//
//   launcher to node   kWelcome  version, this node, number of nodes          once, before anything else
//   node to launcher   kCard     round, the card                              its part of an exchange
//   launcher to node   kCard     round, node, the card                        from each node, its own included
//   node to launcher   kFinish                                                nothing more comes from this node
//
// Afterwards the launcher closes its end when the node is to end; it also closes when the launcher is gone.
#pragma once

#include <memory>

#include "fabric/wireup/wireup.h"

namespace multigrain {

namespace wireup_frame {
inline constexpr uint64_t kVersion = 1;
inline constexpr uint8_t kWelcome = 1;
inline constexpr uint8_t kCard = 2;
inline constexpr uint8_t kFinish = 3;
}  // namespace wireup_frame

// Takes over the descriptor, which no program that the node executes will inherit. Errors: it is not open, or what
// comes from it is not a launcher's welcome.
Result<std::unique_ptr<Wireup>> open_launcher_wireup(int fd);

}  // namespace multigrain
