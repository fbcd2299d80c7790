// Makes the protocol that a run asks for by name. The names are in base/config.h, which checks them.
#pragma once

#include <memory>
#include <string_view>

#include "base/config.h"
#include "coherence/line_memory.h"
#include "coherence/protocol.h"

namespace multigrain {

struct ProtocolOptions {
  unsigned prefetch = 0;  // pages to bring ahead of a processor that goes through memory, at most
  HlrcOptions hlrc;
};

// A page protocol. Registers what handlers it has. Errors: a name that is none; tables that cannot be reserved.
Result<std::unique_ptr<Protocol>> create_protocol(std::string_view name, const NodeServices& services,
                                                  const ProtocolOptions& options);

// A line protocol. Registers what handlers it has. Errors: as above; more nodes than it can have.
Result<std::unique_ptr<LineMemory>> create_line_protocol(std::string_view name, const NodeServices& services,
                                                         const LineServices& lines, MemoryModel model);

// Whether nothing of the protocol runs on a node because another node wants something: then locks are of that kind, too.
bool works_without_handlers(std::string_view name);

// The name of a message of any protocol, for reports; nullptr for other types.
const char* protocol_message_name(MessageType type);

}  // namespace multigrain
