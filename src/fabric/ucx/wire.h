// The format of UCX's active messages between nodes, and the checks on what arrives.
//
// An active message has a header, one of the structures below, and data. UCX delivers each message whole, but promises
// no order between them (short and long messages take different protocols), so the messages of a pair of nodes are
// numbered.
//
//   id          header         data
//   kMessage    WireMessage    the payload, then the slice's bytes if they are carried along
//   kControl    WireControl    for kRemoteKey the packed key, otherwise none
//   kCoalesced  WireCoalesced  records, one behind the other: a WireMessage and its payload
//   kPieces     WirePieces     a WirePiece for each piece, then the bytes of all pieces
//
// kCoalesced carries several small messages that were sent at about the same time (coalescing.h). Each record is
// numbered and checked as if it had come alone.
//
// kPieces carries a scattered put (Fabric::start_put_pieces) to a node to which UCX itself would make a message of
// every put. It is no message of the fabric: it is not numbered, the receiver deposits the pieces of one after the
// other in the order in which they come, and answers each by kDeposited when its pieces are where they belong.
//
// Every structure begins with a key: a number that is drawn from the job's secret for this sender and this receiver.
// A message with another key comes from no node of the job, and is dropped. A message with the right key is checked
// field by field; if it cannot be right the run ends, with a message that names the sender. The checks are pure
// functions of the bytes.
//
// The nodes of a run have the same executable, so they have the same byte order and layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/node_set.h"
#include "fabric/fabric.h"

namespace multigrain::ucx {

// Identifiers of UCX's active messages.
inline constexpr unsigned kMessageId = 1;
inline constexpr unsigned kControlId = 2;
inline constexpr unsigned kCoalescedId = 3;
inline constexpr unsigned kPiecesId = 4;

// A slice of at most this length travels with its message; a longer one is fetched by a get.
inline constexpr uint32_t kMaxCarriedSlice = 128 * 1024;

// The window of credits: how much a node may have under way to another, in units of message_cost() (credits.h).
inline constexpr uint64_t kCreditWindow = uint64_t{1} << 20;

// Frames are registered with UCX, and their remote keys fetched, in chunks of this many bytes.
inline constexpr uint64_t kChunkBytes = uint64_t{16} << 20;

inline constexpr size_t kMaxRemoteKey = 4096;  // bytes

// A message may be coalesced if it has neither a slice nor a delay, and at most this many bytes of payload.
inline constexpr uint32_t kMaxCoalescedPayload = 256;
// The records of a coalesced message have at most this many bytes: with UCX's own headers, they just fit into what its
// TCP and its shared memory send in one piece (8 KiB).
inline constexpr size_t kMaxCoalescedBytes = 7680;

// The longest data of kPieces, in bytes. A scattered put that is longer goes as one put for each piece.
inline constexpr size_t kMaxPiecesBytes = Fabric::kMaxPayload;

struct WireMessage {
  uint64_t key;
  uint64_t sequence;  // 0, 1, ... for this pair and direction
  uint64_t handled;   // cost of all messages handled in the other direction
  uint64_t delay_ns;  // the receiver handles it this long after its arrival, not earlier
  MessageHeader header;
  uint64_t slice_offset;
  uint32_t slice_length;
  uint32_t payload_length;
  uint16_t from;
  uint8_t segment;
  uint8_t carried;  // 1: the slice's bytes follow the payload
  uint32_t zero;
};
static_assert(sizeof(WireMessage) == 88);

struct WireCoalesced {
  uint64_t key;
  uint16_t from;
  uint16_t count;  // number of records, at least 1
  uint32_t zero;
};
static_assert(sizeof(WireCoalesced) == 16);

struct WirePieces {
  uint64_t key;
  uint64_t offset;      // the pieces' offsets count from here
  uint64_t completion;  // the receiver sends it back in kDeposited; it means nothing to the receiver
  uint32_t count;       // number of pieces, at least 1
  uint16_t from;
  uint8_t segment;
  uint8_t zero;
};
static_assert(sizeof(WirePieces) == 32);

struct WirePiece {
  uint32_t offset;
  uint32_t length;  // bytes, at least 1
};
static_assert(sizeof(WirePiece) == 8);

enum class ControlKind : uint8_t {
  kNone = 0,
  kHello,             // the way from the sender to the receiver works
  kWelcome,           // answer to kHello
  kReady,             // the sender's connections are all made
  kHandled,           // carries nothing but `handled`
  kAlive,             // heartbeat
  kPeerFailed,        // from node 0: a = the node that is gone, b = a FailureReason
  kEnding,            // the sender's process ends in order, and sends nothing more
  kRemoteKeyRequest,  // a = segment, b = chunk
  kRemoteKey,         // answer: the same, with the key as data
  kDeposited,         // pieces are visible at their target: a = their `completion`
  kCount
};

enum class FailureReason : uint8_t { kBroken = 0, kSilent, kEnded, kCount };

struct WireControl {
  uint64_t key;
  uint64_t handled;
  uint64_t a;
  uint64_t b;
  uint16_t from;
  ControlKind kind;
  std::array<uint8_t, 5> zero;
};
static_assert(sizeof(WireControl) == 40);

// Returns how much of the window of credits a message takes (credits.h).
constexpr uint64_t message_cost(uint64_t data_bytes) {
  return 128 + data_bytes;
}
static_assert(message_cost(Fabric::kMaxPayload + kMaxCarriedSlice) < kCreditWindow / 2);

// The facts about a run that the receiver needs for its checks.
struct WireContext {
  uint16_t self = 0;
  uint16_t nodes = 0;
  std::array<uint64_t, static_cast<size_t>(SegmentId::kCount)> segment_bytes{};  // the same on every node
  std::array<uint64_t, SmallNodeSet::kCapacity> key{};                           // the key that each node must send
};

enum class Verdict : uint8_t {
  kGood,
  kUnauthenticated,  // not from a node of this job: to be dropped
  kBroken,           // from a node of this job, but cannot be right
};

struct Checked {
  Verdict verdict;
  const char* reason = nullptr;  // text for a message, if the verdict is not kGood
};

// Reads the header of an active message whose data is `data_bytes` long. `out` is filled in if the verdict is kGood,
// and its `from` also if the verdict is kBroken. These functions look at no state: the caller checks the sequence
// number.
Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WireMessage& out);
Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WireControl& out);
Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WireCoalesced& out);
Checked decode(const WireContext& context, std::span<const std::byte> header, size_t data_bytes, WirePieces& out);

// Checks that the pieces of a header that decode() found good lie inside the segment, and that their bytes are all of
// `data` behind the table. The verdict is kGood or kBroken. `data` is as long as decode() was told, and need not be
// aligned.
Checked check_pieces(const WireContext& context, const WirePieces& pieces, std::span<const std::byte> data);
// Returns the `i`th entry of the table at the begin of `data`, which check_pieces() has found good.
WirePiece piece(std::span<const std::byte> data, uint32_t i);

// Takes the next record of coalesced messages that decode() found good off the front of `rest`. `left` is how many
// records there should still be, this one included; nothing may follow the last. The verdict is kGood or kBroken.
Checked next_record(const WireContext& context, const WireCoalesced& all, unsigned left,
                    std::span<const std::byte>& rest, WireMessage& out, std::span<const std::byte>& payload);

}  // namespace multigrain::ucx
