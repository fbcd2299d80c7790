// What the nodes of a run on several hosts must agree on before they share an address: which program, at which
// addresses, with which settings. Each gives the others a card through the wire-up, and each checks all of them.
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
    std::string name;      // of the file, without its folder
    std::string identity;  // build id; empty: it has none
    uint64_t base = 0;
  };

  std::string version;  // of Multigrain
  std::string host;
  std::string program;       // the executable's path
  std::string identity;      // its build id, or "file " and a hash of its content
  uint64_t fingerprint = 0;  // of its globals' addresses
  bool randomised = false;   // address randomisation is on
  std::vector<Library> libraries;

  // From node 0 alone: its settings (MULTIGRAIN_* variables), which are the run's.
  std::vector<std::pair<std::string, std::string>> settings;
};

// This process's card. Call it before libraries are opened at run time. `is_node_0`: with settings.
// Errors: the executable cannot be read.
Result<NodeCard> describe_this_node(bool is_node_0);

Card encode(const NodeCard& card);
// Errors: it is not a card, or of another version's form.
Result<NodeCard> decode(const Card& card);

// Whether the nodes (in their order, node 0 first) can run together. The sentence names the first node and the host
// that differ, and how. All nodes come to the same answer.
Status check_agreement(const std::vector<NodeCard>& cards);

// Makes node 0's settings this process's, so that reading the configuration gives the same on every node. A variable
// that node 0 does not have is unset. Before other threads exist.
void adopt_settings(const NodeCard& node_0);

}  // namespace multigrain
