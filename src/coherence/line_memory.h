// This has the services that a line protocol needs beside those of every protocol, and the interface that the runtime
// sees of it.
#pragma once

#include "coherence/hazard_slots.h"
#include "coherence/line_protocol.h"
#include "coherence/protocol.h"
#include "memory/line_table.h"

namespace multigrain {

// Both outlive the protocol.
struct LineServices {
  LineTable& table;
  HazardSlots& hazards;
};

// This is a line protocol of one node. It is a Protocol for the pages whose memory is kept coherent by lines: the only
// fault on such a page is its first touch.
class LineMemory : public Protocol, public LineProtocol {
 public:
  // Returns whether this protocol keeps the page coherent. Async-signal-safe.
  [[nodiscard]] virtual bool keeps_page(PageId page) = 0;
  // Returns what takes pages over from a page protocol, or nullptr if this protocol cannot do that.
  [[nodiscard]] virtual LineKeeper* keeper() { return nullptr; }
};

}  // namespace multigrain
