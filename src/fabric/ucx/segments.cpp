#include "fabric/ucx/segments.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr unsigned kKeySpins = 500;        // a thread that waits for a key polls so often before it sleeps
constexpr Nanoseconds kKeySleep = 50'000;  // and then sleeps for so long between polls

}  // namespace

Status Segments::open() {
  inside_ucx.assume_held();
  const UcxOptions& options = parts_.options;
  frame_chunks_ = (options.region_size + kChunkBytes - 1) / kChunkBytes;
  line_chunks_ = (options.lines_bytes + kChunkBytes - 1) / kChunkBytes;
  chunks_ = frame_chunks_ + line_chunks_ + (options.pages_bytes + kChunkBytes - 1) / kChunkBytes;
  void* const words = map_sparse(options.words_bytes);
  chunk_memory_ = static_cast<std::atomic<ucp_mem_h>*>(map_sparse(table_bytes()));
  if (words == nullptr || chunk_memory_ == nullptr) return fail_errno(errno, "no memory for the words of this node");
  exported_[index(SegmentId::kWords)] = {static_cast<std::byte*>(words), options.words_bytes};
  if (options.pages_bytes != 0) {
    void* const pages = map_sparse(options.pages_bytes);
    if (pages == nullptr) return fail_errno(errno, "no memory for the page table of this node");
    exported_[index(SegmentId::kPages)] = {static_cast<std::byte*>(pages), options.pages_bytes};
  }
  auto memory = register_memory(static_cast<std::byte*>(words), options.words_bytes);
  if (!memory) return tl::unexpected(memory.error());
  words_memory_ = *memory;
  return {};
}

void Segments::destroy_keys() {
  for (const Peer& peer : parts_.peers) {
    const RemoteSegments& remote = peer.segments;
    if (remote.words_key != nullptr) ucp_rkey_destroy(remote.words_key);
    if (remote.chunk_keys == nullptr) continue;
    for (uint64_t i = 0; i < chunks_; ++i) {
      ucp_rkey_h key = remote.chunk_keys[i].load(std::memory_order_relaxed);
      if (key != nullptr && key != requested()) ucp_rkey_destroy(key);
    }
  }
}

void Segments::unregister() {
  const ucp_context_h context = parts_.worker.context();
  if (words_memory_ != nullptr) ucp_mem_unmap(context, words_memory_);
  for (uint64_t i = 0; chunk_memory_ != nullptr && i < chunks_; ++i) {
    if (ucp_mem_h memory = chunk_memory_[i].load(std::memory_order_relaxed); memory != nullptr)
      ucp_mem_unmap(context, memory);
  }
}

void Segments::close() {
  for (const Peer& peer : parts_.peers)
    if (peer.segments.chunk_keys != nullptr) munmap(static_cast<void*>(peer.segments.chunk_keys), table_bytes());
  if (chunk_memory_ != nullptr) munmap(static_cast<void*>(chunk_memory_), table_bytes());
  for (const SegmentId segment : {SegmentId::kWords, SegmentId::kPages})
    if (const Export& own = exported_[index(segment)]; own.base != nullptr) munmap(own.base, own.length);
}

size_t Segments::table_bytes() const {
  return std::max<size_t>(chunks_, 1) * sizeof(void*);
}

void Segments::export_segment(SegmentId segment, std::byte* base, uint64_t length) {
  MG_CHECK(segment == SegmentId::kFrames || segment == SegmentId::kLines);
  MG_CHECK(!parts_.connected);
  MG_CHECK(length == parts_.context.segment_bytes[index(segment)], length);
  exported_[index(segment)] = {base, length};
}

Status Segments::prepare(RemoteSegments& remote) const {
  remote.chunk_keys = static_cast<std::atomic<ucp_rkey_h>*>(map_sparse(table_bytes()));
  if (remote.chunk_keys == nullptr) return fail_errno(errno, "no memory for the remote keys of other nodes");
  return {};
}

void Segments::check_range(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) const {
  if (node.value >= parts_.context.nodes) panic("a remote operation names a node that does not exist:", node.value);
  if (segment >= SegmentId::kCount)
    panic("a remote operation names a segment that does not exist:", static_cast<uint64_t>(segment));
  const uint64_t end = parts_.context.segment_bytes[index(segment)];
  if (length > end || offset > end - length)
    panic("a remote operation is outside of what the node exports (node, offset, length):", node.value, offset, length);
}

void Segments::check_word(NodeId at, SegmentId segment, uint64_t offset) const {
  if (offset % sizeof(uint64_t) != 0)
    panic("a remote atomic is not on a multiple of 8 bytes (node, offset):", at.value, offset);
  check_range(at, segment, offset, sizeof(uint64_t));
}

