// Connecting: the exchange of addresses, an endpoint to every other node, and the handshake that tries each of them.
//
//   exchange    every node's card: UCX's address of its worker, where its segments are, and the key to its words
//   hello       to each node by a new endpoint. The lower of two nodes connects; the higher one makes its endpoint when
//               the hello has come
//   welcome     the answer: the way back works
//   ready       the sender has flushed all its endpoints. A node leaves when all others are ready
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/peer.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/wireup/wireup.h"

namespace multigrain::ucx {

struct Parts;

class Endpoints {
 public:
  explicit Endpoints(Parts& parts) : parts_(parts) {}

  // Every connection is made and tried now: one that does not work is reported here, and not at some page fault.
  Status connect(Wireup& wireup);
  // What UCX chose, for people: "tcp over eth0", say.
  [[nodiscard]] std::string description() const;

  // Send what is under way, as far as that is soon; close the endpoints.
  void flush() MG_REQUIRES(inside_ucx);
  void close() MG_REQUIRES(inside_ucx);

 private:
  // The state of this node's own part of the handshake.
  struct Handshake;

  Result<Card> make_card() const;
  Result<std::vector<Card>> exchange_cards(Wireup& wireup);
  Status accept_card(unsigned n, const Card& card);
  Status make_endpoint(unsigned n, const Card& card) MG_REQUIRES(inside_ucx);
  Status shake_hands(const std::vector<Card>& cards);
  Status answer_hellos(Handshake& handshake) MG_REQUIRES(inside_ucx);
  bool flush_all(Handshake& handshake) MG_REQUIRES(inside_ucx);
  bool all_ready(Handshake& handshake) MG_REQUIRES(inside_ucx);
  [[nodiscard]] std::vector<std::string> lanes_of(const Peer& peer) const MG_REQUIRES(inside_ucx);

  Parts& parts_;
};

}  // namespace multigrain::ucx
