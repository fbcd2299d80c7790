// The memory that nodes export to each other: this node's memory, registered with UCX, and the keys to the other nodes'
// memory.
//
// The words are registered at the start. Frames, the line table and the page table are registered in chunks, each when another node
// first asks for its key, which that node does when it first accesses the chunk.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/peer.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

struct Parts;

constexpr size_t index(SegmentId segment) {
  return static_cast<size_t>(segment);
}

class Segments {
 public:
  struct Export {
    std::byte* base = nullptr;
    uint64_t length = 0;
  };

  explicit Segments(Parts& parts) : parts_(parts) {}

  // Makes the memory of this node's words, and registers it, and that of its page table.
  Status open();
  // Give back the keys of other nodes' memory, and then the registrations of this node's memory.
  void destroy_keys() MG_REQUIRES(inside_ucx);
  void unregister() MG_REQUIRES(inside_ucx);
  // Gives back the memory itself. The caller does not hold the lock.
  void close();

  void export_segment(SegmentId segment, std::byte* base, uint64_t length);
  [[nodiscard]] const std::array<Export, static_cast<size_t>(SegmentId::kCount)>& exported() const { return exported_; }
  [[nodiscard]] ucp_mem_h words_memory() const { return words_memory_; }
  // Makes room for the keys to a peer's chunks.
  Status prepare(RemoteSegments& remote) const;

  // Ends the run if the node or the range does not exist.
  void check_range(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) const;
  void check_word(NodeId at, SegmentId segment, uint64_t offset) const;

  // Returns this node's own memory at `offset`.
  [[nodiscard]] std::byte* own(SegmentId segment, uint64_t offset) const {
    return exported_[index(segment)].base + offset;
  }
  [[nodiscard]] std::atomic_ref<uint64_t> own_word(SegmentId segment, uint64_t offset) const {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(own(segment, offset)));
  }

  // Returns how much of [offset, offset + length) lies in the chunk of its first byte.
  [[nodiscard]] static uint64_t in_one_chunk(SegmentId segment, uint64_t offset, uint64_t length);
  // Returns the key to the chunk with `offset`, and asks the node for it first if this node has not got it. Null: the
  // node has failed.
  ucp_rkey_h remote_key(unsigned node, SegmentId segment, uint64_t offset);
  // Sees to it that remote_key() has all keys of the range. Returns false if the node has failed.
  bool get_keys(NodeId node, SegmentId segment, uint64_t offset, uint64_t length);

  // Handle the control messages that ask for a key, and that bring one.
  void answer_key_request(unsigned source, const WireControl& request) MG_REQUIRES(inside_ucx);
  void accept_key(unsigned source, const WireControl& wire, const void* data) MG_REQUIRES(inside_ucx);

 private:
  // Stands for a key that has been requested. No key has this address.
  static ucp_rkey_h requested() { return reinterpret_cast<ucp_rkey_h>(uintptr_t{1}); }
  // Returns the number, among all chunks, of the chunk with `offset` of kFrames, kLines or kPages.
  [[nodiscard]] uint64_t chunk_of(SegmentId segment, uint64_t offset) const {
    const uint64_t before = segment == SegmentId::kFrames  ? 0
                            : segment == SegmentId::kLines ? frame_chunks_
                                                           : frame_chunks_ + line_chunks_;
    return offset / kChunkBytes + before;
  }
  [[nodiscard]] size_t table_bytes() const;
  Result<ucp_mem_h> register_memory(std::byte* base, uint64_t length) MG_REQUIRES(inside_ucx);

  Parts& parts_;
  std::array<Export, static_cast<size_t>(SegmentId::kCount)> exported_{};
  ucp_mem_h words_memory_ = nullptr;
  // The registered chunks of the frames, then those of the line table, then those of the page table.
  std::atomic<ucp_mem_h>* chunk_memory_ = nullptr;
  uint64_t frame_chunks_ = 0;
  uint64_t line_chunks_ = 0;
  uint64_t chunks_ = 0;
};

}  // namespace multigrain::ucx
