#include "fabric/ucx/wire.h"

#include <cstring>

namespace multigrain::ucx {
namespace {

// Reads the structure and finds out whether it comes from a node of the job.
template <typename Header>
Checked read(const WireContext& context, std::span<const std::byte> header, Header& out) {
  // No node sends a header of another length, so a key in it, if there is one, proves nothing.
  if (header.size() != sizeof(Header)) return {Verdict::kUnauthenticated, "its header has a wrong length"};
  std::memcpy(&out, header.data(), sizeof(Header));
  if (out.from >= context.nodes || out.from == context.self)
    return {Verdict::kUnauthenticated, "it names no other node"};
  if (out.key != context.key[out.from])
    return {Verdict::kUnauthenticated, "it has not the key of the node that it names"};
  return {Verdict::kGood};
}

}  // namespace

Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WireMessage& out) {
  if (const Checked known = read(context, header, out); known.verdict != Verdict::kGood) return known;
  if (out.zero != 0) return {Verdict::kBroken, "a message with unknown fields came from node"};
  if (out.segment >= static_cast<uint8_t>(SegmentId::kCount))
    return {Verdict::kBroken, "a message with an impossible slice came from node"};
  if (out.slice_length == 0) {
    if (out.slice_offset != 0 || out.carried != 0)
      return {Verdict::kBroken, "a message with an impossible slice came from node"};
  } else {
    const uint64_t end = context.segment_bytes[out.segment];
    if (out.slice_length > end || out.slice_offset > end - out.slice_length)
      return {Verdict::kBroken, "a message with a slice outside of its sender's memory came from node"};
    if (out.carried != (out.slice_length <= kMaxCarriedSlice ? 1 : 0))
      return {Verdict::kBroken, "a message with an impossible slice came from node"};
  }
  if (out.payload_length > Fabric::kMaxPayload)
    return {Verdict::kBroken, "a message with too long a payload came from node"};
  if (data_bytes != uint64_t{out.payload_length} + (out.carried != 0 ? out.slice_length : 0))
    return {Verdict::kBroken, "a message whose length is not what it says came from node"};
  return {Verdict::kGood};
}

Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WireControl& out) {
  if (const Checked known = read(context, header, out); known.verdict != Verdict::kGood) return known;
  for (const uint8_t byte : out.zero)
    if (byte != 0) return {Verdict::kBroken, "a control message with unknown fields came from node"};
  const bool is_key = out.kind == ControlKind::kRemoteKey;
  if (is_key ? data_bytes == 0 || data_bytes > kMaxRemoteKey : data_bytes != 0)
    return {Verdict::kBroken, "a control message of a wrong length came from node"};
  switch (out.kind) {
    case ControlKind::kHello:
    case ControlKind::kWelcome:
    case ControlKind::kReady:
    case ControlKind::kHandled:
    case ControlKind::kAlive:
    case ControlKind::kEnding:
      if (out.a != 0 || out.b != 0) return {Verdict::kBroken, "a control message with unknown fields came from node"};
      return {Verdict::kGood};
    case ControlKind::kPeerFailed:
      if (out.from != 0)
        return {Verdict::kBroken, "news of another node's end, which only node 0 sends, came from node"};
      if (out.a == 0 || out.a >= context.nodes || out.b >= static_cast<uint64_t>(FailureReason::kCount))
        return {Verdict::kBroken, "impossible news of another node's end came from node"};
      return {Verdict::kGood};
    case ControlKind::kRemoteKeyRequest:
    case ControlKind::kRemoteKey:
      if (out.a >= static_cast<uint64_t>(SegmentId::kCount) ||
          out.b >= (context.segment_bytes[out.a] + kChunkBytes - 1) / kChunkBytes)
        return {Verdict::kBroken, "a remote key for memory that does not exist was the matter of a message from node"};
      return {Verdict::kGood};
    case ControlKind::kDeposited:
      // ScatteredPuts::deposited(), which knows the operations under way, checks `a`.
      if (out.b != 0) return {Verdict::kBroken, "a control message with unknown fields came from node"};
      return {Verdict::kGood};
    case ControlKind::kNone:
    case ControlKind::kCount:
      break;
  }
  return {Verdict::kBroken, "a control message of an unknown kind came from node"};
}

Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WireCoalesced& out) {
  if (const Checked known = read(context, header, out); known.verdict != Verdict::kGood) return known;
  if (out.zero != 0) return {Verdict::kBroken, "coalesced messages with unknown fields came from node"};
  if (out.count == 0 || data_bytes > kMaxCoalescedBytes || data_bytes < out.count * sizeof(WireMessage))
    return {Verdict::kBroken, "coalesced messages of a wrong length came from node"};
  return {Verdict::kGood};
}

Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WirePieces& out) {
  if (const Checked known = read(context, header, out); known.verdict != Verdict::kGood) return known;
  if (out.zero != 0) return {Verdict::kBroken, "pieces with unknown fields came from node"};
  if (out.segment >= static_cast<uint8_t>(SegmentId::kCount) || out.offset > context.segment_bytes[out.segment])
    return {Verdict::kBroken, "pieces for memory that does not exist came from node"};
  // A piece has at least one byte.
  if (out.count == 0 || data_bytes > kMaxPiecesBytes || data_bytes < out.count * (sizeof(WirePiece) + 1))
    return {Verdict::kBroken, "pieces of a wrong length came from node"};
  return {Verdict::kGood};
}

WirePiece piece(std::span<const std::byte> data, uint32_t i) {
  WirePiece out;
  std::memcpy(&out, data.data() + i * sizeof out, sizeof out);
  return out;
}

Checked check_pieces(const WireContext& context, const WirePieces& pieces, std::span<const std::byte> data) {
  const uint64_t room = context.segment_bytes[pieces.segment] - pieces.offset;
  uint64_t bytes = pieces.count * sizeof(WirePiece);
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const WirePiece each = piece(data, i);
    if (each.length == 0 || uint64_t{each.offset} + each.length > room)
      return {Verdict::kBroken, "a piece that is outside of this node's memory came from node"};
    bytes += each.length;
  }
  if (bytes != data.size()) return {Verdict::kBroken, "pieces whose length is not what they say came from node"};
  return {Verdict::kGood};
}

Checked next_record(const WireContext& context, const WireCoalesced& all, unsigned left,
                    std::span<const std::byte>& rest, WireMessage& out, std::span<const std::byte>& payload) {
  if (rest.size() < sizeof(WireMessage)) return {Verdict::kBroken, "coalesced messages that break off came from node"};
  const std::span<const std::byte> header = rest.first(sizeof(WireMessage));
  std::memcpy(&out, header.data(), sizeof out);
  rest = rest.subspan(sizeof(WireMessage));
  if (out.from != all.from || out.slice_length != 0 || out.delay_ns != 0 || out.payload_length > kMaxCoalescedPayload)
    return {Verdict::kBroken, "a message that may not be coalesced came coalesced from node"};
  if (out.payload_length > rest.size()) return {Verdict::kBroken, "coalesced messages that break off came from node"};
  payload = rest.first(out.payload_length);
  rest = rest.subspan(out.payload_length);
  if (left == 1 && !rest.empty())
    return {Verdict::kBroken, "coalesced messages with something behind the last came from node"};
  Checked checked = decode(context, header, payload.size(), out);
  // The sender knew the key of the coalesced message, so it knows the key of each record, which is the same.
  if (checked.verdict == Verdict::kUnauthenticated)
    checked = {Verdict::kBroken, "coalesced messages of which one has not their key came from node"};
  return checked;
}

}  // namespace multigrain::ucx
