// Makes the protocols of a run. Which there are is in base/protocols.h.
#pragma once

#include <memory>

#include "base/protocols.h"
#include "coherence/line_memory.h"
#include "coherence/protocol.h"

namespace multigrain {

struct ProtocolOptions {
  unsigned prefetch = 0;  // pages to bring ahead of a processor that goes through memory, at most
  HlrcOptions hlrc;
};

// Registers what handlers the protocol has. Errors: a protocol of lines; tables that cannot be reserved.
Result<std::unique_ptr<Protocol>> create_page_protocol(const ProtocolTraits& protocol, const NodeServices& services,
                                                       const ProtocolOptions& options);

// Registers what handlers the protocol has. Errors: a protocol of pages; as above; more nodes than it can have.
Result<std::unique_ptr<LineMemory>> create_line_protocol(const ProtocolTraits& protocol, const NodeServices& services,
                                                         const LineServices& lines, MemoryModel model);

// The name of a message of any protocol, for reports; nullptr for other types.
const char* protocol_message_name(MessageType type);

}  // namespace multigrain
