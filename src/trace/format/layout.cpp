#include "trace/format/layout.h"

#include <cmath>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace multigrain::trace {
namespace {

constexpr std::array<uint8_t, 8> kFileMagic = {'M', 'G', 'T', 'R', 'A', 'C', 'E', 0x1a};
constexpr std::array<uint8_t, 8> kEndMagic = {'M', 'G', 'T', 'E', 'N', 'D', '\r', '\n'};
constexpr uint32_t kBlockMagic = 0x4254474d;  // "MGTB"

}  // namespace

uint64_t checksum_of(const void* data, size_t size) {
  return XXH64(data, size, 0);
}

std::array<uint8_t, kFileHeaderBytes> pack_file_header() {
  std::array<uint8_t, kFileHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kFileMagic.data(), 8);
  std::memcpy(bytes.data() + 8, &kVersion, 4);
  const uint64_t checksum = checksum_of(bytes.data(), 16);
  std::memcpy(bytes.data() + 16, &checksum, 8);
  return bytes;
}

bool has_file_magic(std::span<const uint8_t, kFileHeaderBytes> bytes) {
  return std::memcmp(bytes.data(), kFileMagic.data(), kFileMagic.size()) == 0;
}

Result<uint32_t> unpack_file_header(std::span<const uint8_t, kFileHeaderBytes> bytes) {
  if (!has_file_magic(bytes)) return fail("it is not a Multigrain trace");
  if (get<uint64_t>(bytes.data() + 16) != checksum_of(bytes.data(), 16)) return fail("its first 24 bytes are damaged");
  const auto version = get<uint32_t>(bytes.data() + 8);
  if (version > kVersion)
    return fail("it has format version {}, and this mgtrace reads versions up to {}; read it with a newer one", version,
                kVersion);
  if (version == 0) return fail("it has format version 0, which does not exist");
  return version;
}

