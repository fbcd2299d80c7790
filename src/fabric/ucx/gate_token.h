// The first bytes that a node sends on a TCP connection to another node, and the answer to them.
//
// The caller sends a token: its node number, a random number, both ends' addresses as it sees them, and a keyed MAC
// over all that. The called node answers with a MAC over the token. Neither waits for the other: the caller goes on
// sending (nodes connect to each other at the same time, under locks of UCX), and believes nothing that it receives
// before a right answer has come. All lengths are fixed, so there is no length field, and nothing to parse. Everything
// here is async-signal-safe.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "fabric/ucx/ucx_fabric.h"

namespace multigrain::gate {

// One end of a connection: the address as IPv6 (IPv4 mapped into it) and the port, in network order.
struct End {
  std::array<uint8_t, 16> address{};
  std::array<uint8_t, 2> port{};
  bool operator==(const End&) const = default;
};

// Stores the end with the address `from`. Returns false if that is not an internet address.
[[nodiscard]] bool end_of(const sockaddr_storage& from, End* end);

struct Connection {
  End caller;
  End called;
};

using Mac = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 16>;

// A token as it is on the wire. It consists of bytes only, so it has no padding and no byte order.
struct Token {
  std::array<uint8_t, 8> magic{};
  std::array<uint8_t, 2> node{};  // the caller's number, low byte first
  Nonce nonce{};
  End caller;
  End called;
  Mac mac{};
};
static_assert(sizeof(Token) == 94 && alignof(Token) == 1);

// The key of the gates. It is drawn from the job's secret, so that no other key that is drawn from the secret opens a
// gate.
class Key {
 public:
  // Prepares the library of primitives (libsodium). The caller does this once, before it uses anything else in here.
  static Status prepare();

  Key() = default;
  explicit Key(const JobSecret& secret);
  ~Key();
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;

  // Makes a new token for this connection. The kernel supplies its nonce.
  [[nodiscard]] Token make_token(unsigned node, const Connection& connection) const;
  // Returns the answer to a token that is right.
  [[nodiscard]] Mac answer(const Token& token) const;

  enum class Verdict : uint8_t { kRight, kNoToken, kOtherSecret, kOtherConnection };
  // Finds out whether a node that holds the secret has made `token`, for this very connection.
  [[nodiscard]] Verdict check(const Token& token, const Connection& connection) const;

  bool operator==(const Key& other) const;

 private:
  [[nodiscard]] Mac mac_of(uint8_t purpose, const void* bytes, size_t length) const;
  std::array<uint8_t, 32> key_{};
};

// Returns whether they are equal, in a time that does not tell where they differ.
[[nodiscard]] bool same(const Mac& a, const Mac& b);

}  // namespace multigrain::gate
