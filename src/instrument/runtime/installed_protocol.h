// The line protocol that this process's checks call.
#pragma once

#include "coherence/line_protocol.h"

namespace multigrain {

// nullptr: none, all memory is private or under page protocols.
LineProtocol* line_protocol();
// The words of outstanding() and pending_messages() are asked for once, here, and live as long as the process.
void set_line_protocol(LineProtocol* protocol);

}  // namespace multigrain
