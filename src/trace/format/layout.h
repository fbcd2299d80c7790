// This is the frame of a trace file: its header, the headers of its blocks, the index, and the trace's header as a
// block. docs/internals/trace-format.md describes the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/format/bytes.h"
#include "trace/trace.h"

namespace multigrain::trace {

inline constexpr uint32_t kVersion = 2;  // version 1 has neither sampling nor callers
inline constexpr size_t kFileHeaderBytes = 24;
inline constexpr size_t kBlockHeaderBytes = 48;
inline constexpr size_t kTrailerBytes = 24;
// A file that claims a larger payload is damaged.
inline constexpr uint32_t kMaxPayloadBytes = 1u << 30;

enum class BlockKind : uint32_t { kHeader = 1, kData = 2, kIndex = 3 };

struct BlockHeader {
  BlockKind kind{};
  uint32_t packed_bytes = 0;   // bytes of the compressed payload
  uint32_t payload_bytes = 0;  // bytes of the payload before compression
  uint64_t first = 0;          // data: the index of the block's first reference
  uint32_t references = 0;
  uint32_t events = 0;
  uint64_t checksum = 0;  // the checksum of the compressed payload
};

uint64_t checksum_of(const void* data, size_t size);

std::array<uint8_t, kFileHeaderBytes> pack_file_header();
// Returns whether these are the first bytes of a trace, of whatever version.
bool has_file_magic(std::span<const uint8_t, kFileHeaderBytes> bytes);
// Returns the version, or what is wrong.
Result<uint32_t> unpack_file_header(std::span<const uint8_t, kFileHeaderBytes> bytes);

std::array<uint8_t, kBlockHeaderBytes> pack_block_header(const BlockHeader& header);
// Returns false if these are not the bytes of a block's header.
bool unpack_block_header(std::span<const uint8_t, kBlockHeaderBytes> bytes, BlockHeader& header);

std::array<uint8_t, kTrailerBytes> pack_trailer(uint64_t index_offset);
bool unpack_trailer(std::span<const uint8_t, kTrailerBytes> bytes, uint64_t& index_offset);

// This says where a block is. The index lists these in order.
struct IndexEntry {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // with the bytes of the block's header
  BlockKind kind{};
  uint64_t first = 0;
  uint32_t references = 0;
  uint32_t events = 0;
};
void pack_index(const std::vector<IndexEntry>& index, Bytes& out);
// Returns false if the index is damaged. Blocks follow each other without a gap from the file's header to the index at
// `index_offset`.
bool unpack_index(std::span<const uint8_t> payload, uint64_t index_offset, std::vector<IndexEntry>& index);

// Packs the trace's header: what it is now, the sites in `sites`, and the names from `first_name` on.
void pack_header(const TraceHeader& header, std::span<const SiteId> sites, size_t first_name, Bytes& out);
// Brings `header` up to date from a block of a file of that version. Returns false if it is damaged.
bool unpack_header(std::span<const uint8_t> payload, uint32_t version, TraceHeader& header);

}  // namespace multigrain::trace
