// Makes the protocols of a run, so that the runtime need not know their classes. base/protocols.h says which there are.
#pragma once

#include <memory>
#include <string>

#include "base/protocols.h"
#include "coherence/line_memory.h"
#include "coherence/mgs/mappings.h"
#include "coherence/placement/observer.h"
#include "coherence/protocol.h"

namespace multigrain {

struct ProtocolOptions {
  unsigned prefetch = 0;  // pages to bring ahead of a processor, at most
  bool mgs_reads_one_sided = false;
  mgs::Mappings* mgs_mappings = nullptr;  // of nodes whose programs translate their accesses
  unsigned mgs_domains = 1;
  HlrcOptions hlrc;
  std::string policy;                       // of placement
  placement::Observer* observer = nullptr;  // of placement; it outlives the protocol
};

// Makes a page protocol, and registers its message handlers, if it has any. Errors: a line protocol; tables that cannot
// be reserved.
Result<std::unique_ptr<Protocol>> create_page_protocol(const ProtocolTraits& protocol, const NodeServices& services,
                                                       const ProtocolOptions& options);

// Makes a line protocol, and registers its message handlers, if it has any. `prefetch` is how many pages may be made ready
// ahead of a thread that touches one after the other for the first time. Errors: a page protocol; tables that cannot
// be reserved; more nodes than the protocol can have.
Result<std::unique_ptr<LineMemory>> create_line_protocol(const ProtocolTraits& protocol, const NodeServices& services,
                                                         const LineServices& lines, MemoryModel model,
                                                         unsigned prefetch);

// Returns the name of a message of any protocol, for reports; nullptr for other types.
const char* protocol_message_name(MessageType type);

}  // namespace multigrain
