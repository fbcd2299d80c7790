// Has the instructions of plain programs refer to remote pages (coherence/remote_memory.h): an instruction that faults on one is executed
// by the fault handler.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/ids.h"
#include "coherence/placement/instructions/execute.h"
#include "coherence/remote_memory.h"
#include "memory/region.h"

namespace multigrain::placement {

class InstructionReferences final : Operands {
 public:
  // Both outlive this object. Errors: those of Executor::create().
  static Result<InstructionReferences> create(const Region& region, RemoteMemory& memory, DecodeInstruction decode);

  // A thread has faulted on the page. If the page is remote, executes the instruction, and returns whether every operand that it has is
  // allocated; it ends the run if the instruction cannot be executed elsewhere. If the page is not remote, does nothing and returns true
  // with `was_remote` false. Called in the fault handler.
  bool serve(PageId page, ucontext_t& context, bool& was_remote);

 private:
  InstructionReferences(const Region& region, RemoteMemory& memory, Executor executor)
      : region_(&region), memory_(&memory), executor_(std::move(executor)) {}

  [[nodiscard]] bool load(uint64_t address, std::span<std::byte> out) override;
  [[nodiscard]] bool store(uint64_t address, std::span<const std::byte> bytes) override;
  [[nodiscard]] bool compare_and_swap(uint64_t address, uint64_t& expected, uint64_t desired) override;

  const Region* region_;
  RemoteMemory* memory_;
  Executor executor_;
};

}  // namespace multigrain::placement
