// Where the processes run that the guest's first process forks (mgrun --processes): the home's part of it.
//
// The child that fork() has made at home is complete: it has all memory and descriptors. If a node is chosen for it, it
// sends its memory and its registers there, and becomes the *shadow process* of the process that goes on there
// (placed_process.h, P1 to P3): it makes the calls of that process, gets its signals, and is what parents wait for. What
// cannot be on another node stays at home, which is counted, with its reason.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/node_set.h"
#include "guest/address_space.h"
#include "guest/calls.h"
#include "guest/nodes/process_link.h"
#include "guest/processor_files.h"

namespace multigrain::guest {

class Placement {
 public:
  // Says why a process stays at home.
  enum class Stays : uint8_t {
    kTurn,    // it was the home's turn
    kShares,  // it shares more with its parent than a child of fork() does
    kLimits,  // its address space is limited
    kNoNode,  // the node did not answer
    kVdso,    // these three are the node's answer
    kMemory,
    kThread,
    kCount
  };

  // Makes what all processes of the guest count in. Fails without memory.
  static Result<std::unique_ptr<Placement>> create(unsigned nodes, Processors processors);

  // Says in which ranges the guest can have areas, before it runs.
  void set_ranges(std::vector<Range> ranges) { ranges_ = std::move(ranges); }

  // The node has this placer (placer.h). Any thread may call this.
  void set_placer(NodeId node, uint64_t name) { placers_[node.value].store(name); }
  [[nodiscard]] std::atomic<uint32_t>& forks_without_nodes() const { return counts_->without_nodes; }

  // The child calls begin() while it still has the descriptors of its parent's host, to choose a node and send it the
  // areas. It returns a descriptor that must stay open (use()), or -1 if the child stays at home.
  int begin(const AddressSpace::Account& account, bool can_be_placed, bool is_limited);
  // Says under which number that descriptor is open now; -1: the child stays at home.
  void use(int connection);
  // Sends what is left to the node that begin() has chosen, if it has. Returns if the process stays at home. Otherwise
  // this process is the other one's shadow until that comes home, and goes on in the guest then, or ends.
  void place(Call& call);

  // Returns what the statistics say about processes: one line without its end, or nothing if none was forked.
  [[nodiscard]] std::string describe() const;

 private:
  static constexpr size_t kReasons = static_cast<size_t>(Stays::kCount);
  static constexpr size_t kCallNumbers = 512;
  // This is memory of all processes of the guest.
  struct Counts {
    std::atomic<uint32_t> turn{0};
    std::atomic<uint32_t> placed{0};
    std::atomic<uint32_t> without_nodes{0};
    std::atomic<uint32_t> came_home{0};
    std::array<std::atomic<uint32_t>, kReasons> stayed{};
    std::array<std::atomic<uint32_t>, kCallNumbers> came_home_for{};  // by the number of the call
  };

  Placement(unsigned nodes, Processors processors, Counts* counts)
      : nodes_(nodes), processors_(processors), counts_(counts) {}
  int stay(Stays why);
  void count_return(int64_t call);
  void leave_memory() const;
  [[nodiscard]] bool send_areas(int connection, NodeId node, const AddressSpace::Account& account) const;
  // Sends the rest and returns the socket for signals, or nothing, with the reason in `why`.
  std::optional<FileDescriptor> send_rest(int connection, Call& call, uint64_t mask, Stays& why);

  const unsigned nodes_;
  const Processors processors_;
  std::vector<Range> ranges_;
  Counts* const counts_;
  std::array<std::atomic<uint64_t>, NodeSet::kCapacity> placers_{};
  // These are the child's.
  AddressSpace::Account account_;
  int connection_ = -1;
};

}  // namespace multigrain::guest
