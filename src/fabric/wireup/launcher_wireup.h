// Wire-up over a descriptor that the node inherits from mgrun (or from its agent on another host): one end of a socket
// pair, over which frames travel.
//
//   launcher to node   kWelcome  version, this node, number of nodes          once, before anything else
//   node to launcher   kCard     round, the card                              the node's part of an exchange
//   launcher to node   kCard     round, node, the card                        from each node, its own included
//   node to launcher   kFinish                                                the node sends nothing more
//
// Afterwards the launcher closes its end when the node is to end; the end is closed, too, when the launcher is gone.
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

// Takes over the descriptor, and keeps programs that the node executes from inheriting it. Errors: it is not open, or
// the first frame on it is not a launcher's welcome.
Result<std::unique_ptr<Wireup>> open_launcher_wireup(int fd);

}  // namespace multigrain
