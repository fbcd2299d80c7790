// What compiled access checks ask of a line protocol (docs/internals/fine-grain.md). The runtime of src/instrument
// calls it; src/coherence/dszoom implements it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace multigrain {

class LineProtocol {
 public:
  virtual ~LineProtocol() = default;

  // All are called from ordinary code of any thread of the node, which has no hazard published, for addresses in the view.
  // They may wait for other nodes.

  // Copies [address, address + out.size()), which lies in one line, as it is at one moment at which the line is valid
  // here; brings the line if it is not.
  virtual void load(uintptr_t address, std::span<std::byte> out) = 0;
  // Makes the line at `address` exclusive here, and publishes the caller's hazard 0 over it, for stores.
  virtual void begin_store(uintptr_t address) = 0;
  // Makes the lines of [begin, end) valid here, or exclusive. They may have been taken away again when it returns.
  virtual void fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) = 0;

  // Whether the memory at the address is kept coherent by lines. Memory of a page protocol is not: accesses that are not
  // checked find it by faults.
  [[nodiscard]] virtual bool keeps(uintptr_t address) {
    static_cast<void>(address);
    return true;
  }

  // A plain store of `value`, which is 1 to 16 bytes in one line, whose check failed. True: it is taken, the caller
  // goes on, and the protocol makes it when the line has come ([Shasta], section 2.1: non-blocking stores). False: as
  // begin_store(), and the caller stores.
  virtual bool store(uintptr_t address, std::span<const std::byte> value) {
    static_cast<void>(value);
    begin_store(address);
    return false;
  }

  // fence() and poll() are called by the program's signal handlers as well, if they have atomics or loops. Then the
  // thread may have been interrupted inside the runtime, with locks held: an implementation finds out, and does
  // nothing.

  // Waits until all nodes see every store that this thread has made, or has seen. Before an atomic or a fence of
  // release order, before every sequentially consistent one, and before calls that let another thread go on.
  virtual void fence() {}
  // A word of the protocol's that is 0 while fence() has nothing to wait for, for no thread of the node. nullptr: it
  // never has. Compiled code looks at the word, and calls only if it is not 0.
  [[nodiscard]] virtual const std::atomic<uint64_t>* outstanding() const { return nullptr; }

  // Handles what messages there are, without waiting for any. Where the program polls: at loops' ends, and when a check
  // has failed.
  virtual void poll() {}
  // A word that is 0 while poll() has nothing to do (Fabric::pending_messages). nullptr: it never has, or other threads
  // see to it.
  [[nodiscard]] virtual const std::atomic<uint64_t>* pending_messages() const { return nullptr; }

  // The node's rights epoch (checked_memory.h), by which checks use cached rights. nullptr: rights are never revoked.
  [[nodiscard]] virtual std::atomic<uint64_t>* rights_epoch() { return nullptr; }

  // A hint: the caller will load from the line, and then store there by a compare-and-swap, perhaps again and again;
  // this is called once, before ([Shasta], section 3.1.2). It may wait, or ask for the line and return.
  virtual void prefetch_exclusive(uintptr_t address) { static_cast<void>(address); }

  // The caller waits in a loop for a store of another processor, by loads that hit: a protocol that needs processors to
  // look after it now and then has a chance.
  virtual void spin() {}
};

}  // namespace multigrain
