// Compiled access checks use this interface when they miss (docs/internals/fine-grain.md). The runtime of
// src/instrument calls it; src/coherence/dszoom and src/coherence/shasta implement it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace multigrain {

class LineProtocol {
 public:
  virtual ~LineProtocol() = default;

  // All functions are called from ordinary code, by any thread of the node that has no hazard published, for addresses
  // in the view. They may wait for other nodes.

  // Copies [address, address + out.size()), which lies in one line, as it is at a moment at which the line is valid
  // here. Brings the line if it is not valid.
  virtual void load(uintptr_t address, std::span<std::byte> out) = 0;
  // Makes the line at `address` exclusive here, and publishes the caller's hazard 0 over it, for stores.
  virtual void begin_store(uintptr_t address) = 0;
  // Makes the lines of [begin, end) valid here, or exclusive. Another node may have taken them away again when this
  // returns.
  virtual void fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) = 0;

  // Returns whether the memory at the address is kept coherent by lines. Memory of a page protocol is not: faults find
  // accesses to it that need something, not checks.
  [[nodiscard]] virtual bool keeps(uintptr_t address) {
    static_cast<void>(address);
    return true;
  }

  // The program hands memory that is not kept coherent by lines to a function that has no checks. That function may keep the
  // address for later.
  virtual void is_handed_out(uintptr_t address) { static_cast<void>(address); }

  // Takes a plain store of `value`, which is 1 to 16 bytes in one line, whose check failed. Returns true if the
  // protocol will make the store when the line has come, and the caller goes on ([Shasta], section 2.1: non-blocking
  // stores). Returns false if the caller must make the store; then this has done what begin_store() does.
  virtual bool store(uintptr_t address, std::span<const std::byte> value) {
    static_cast<void>(value);
    begin_store(address);
    return false;
  }

  // If the program's signal handlers have atomics or loops, they call fence() and poll() as well. The thread may have
  // been interrupted inside the runtime then, with locks held: an implementation finds that out, and does nothing.

  // Waits until all nodes see every store that this thread has made or has seen. Called before an atomic or a fence of
  // release order, before every sequentially consistent one, and before calls that let another thread go on.
  virtual void fence() {}
  // Returns the address of a word of the protocol that is 0 while fence() has nothing to wait for in any thread of the
  // node. Compiled code reads the word, and calls fence() only if it is not 0. nullptr: fence() never has anything to
  // wait for.
  [[nodiscard]] virtual const std::atomic<uint64_t>* outstanding() const { return nullptr; }

  // Handles the messages that have arrived, without waiting for any. Called where the program polls: at the ends of
  // loops, and when a check has failed.
  virtual void poll() {}
  // Returns the address of a word that is 0 while poll() has nothing to do (Fabric::pending_messages). nullptr: poll()
  // never has anything to do, or another thread handles the messages.
  [[nodiscard]] virtual const std::atomic<uint64_t>* pending_messages() const { return nullptr; }

  // Returns the node's rights epoch (checked_memory.h), by which checks use cached rights. nullptr: rights are never
  // revoked.
  [[nodiscard]] virtual std::atomic<uint64_t>* rights_epoch() { return nullptr; }

  // Returns a word that has another value each time that a requester has begun to wait for a hazard of this node. A thread
  // that has its loop hazard published for long clears it when it finds the word changed. nullptr: requesters do not say
  // so.
  [[nodiscard]] virtual const std::atomic<uint64_t>* hazard_waits() { return nullptr; }

  // This is a hint that the caller will load from the line and then store there by a compare-and-swap, perhaps again
  // and again. It is called once, before the first of them ([Shasta], section 3.1.2). It may wait, or ask for the line
  // and return.
  virtual void prefetch_exclusive(uintptr_t address) { static_cast<void>(address); }

  // The caller waits in a loop for a store of another processor, by loads that hit. A protocol whose processors must
  // look for messages now and then can do that here.
  virtual void spin() {}
};

}  // namespace multigrain