uint64_t Segments::in_one_chunk(SegmentId segment, uint64_t offset, uint64_t length) {
  return segment == SegmentId::kWords ? length : std::min(length, kChunkBytes - offset % kChunkBytes);
}

bool Segments::get_keys(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) {
  for (const uint64_t end = offset + length; offset < end; offset += in_one_chunk(segment, offset, end - offset))
    if (remote_key(node.value, segment, offset) == nullptr) return false;
  return true;
}

ucp_rkey_h Segments::remote_key(unsigned node, SegmentId segment, uint64_t offset) {
  const Peer& peer = parts_.peers[node];
  if (segment == SegmentId::kWords) return peer.segments.words_key;
  std::atomic<ucp_rkey_h>& entry = peer.segments.chunk_keys[chunk_of(segment, offset)];
  ucp_rkey_h key = entry.load(std::memory_order_acquire);
  if (key != nullptr && key != requested()) [[likely]]
    return key;
  const Polling::ProgressScope progressing(parts_.polling);
  for (unsigned tries = 0; key == nullptr || key == requested(); ++tries) {
    if (peer.liveness.failed.load(std::memory_order_relaxed)) return nullptr;
    if (UcxLock lock(parts_, std::try_to_lock); lock.locked()) {
      if (entry.load(std::memory_order_relaxed) == nullptr) {
        entry.store(requested(), std::memory_order_relaxed);
        parts_.sender.send_control(node, ControlKind::kRemoteKeyRequest, index(segment), offset / kChunkBytes);
      }
      lock.progress();
    }
    if (tries < kKeySpins) {
      cpu_relax();
    } else {
      sleep_ns(kKeySleep);
    }
    key = entry.load(std::memory_order_acquire);
  }
  return key;
}

Result<ucp_mem_h> Segments::register_memory(std::byte* base, uint64_t length) {
  ucp_mem_map_params_t parameters{};
  parameters.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  parameters.address = base;
  parameters.length = length;
  parameters.flags = UCP_MEM_MAP_NONBLOCK;  // room for on-demand paging
  ucp_mem_h memory = nullptr;
  const ucs_status_t status = ucp_mem_map(parts_.worker.context(), &parameters, &memory);
  if (status != UCS_OK)
    return fail_ucx("memory cannot be registered with the network (is `ulimit -l` too low?)", status);
  return memory;
}

void Segments::answer_key_request(unsigned source, const WireControl& request) {
  if (request.a == index(SegmentId::kWords)) panic("a key that was given at the start is asked for by node", source);
  const auto segment = static_cast<SegmentId>(request.a);
  const uint64_t begin = request.b * kChunkBytes;
  std::atomic<ucp_mem_h>& entry = chunk_memory_[chunk_of(segment, begin)];
  ucp_mem_h memory = entry.load(std::memory_order_relaxed);
  if (memory == nullptr) {
    const uint64_t length = std::min(kChunkBytes, parts_.context.segment_bytes[request.a] - begin);
    const auto mapped = register_memory(own(segment, begin), length);
    if (!mapped)
      panic("frames cannot be registered with the network: raise `ulimit -l` (offset, length):", begin, length);
    memory = *mapped;
    entry.store(memory, std::memory_order_relaxed);
  }
  void* key = nullptr;
  size_t key_bytes = 0;
  if (ucp_rkey_pack(parts_.worker.context(), memory, &key, &key_bytes) != UCS_OK || key_bytes > kMaxRemoteKey)
    panic("UCX gives no key for frames (offset):", begin);
  parts_.sender.send_control(source, ControlKind::kRemoteKey, request.a, request.b,
                             {static_cast<const std::byte*>(key), key_bytes});
  ucp_rkey_buffer_release(key);
}

void Segments::accept_key(unsigned source, const WireControl& wire, const void* data) {
  const Peer& peer = parts_.peers[source];
  if (wire.a == index(SegmentId::kWords)) panic("a key that nobody asked for came from node", source);
  std::atomic<ucp_rkey_h>& entry =
      peer.segments.chunk_keys[chunk_of(static_cast<SegmentId>(wire.a), wire.b * kChunkBytes)];
  if (entry.load(std::memory_order_relaxed) != requested()) panic("a key that nobody asked for came from node", source);
  ucp_rkey_h key = nullptr;
  if (ucp_ep_rkey_unpack(peer.connection.endpoint, data, &key) != UCS_OK)
    panic("a key that UCX cannot use came from node", source);
  entry.store(key, std::memory_order_release);
}

}  // namespace multigrain::ucx
