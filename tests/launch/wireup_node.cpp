// This stands in for a Multigrain program of several hosts where a test needs one that only wires up. Every node
// exchanges cards of several sizes with the other nodes and checks them. The argument says what follows:
//
//   report   each node prints its number, and ends
//   serve    node 0 sleeps for a minute; the other nodes wait for the end of the launcher's channel, and end
//   leave    node 1 ends with status 0 before its time; node 0 sleeps
//   follow   node 0 ends with status 5, the other nodes a moment before it, as if they had seen its connections break
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/personality.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "fabric/wireup/wireup.h"

namespace {

using multigrain::Card;

// Makes a card that differs for every node and round, and is now and then as long as a card may be.
Card card_of(unsigned node, unsigned round) {
  const size_t size = round == 2 ? multigrain::Wireup::kMaxCard : size_t{node} * 1000 + round;
  Card card(size);
  for (size_t i = 0; i < size; ++i) card[i] = static_cast<std::byte>(i * 7 + node * 31 + round);
  return card;
}

const char* text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

int complain(const std::string& message) {
  fmt::print(stderr, "wireup_node: {}\n", message);
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  auto wireup = multigrain::open_wireup(text_of("MULTIGRAIN_WIREUP"));
  if (!wireup) return complain(wireup.error().message);
  const unsigned self = (*wireup)->self().value;
  const unsigned nodes = (*wireup)->nodes();
  for (unsigned round = 0; round < 5; ++round) {
    const auto cards = (*wireup)->exchange(card_of(self, round), std::chrono::seconds(300));
    if (!cards) return complain(cards.error().message);
    if (cards->size() != nodes) return complain("a wrong number of cards");
    for (unsigned node = 0; node < nodes; ++node)
      if ((*cards)[node] != card_of(node, round)) return complain("a wrong card");
  }
  if (const auto finished = (*wireup)->finish(); !finished) return complain(finished.error().message);

  if (mode == "report") {
    const bool fixed = (personality(0xffffffff) & ADDR_NO_RANDOMIZE) != 0;
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    fmt::print("node {} of {} on {}, {} addresses, interface '{}'\n", self, nodes, host, fixed ? "fixed" : "random",
               text_of("MULTIGRAIN_INTERFACE"));
    std::fflush(stdout);
    // Nodes that take part end after node 0.
    if (self == 0) return 0;
  }
  if (mode == "leave" && self == 1) return 0;
  if (mode == "follow") {
    // The ends of the other nodes overtake that of node 0.
    if (self == 0) usleep(100'000);
    return self == 0 ? 5 : 0;
  }
  if (self == 0) {
    if (mode == "serve") {
      fmt::print("serving\n");
      std::fflush(stdout);
    }
    sleep(60);
    return 4;
  }
  signal(SIGTERM, SIG_IGN);
  pollfd end{(*wireup)->end_descriptor(), POLLIN, 0};
  poll(&end, 1, 60'000);
  return 0;
}
