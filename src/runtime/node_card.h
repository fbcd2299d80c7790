// The nodes of a run on several hosts must agree before they share an address: on the program, on its addresses, and on
// the settings. Each node gives the others a card through the wire-up, and each node checks all cards.
//
// On one machine the launcher sees to all this: it starts every node from one file, with one environment.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fabric/wireup/wireup.h"

namespace multigrain {

struct NodeCard {
  // A shared library of the process, as it was when the program started. Pointers to functions and virtual tables in
  // it are part of the state that is copied to other nodes.
  struct Library {
    std::string name;      // the file's, without its folder
    std::string identity;  // build id; empty: it has none
    uint64_t base = 0;
  };

  std::string version;  // Multigrain's
  std::string host;
  std::string program;       // the executable's path
  std::string identity;      // its build id, or "file " and a hash of its content
  uint64_t fingerprint = 0;  // a hash of its globals' addresses
  bool randomised = false;   // address randomisation is on
  std::vector<Library> libraries;

  // Only node 0's card has these: its settings (MULTIGRAIN_* variables), which are the run's.
  std::vector<std::pair<std::string, std::string>> settings;
};

// Returns this process's card, which includes the settings if `is_node_0`. Call it before libraries are opened at run
// time. Errors: the executable cannot be read.
Result<NodeCard> describe_this_node(bool is_node_0);

Card encode(const NodeCard& card);
// Errors: the bytes are not a card, or are one of another version's form.
Result<NodeCard> decode(const Card& card);

// Checks whether the nodes (in their order, node 0 first) can run together. The sentence names the first node and the
// host that differ, and how. All nodes come to the same answer.
Status check_agreement(const std::vector<NodeCard>& cards);

// Makes node 0's settings this process's, so that reading the configuration gives the same on every node. A variable
// that node 0 does not have is unset. Call it before other threads exist.
void adopt_settings(const NodeCard& node_0);

}  // namespace multigrain
