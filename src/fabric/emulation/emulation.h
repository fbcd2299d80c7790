// The state of an emulated machine's clocks, links and protocol handlers, which its nodes share. This is how it lies in
// its part of the job memory (fabric/shm/job_memory.h):
//
//   0           Head
//   a page on   a VirtualFabric::NodeState a node
//   then        a virtual_time::ProcessorClock a processor of the machine
//   then        an ordered::Participant a processor and a node's protocol handler
//   then        the words of a Tournament of the participants
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "emulation/ordered_execution.h"
#include "emulation/tournament.h"
#include "fabric/emulation/virtual_fabric.h"
#include "profile/virtual_time.h"

namespace multigrain {

// A view of that memory, all of which is zero at first.
class Emulation {
 public:
  // Returns how long that memory is.
  static constexpr size_t bytes(size_t nodes, size_t processors) {
    return tree_at(nodes, processors) + Tournament::words(nodes + processors) * sizeof(uint32_t);
  }

  // `memory` has at least bytes(nodes, processors) bytes, is aligned to a page, and outlives this object.
  Emulation(std::span<std::byte> memory, size_t nodes, size_t processors)
      : base_(memory.data()), nodes_(nodes), processors_(processors) {
    MG_CHECK(memory.size() >= bytes(nodes, processors), memory.size());
  }

  [[nodiscard]] virtual_time::Shared clocks() const {
    return {.processors = {reinterpret_cast<virtual_time::ProcessorClock*>(base_ + clocks_at(nodes_)), processors_},
            .sleepers = &reinterpret_cast<Head*>(base_)->sleepers,
            .order = {
                .participants = {reinterpret_cast<ordered::Participant*>(base_ + participants_at(nodes_, processors_)),
                                 nodes_ + processors_},
                .tree = {reinterpret_cast<uint32_t*>(base_ + tree_at(nodes_, processors_)),
                         Tournament::words(nodes_ + processors_)},
                .turn = &reinterpret_cast<Head*>(base_)->turn}};
  }
  [[nodiscard]] std::span<VirtualFabric::NodeState> nodes() const {
    return {reinterpret_cast<VirtualFabric::NodeState*>(base_ + kNodesAt), nodes_};
  }

 private:
  struct Head {
    std::atomic<uint32_t> sleepers;
    ordered::Turn turn;
  };
  static constexpr size_t kNodesAt = 4096;
  static_assert(sizeof(Head) <= kNodesAt &&
                sizeof(VirtualFabric::NodeState) % alignof(virtual_time::ProcessorClock) == 0);
  static constexpr size_t clocks_at(size_t nodes) { return kNodesAt + nodes * sizeof(VirtualFabric::NodeState); }
  static constexpr size_t participants_at(size_t nodes, size_t processors) {
    return clocks_at(nodes) + processors * sizeof(virtual_time::ProcessorClock);
  }
  static constexpr size_t tree_at(size_t nodes, size_t processors) {
    return participants_at(nodes, processors) + (nodes + processors) * sizeof(ordered::Participant);
  }

  std::byte* base_;
  size_t nodes_, processors_;
};

}  // namespace multigrain
