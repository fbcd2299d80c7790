// A node of a run that mpirun or srun has started, and that ends with the wire-up: it exchanges cards and checks them.
//
//   exchange_cards [SETTING=VALUE...]
//     rounds=2 bytes=1000   how many cards of which length
//     dies=N                node N ends with status 5 after the first exchange
//     late=N timeout=300    node N does not come to the last exchange, for which the other nodes wait this many seconds
//     status=0              what node 0 exits with in the end
//     child=1               in the end every node runs this program again, as a child
//
// Standard output: a line a node that the test reads.
#include <fmt/format.h>
#include <sys/personality.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "fabric/wireup/wireup.h"
#include "runtime/external_launch.h"

namespace multigrain {
namespace {

constexpr int kDied = 5;
constexpr int kFailed = 6;
// An exchange in which no node is late may take this many seconds: a busy machine needs some of them to start all
// nodes.
constexpr unsigned kPatience = 300;

std::map<std::string, unsigned, std::less<>> g_settings = {{"rounds", 2}, {"bytes", 1000}, {"timeout", kPatience}};

// Returns the setting's value; `none` for a node number that was not given.
unsigned setting(std::string_view name, unsigned none = 0) {
  const auto found = g_settings.find(name);
  return found == g_settings.end() ? none : found->second;
}

constexpr unsigned kNobody = ~0u;

// Makes a card that differs for every node and round, in length too.
Card card_of(unsigned node, unsigned round) {
  Card card(setting("bytes") - node);
  for (size_t i = 0; i < card.size(); ++i) card[i] = static_cast<std::byte>((i * 31 + node * 7 + round * 101) & 0xff);
  return card;
}

[[noreturn]] void fail_with(const std::string& message) {
  fmt::print(stderr, "exchange_cards: {}\n", message);
  std::fflush(stderr);
  _exit(kFailed);
}

// Each line is one write, so that lines of several nodes do not mix.
void say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(kFailed);
}

int run(char** argv) {
  for (char** argument = argv + 1; *argument != nullptr; ++argument) {
    const std::string_view text = *argument;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) fail_with(fmt::format("'{}' is no setting", text));
    g_settings[std::string(text.substr(0, equals))] =
        static_cast<unsigned>(std::atoi(std::string(text.substr(equals + 1)).c_str()));
  }
  if (const Status joined = join_external_launch(argv); !joined) fail_with(joined.error().message);
  const char* const name = std::getenv("MULTIGRAIN_WIREUP");
  if (name == nullptr) {
    say("alone");
    return 0;
  }
  const std::string wireup_name = name;
  auto opened = open_wireup(wireup_name);
  if (!opened) fail_with(opened.error().message);
  Wireup& wireup = **opened;
  const unsigned self = wireup.self().value;
  for (unsigned round = 0; round < setting("rounds"); ++round) {
    if (round == 1 && self == setting("dies", kNobody)) _exit(kDied);
    const bool last = round + 1 == setting("rounds");
    if (last && self == setting("late", kNobody)) {
      sleep(setting("timeout") + 20);
      _exit(kDied);
    }
    const auto timeout = std::chrono::seconds(last ? setting("timeout") : kPatience);
    const auto cards = wireup.exchange(card_of(self, round), timeout);
    if (!cards) fail_with(fmt::format("node {}: {}", self, cards.error().message));
    if (cards->size() != wireup.nodes()) fail_with("the wrong number of cards");
    for (unsigned node = 0; node < wireup.nodes(); ++node)
      if ((*cards)[node] != card_of(node, round)) fail_with(fmt::format("node {}'s card is wrong", node));
  }
  if (const Status finished = wireup.finish(); !finished) fail_with(finished.error().message);
  const int persona = personality(0xffffffff);
  say(fmt::format("node {} of {} by {} cores {} randomisation {}", self, wireup.nodes(), wireup_name,
                  std::getenv("MULTIGRAIN_CORES"), (persona & ADDR_NO_RANDOMIZE) != 0 ? "off" : "on"));
  forget_launch();
  if (setting("child") != 0 && std::system(argv[0]) != 0) fail_with("the child failed");
  return self == 0 ? static_cast<int>(setting("status")) : 0;
}

}  // namespace
}  // namespace multigrain

int main(int, char** argv) {
  return multigrain::run(argv);
}
