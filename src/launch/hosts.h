// The hosts of a run: this parses the names that users give, and places the nodes on the hosts.
//
// A list is "a,b:2,c": host b takes two nodes. A file has one host a line, in the forms that MPI's users know: "b",
// "b slots=2", "b:2"; '#' begins a comment. A host that is named again takes that many nodes more. Names may have a
// user in front ("ann@b"), and addresses of IPv6 stand in brackets.
//
// Nodes fill the hosts in the order in which they are named, so that neighbours share a host.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace multigrain {

struct HostSlots {
  std::string name;
  unsigned slots = 1;  // number of nodes that it takes
};

// The nodes of one host: first, first + 1, ...
struct HostNodes {
  std::string name;
  unsigned first = 0;
  unsigned count = 0;
};

Result<std::vector<HostSlots>> parse_hosts(std::string_view list);
// `file` is the name for messages.
Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file);

// Places the nodes. Without a number of nodes, every host takes as many as it can. With fewer nodes, the last hosts
// take none and are left out. Error: there are more nodes than the hosts take.
Result<std::vector<HostNodes>> place_nodes(const std::vector<HostSlots>& hosts, std::optional<unsigned> nodes);

// Cuts "ssh -F 'my file'" into words, as a shell would as far as spaces and quotes go.
Result<std::vector<std::string>> split_words(std::string_view command);

}  // namespace multigrain
