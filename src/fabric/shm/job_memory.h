// The job memory: one memfd that every node of a run on this machine inherits and maps.
//
// It holds everything that nodes share except their frames: which processes take part, each node's doorbell, the word
// segments that remote atomics work on, and one ring of messages for each ordered pair of nodes. It has no name in a
// file system and vanishes with the last process that holds it. All of it is sparse: what is not touched costs no
// memory.
//
//   offset                contents
//   0                     JobHeader
//   doorbells_offset      a Doorbell (three cache lines) a node
//   heads_offset          a RingHead (one cache line) an ordered pair, [source][destination]
//   words_offset          the kWords segment of each node, words_bytes each
//   rings_offset          the data of each ring, ring_bytes each, [source][destination]
//   emulation_offset      the clocks and links of an emulated machine (fabric/emulation/emulation.h), emulation_bytes
//   lines_offset          the kLines segment of each node, lines_bytes each: they need far more address space than a
//                         process has to spare, so they are not part of the mapping (tables_fd())
//   pages_offset          the kPages segment of each node, pages_bytes each, which are not part of it, either
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/ids.h"
#include "base/node_set.h"
#include "fabric/shm/doorbell.h"
#include "fabric/words.h"

namespace multigrain {

// The properties of a job, which the launcher decides.
struct JobOptions {
  unsigned nodes = 1;
  unsigned processors_per_node = 1;
  size_t page_size = 4096;                    // bytes
  uint64_t region_size = uint64_t{16} << 40;  // bytes
  size_t ring_bytes = size_t{256} << 10;      // a power of two, at least 256 KiB and at most 1 GiB
};

struct JobHeader {
  static constexpr uint64_t kMagic = 0x31626f6a676d2e5a;
  static constexpr uint32_t kVersion = 6;

  uint64_t magic;
  uint32_t version;
  uint32_t nodes;
  uint32_t processors_per_node;
  uint32_t page_size;
  uint64_t region_size;
  uint64_t words_bytes;  // words::kBytes of the mgrun that created it
  uint64_t ring_bytes;
  uint64_t doorbells_offset;
  uint64_t heads_offset;
  uint64_t words_offset;
  uint64_t rings_offset;
  uint64_t emulation_offset;
  uint64_t emulation_bytes;
  uint64_t lines_offset;
  uint64_t lines_bytes;
  uint64_t pages_offset;
  uint64_t pages_bytes;
  uint64_t total_bytes;

  // 0 while all is well, or 1 + the number of the node that ended before its time. abort_job() sets it.
  alignas(64) std::atomic<uint32_t> aborted;

  struct alignas(64) NodeSlot {
    std::atomic<uint32_t> pid;    // the node's process; 0 before it attached
    std::atomic<uint32_t> ready;  // for start-up: counts the phases that the node has reached
  };
  NodeSlot node[NodeSet::kCapacity];
};

// Says how far the consumer of a ring has got. The producer reads it only when the ring seems to have no room, so that
// the cache line stays with the consumer.
struct alignas(64) RingHead {
  std::atomic<uint64_t> position;
};

// Creates the job memory and fills in its header. Returns its descriptor, which is inherited across exec and belongs to
// the caller. Errors: options out of range; no descriptor or no memory.
Result<int> create_job_memory(const JobOptions& options);

// A mapping of the job memory. It can be moved, and unmaps the memory when it ends, unless it is borrowed.
class JobMemory {
 public:
  // Maps the job memory behind `fd` (which may be closed afterwards) and checks it: magic, version, layout, size.
  static Result<JobMemory> map(int fd);

  JobMemory(JobMemory&& other) noexcept;
  JobMemory& operator=(JobMemory&& other) noexcept;
  ~JobMemory();

  // Returns the same mapping without the duty to unmap it; this object must outlive the returned one.
  [[nodiscard]] JobMemory borrow() const { return {base_, bytes_, tables_fd_, false}; }

  [[nodiscard]] JobHeader& header() const { return *reinterpret_cast<JobHeader*>(base_); }
  [[nodiscard]] Doorbell& doorbell(NodeId node) const {
    return reinterpret_cast<Doorbell*>(base_ + header().doorbells_offset)[node.value];
  }
  [[nodiscard]] RingHead& ring_head(NodeId source, NodeId destination) const {
    return reinterpret_cast<RingHead*>(base_ + header().heads_offset)[ring_index(source, destination)];
  }
  [[nodiscard]] std::byte* ring_data(NodeId source, NodeId destination) const {
    return base_ + header().rings_offset + ring_index(source, destination) * header().ring_bytes;
  }
  [[nodiscard]] std::span<std::byte> emulation() const {
    return {base_ + header().emulation_offset, header().emulation_bytes};
  }
  // Line tables and page tables are mapped from this descriptor, which the job memory owns. A node's tables begin at
  // lines_at() and pages_at() there.
  [[nodiscard]] int tables_fd() const { return tables_fd_; }
  [[nodiscard]] uint64_t lines_at(NodeId node) const {
    return header().lines_offset + node.value * header().lines_bytes;
  }
  [[nodiscard]] uint64_t pages_at(NodeId node) const {
    return header().pages_offset + node.value * header().pages_bytes;
  }
  [[nodiscard]] std::byte* words(NodeId node) const {
    return base_ + header().words_offset + node.value * header().words_bytes;
  }

 private:
  JobMemory(std::byte* base, size_t bytes, int tables_fd, bool owned)
      : base_(base), bytes_(bytes), tables_fd_(tables_fd), owned_(owned) {}
  [[nodiscard]] size_t ring_index(NodeId source, NodeId destination) const {
    return size_t{source.value} * header().nodes + destination.value;
  }

  std::byte* base_;
  size_t bytes_;
  int tables_fd_;
  bool owned_;
};

// Tells every node that `dead` has ended and that the run cannot go on; wakes all service threads, which end their
// processes. Only the first call has an effect. The launcher calls this. It is async-signal-safe.
void abort_job(const JobMemory& job, NodeId dead);

}  // namespace multigrain
