// What compiled access checks ask of a line protocol (docs/fine-grain.md). The runtime of src/instrument calls it;
// src/coherence/dszoom implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace multigrain {

class LineProtocol {
 public:
  virtual ~LineProtocol() = default;

  // All are called from ordinary code of any thread of the node, with no window of the thread open, for addresses in
  // the view. They may wait for other nodes.

  // Copies [address, address + out.size()), which lies in one line, as it is at one moment at which the line is valid
  // here; brings the line if it is not.
  virtual void load(uintptr_t address, std::span<std::byte> out) = 0;
  // Makes the line at `address` exclusive here, and opens the caller's window 0 over it, for stores.
  virtual void open_store(uintptr_t address) = 0;
  // Makes the lines of [begin, end) valid here, or exclusive. They may have been taken away again when it returns.
  virtual void bring(uintptr_t begin, uintptr_t end, bool to_store) = 0;
};

// The protocol that this process's checks call; nullptr: none, all memory is private or under page protocols.
LineProtocol* line_protocol();
void set_line_protocol(LineProtocol* protocol);

}  // namespace multigrain
