// The checks of a process call one line protocol. The runtime installs it here when it starts.
#pragma once

#include "coherence/line_protocol.h"
#include "coherence/remote_memory.h"
#include "coherence/translated_memory.h"

namespace multigrain {

// Returns nullptr if there is no line protocol, so that all memory is private or under page protocols.
LineProtocol* line_protocol();
// Installs the protocol. This asks the protocol once for the words of outstanding(), pending_messages() and
// rights_epoch(), which must live as long as the process.
void set_line_protocol(LineProtocol* protocol);

// The runtime installs it when it starts, if the program translates its accesses. nullptr: it does not.
TranslatedMemory* translated_memory();
void set_translated_memory(TranslatedMemory* memory);

// The runtime installs it when it starts, if pages may be in other nodes' memory. nullptr: they may not. `page_shift` is that of the
// region, whose base is MG_FINE_VIEW_BASE.
RemoteMemory* remote_memory();
void set_remote_memory(RemoteMemory* memory, unsigned page_shift);

}  // namespace multigrain
