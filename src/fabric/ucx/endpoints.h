// Connecting: the exchange of addresses, an endpoint to every other node, and the handshake that tries each endpoint.
//
//   exchange    Every node gives its card to all nodes: UCX's address of its worker, where its segments are, and the
//               key to its words.
//   hello       The lower of two nodes makes an endpoint and sends a hello; the higher node makes its endpoint when the
//               hello has come, and sends one, too.
//   welcome     The answer to a hello says that the way back works.
//   ready       The sender has flushed all its endpoints. A node ends the handshake when all other nodes are ready.
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

  // Makes and tries every connection, so that a connection that does not work is reported here, not at some page fault.
  Status connect(Wireup& wireup);
  // Describes what UCX chose, for people: for instance "tcp over eth0".
  [[nodiscard]] std::string description() const;

  // flush() sends what is under way, and gives up after a second; close() closes the endpoints.
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
