// What a line protocol needs beside the services of every protocol, and what the runtime sees of one.
#pragma once

#include "coherence/hazard_slots.h"
#include "coherence/line_protocol.h"
#include "coherence/protocol.h"
#include "memory/line_table.h"

namespace multigrain {

// Outlives the protocol.
struct LineServices {
  LineTable& table;
  HazardSlots& hazards;
};

// A line protocol of one node. As a Protocol it has the pages whose memory is kept coherent by lines: their only fault
// is the first touch.
class LineMemory : public Protocol, public LineProtocol {};

}  // namespace multigrain
