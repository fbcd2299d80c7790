// Scattered puts (Fabric::start_put_pieces): many short pieces of one page, which are one operation.
//
// Where the network can put (it has a lane for that), each piece is a put, and one flush follows them all. Where it
// cannot, UCX would send each put as a message with an answer of its own, which the target's progress carries out.
// There all pieces are one message, which the target answers when they are where they belong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/sender.h"

namespace multigrain::ucx {

class ScatteredPuts {
 public:
  explicit ScatteredPuts(Parts& parts) : parts_(parts) {}

  Completion start(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces);

  // Deposits the pieces of a message. The whole message is checked before the first byte is written.
  void receive(std::span<const std::byte> header, std::span<const std::byte> data) MG_REQUIRES(inside_ucx);
  // `source` says that pieces are deposited; `completion` is that of their operation.
  void deposited(unsigned source, uint64_t completion) MG_REQUIRES(inside_ucx);

 private:
  // Pieces that are being sent. Their table and bytes follow.
  struct PiecesOut : SendBlock {
    WirePieces wire;
  };

  Completion put_each(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces);
  Completion send(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces, uint32_t count,
                  uint64_t data_bytes);

  Parts& parts_;
};

}  // namespace multigrain::ucx
