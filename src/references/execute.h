// Executes an instruction for a thread that a fault has stopped in front of it, because the memory that it refers to is another
// node's (docs/internals/placement.md, "References by trap").
//
// That takes Zydis, to decode the instruction, which most runs do without. So the code is a module (fabric/module.h).
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace multigrain::references {

// The memory that the instruction refers to, by the thread's addresses. Loads and stores take effect at once, and are complete
// when these return.
class Memory {
 public:
  // Each aligned word of 64 bits, or the part of it that is asked for, is read as one.
  virtual void load(uint64_t address, std::span<std::byte> out) = 0;
  // Each aligned word of 64 bits, or the part of it that is given, is written as one, and nothing beside it.
  virtual void store(uint64_t address, std::span<const std::byte> bytes) = 0;
  // Replaces bytes that lie in one aligned word of 64 bits by as many others, if they are what is expected. Otherwise puts what
  // they are into `expected`, and returns false.
  virtual bool compare_and_swap(uint64_t address, std::span<std::byte> expected,
                                std::span<const std::byte> desired) = 0;

 protected:
  ~Memory() = default;
};

// The bytes [begin, end) of the thread's address space.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Executes the instruction at which `context` stands, and leaves there what the thread's registers are behind it. Returns false, with
// nothing changed, if it cannot: it does not know the instruction, or the instruction refers to memory outside `within`, to two places,
// or to bytes of two words that it has to change as one. `within` is the page whose access raised the fault.
// Async-signal-safe; allocates nothing. The instruction itself must not be in memory whose access raises faults.
using Execute = bool (*)(ucontext_t& context, Range within, Memory& memory);

inline constexpr const char* kModuleName = "references";
inline constexpr const char* kModuleSymbol = "multigrain_references_module";

}  // namespace multigrain::references

// Returns the function of the module.
extern "C" multigrain::references::Execute multigrain_references_module();
