// The launcher's end of the wire-up (fabric/wireup/launcher_wireup.h): a socket pair to each node on this machine.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "fabric/wireup/frames.h"

namespace multigrain {

// A round of an exchange has at most this number: a node that counts higher is damaged.
inline constexpr uint64_t kMaxWireupRounds = 1 << 16;

class WireupChannels {
 public:
  using OnCard = std::function<void(NodeId from, uint64_t round, std::span<const std::byte> card)>;

  explicit WireupChannels(unsigned nodes) : nodes_(nodes) {}

  // Makes the channel of a node and returns the node's end, close-on-exec; the caller closes it when the node has it.
  Result<int> open(NodeId node);

  void append_to(std::vector<pollfd>& polled) const;
  // Reads what nodes have sent, without waiting, and sends what could not be sent before. The caller must then hand
  // every node's card, also of nodes on this machine, to deliver(). A node that breaks the protocol loses its channel,
  // which ends it.
  void handle(const OnCard& on_card);
  // Hands a card to every node here that has not finished its wire-up.
  void deliver(NodeId from, uint64_t round, std::span<const std::byte> card);

  // Returns whether the node has taken part in an exchange: if it has, it runs a program that uses Multigrain.
  [[nodiscard]] bool has_taken_part(NodeId node) const;
  // Tells all nodes here that the run is over.
  void close_all() { channels_.clear(); }

 private:
  struct Channel {
    FrameStream stream;
    uint64_t round = 0;  // the round of the node's next card
    bool finished = false;
  };
  // Returns false if the channel is to be closed.
  bool handle(NodeId node, Channel& channel, const OnCard& on_card);

  const unsigned nodes_;
  std::map<NodeId, Channel> channels_;
  uint64_t took_part_ = 0;  // a bit a node
};

}  // namespace multigrain
