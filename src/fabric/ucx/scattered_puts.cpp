#include "fabric/ucx/scattered_puts.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "fabric/copy_words.h"
#include "fabric/ucx/start_requests.h"

namespace multigrain::ucx {

Completion ScatteredPuts::start(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) {
  uint64_t end = 0;
  uint64_t data_bytes = 0;
  uint32_t count = 0;
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    end = std::max(end, uint64_t{piece.offset} + piece.length);
    data_bytes += sizeof(WirePiece) + piece.length;
    ++count;
  }
  parts_.segments.check_range(to, segment, offset, end);
  if (count == 0) return {};
  if (to.value == parts_.context.self) {
    for (const Piece& piece : pieces)
      if (piece.length != 0) put_words(parts_.segments.own(segment, offset + piece.offset), piece.bytes, piece.length);
    return {};
  }
  if (!parts_.peers[to.value].connection.can_put && data_bytes <= kMaxPiecesBytes)
    return send(to, segment, offset, pieces, count, data_bytes);
  if (!parts_.segments.get_keys(to, segment, offset, end)) return {};
  return put_each(to, segment, offset, pieces);
}

Completion ScatteredPuts::put_each(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) {
  return parts_.operations.start_requests(to, [&](Peer& peer, ucp_request_param_t& parameters, auto&& take) {
    inside_ucx.assume_held();
    for (const Piece& piece : pieces) {
      for (uint64_t done = 0; done < piece.length;) {
        const uint64_t at = offset + piece.offset + done;
        const uint64_t here = Segments::in_one_chunk(segment, at, piece.length - done);
        take(ucp_put_nbx(peer.connection.endpoint, piece.bytes + done, here, peer.segments.base[index(segment)] + at,
                         parts_.segments.remote_key(to.value, segment, at), &parameters));
        done += here;
      }
    }
    take(ucp_ep_flush_nbx(peer.connection.endpoint, &parameters));
  });
}

// Sends all pieces as one message. The operation ends when the target answers that it has deposited them.
Completion ScatteredPuts::send(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces,
                               uint32_t count, uint64_t data_bytes) {
  UcxLock lock(parts_);
  Operation* operation = nullptr;
  const Completion completion = parts_.operations.begin(lock, operation);
  const Peer& peer = parts_.peers[to.value];
  if (peer.liveness.failed.load(std::memory_order_relaxed)) {
    parts_.operations.end_part(*operation);
    return {};
  }
  auto* const out = new (parts_.pool.allocate(sizeof(PiecesOut) + data_bytes)) PiecesOut{};
  auto* const data = reinterpret_cast<std::byte*>(out + 1);
  std::byte* table = data;
  std::byte* bytes = data + count * sizeof(WirePiece);
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    const WirePiece entry{piece.offset, piece.length};
    std::memcpy(table, &entry, sizeof entry);
    table += sizeof entry;
    std::memcpy(bytes, piece.bytes, piece.length);
    bytes += piece.length;
  }
  out->sender = &parts_.sender;
  out->wire.key = peer.connection.key;
  out->wire.offset = offset;
  out->wire.completion = completion.id;
  out->wire.count = count;
  out->wire.from = parts_.context.self;
  out->wire.segment = static_cast<uint8_t>(segment);
  // This is set before the message goes out: if sending finds that the peer has failed, peer_failed() ends the
  // operation.
  operation->awaits_node = static_cast<uint16_t>(to.value + 1);
  parts_.sender.send_active_message(to.value, kPiecesId, out, std::as_bytes(std::span(&out->wire, 1)),
                                    {data, data_bytes}, UCP_AM_SEND_FLAG_EAGER);
  return completion;
}

void ScatteredPuts::receive(std::span<const std::byte> header, std::span<const std::byte> data) {
  WirePieces wire;
  Checked checked = decode(parts_.context, header, data.size(), wire);
  if (checked.verdict == Verdict::kGood) checked = check_pieces(parts_.context, wire, data);
  if (!parts_.receiver.approve(checked, wire.from)) return;
  parts_.peers[wire.from].liveness.heard = true;
  std::byte* const target = parts_.segments.own(static_cast<SegmentId>(wire.segment), wire.offset);
  const std::byte* bytes = data.data() + wire.count * sizeof(WirePiece);
  for (uint32_t i = 0; i < wire.count; ++i) {
    const WirePiece each = piece(data, i);
    put_words(target + each.offset, bytes, each.length);
    bytes += each.length;
  }
  parts_.sender.send_control(wire.from, ControlKind::kDeposited, wire.completion);
}

void ScatteredPuts::deposited(unsigned source, uint64_t completion) {
  Operation* const operation = parts_.operations.awaiting(source, completion);
  if (operation == nullptr) panic("pieces that were not sent are deposited, says node", source);
  operation->awaits_node = 0;
  parts_.operations.end_part(*operation);
}

}  // namespace multigrain::ucx