std::array<uint8_t, kBlockHeaderBytes> pack_block_header(const BlockHeader& header) {
  std::array<uint8_t, kBlockHeaderBytes> bytes{};
  uint8_t* at = bytes.data();
  const auto field = [&at](auto value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  field(kBlockMagic);
  field(static_cast<uint32_t>(header.kind));
  field(header.packed_bytes);
  field(header.payload_bytes);
  field(header.first);
  field(header.references);
  field(header.events);
  field(header.checksum);
  field(checksum_of(bytes.data(), 40));
  return bytes;
}

bool unpack_block_header(std::span<const uint8_t, kBlockHeaderBytes> bytes, BlockHeader& header) {
  const uint8_t* const at = bytes.data();
  if (get<uint32_t>(at) != kBlockMagic || get<uint64_t>(at + 40) != checksum_of(at, 40)) return false;
  header.kind = static_cast<BlockKind>(get<uint32_t>(at + 4));
  header.packed_bytes = get<uint32_t>(at + 8);
  header.payload_bytes = get<uint32_t>(at + 12);
  header.first = get<uint64_t>(at + 16);
  header.references = get<uint32_t>(at + 24);
  header.events = get<uint32_t>(at + 28);
  header.checksum = get<uint64_t>(at + 32);
  return (header.kind == BlockKind::kHeader || header.kind == BlockKind::kData || header.kind == BlockKind::kIndex) &&
         header.payload_bytes <= kMaxPayloadBytes;
}

std::array<uint8_t, kTrailerBytes> pack_trailer(uint64_t index_offset) {
  std::array<uint8_t, kTrailerBytes> bytes{};
  std::memcpy(bytes.data(), &index_offset, 8);
  std::memcpy(bytes.data() + 8, kEndMagic.data(), 8);
  const uint64_t checksum = checksum_of(bytes.data(), 16);
  std::memcpy(bytes.data() + 16, &checksum, 8);
  return bytes;
}

bool unpack_trailer(std::span<const uint8_t, kTrailerBytes> bytes, uint64_t& index_offset) {
  index_offset = get<uint64_t>(bytes.data());
  return std::memcmp(bytes.data() + 8, kEndMagic.data(), 8) == 0 &&
         get<uint64_t>(bytes.data() + 16) == checksum_of(bytes.data(), 16);
}

void pack_index(const std::vector<IndexEntry>& index, Bytes& out) {
  put_varint(out, index.size());
  for (const IndexEntry& entry : index) {
    out.push_back(static_cast<uint8_t>(entry.kind));
    put_varint(out, entry.bytes);
    put_varint(out, entry.references);
    put_varint(out, entry.events);
  }
}

bool unpack_index(std::span<const uint8_t> payload, uint64_t index_offset, std::vector<IndexEntry>& index) {
  Cursor in(payload.data(), payload.data() + payload.size());
  const uint64_t count = in.varint();
  uint64_t offset = kFileHeaderBytes, first = 0;
  index.clear();
  for (uint64_t i = 0; i < count; ++i) {
    IndexEntry entry;
    entry.offset = offset;
    entry.kind = static_cast<BlockKind>(in.byte());
    entry.bytes = in.varint();
    const uint64_t references = in.varint(), events = in.varint();
    if (!in.good() || entry.bytes > index_offset - offset || references > ~0u || events > ~0u ||
        (entry.kind != BlockKind::kHeader && entry.kind != BlockKind::kData))
      return false;
    entry.first = first;
    entry.references = static_cast<uint32_t>(references);
    entry.events = static_cast<uint32_t>(events);
    offset += entry.bytes;
    first += references;
    index.push_back(entry);
  }
  return in.at_end() && offset == index_offset;
}

void pack_header(const TraceHeader& header, std::span<const SiteId> sites, size_t first_name, Bytes& out) {
  put_varint(out, header.processors);
  put(out, header.dilation);
  put_string(out, header.program);
  put_string(out, header.recorder);
  put_varint(out, sites.size());
  for (const SiteId id : sites) {
    const Site& site = header.sites[id];
    put_varint(out, id);
    put_string(out, site.file);
    put_string(out, site.function);
    put_varint(out, site.line);
    put_varint(out, site.caller);
  }
  put_varint(out, first_name);
  put_varint(out, header.names.size() - first_name);
  for (size_t i = first_name; i < header.names.size(); ++i) put_string(out, header.names[i]);
  put_varint(out, header.sampling.burst);
  put_varint(out, header.sampling.interval);
  put(out, header.sampling.scale);
}

bool unpack_header(std::span<const uint8_t> payload, uint32_t version, TraceHeader& header) {
  Cursor in(payload.data(), payload.data() + payload.size());
  const uint64_t processors = in.varint();
  if (processors > (1u << 16)) return false;
  header.processors = static_cast<unsigned>(processors);
  header.dilation = std::bit_cast<double>(in.fixed64());
  header.program = in.string();
  header.recorder = in.string();
  const uint64_t sites = in.varint();
  for (uint64_t i = 0; i < sites; ++i) {
    const uint64_t id = in.varint();
    Site site;
    site.file = in.string();
    site.function = in.string();
    site.line = static_cast<uint32_t>(in.varint());
    const uint64_t caller = version >= 2 ? in.varint() : 0;
    if (caller != 0 && caller >= id) return false;
    site.caller = static_cast<SiteId>(caller);
    // Site numbers are given out one after the other, so a damaged number cannot make the table large.
    if (!in.good() || id > header.sites.size()) return false;
    if (id == header.sites.size()) header.sites.emplace_back();
    header.sites[id] = std::move(site);
  }
  if (in.varint() != header.names.size()) return false;
  const uint64_t names = in.varint();
  for (uint64_t i = 0; i < names; ++i) {
    header.names.push_back(in.string());
    if (!in.good()) return false;
  }
  if (version >= 2) {
    Sampling& sampling = header.sampling;
    sampling.burst = in.varint();
    sampling.interval = in.varint();
    sampling.scale = std::bit_cast<double>(in.fixed64());
    if (sampling.burst > sampling.interval || !(sampling.scale >= 1) || std::isinf(sampling.scale)) return false;
  }
  return in.at_end() && !header.sites.empty() && !header.names.empty();
}

}  // namespace multigrain::trace
