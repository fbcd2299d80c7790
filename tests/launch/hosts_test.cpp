// These tests check how hosts are named on the command line and in files, and which nodes they get.
#include "launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/shell_words.h"
#include "fabric/network_devices.h"
#include "launch/agent_protocol.h"
#include "launch/interfaces.h"

namespace multigrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string show(const Result<std::vector<HostSlots>>& hosts) {
  if (!hosts) return "error: " + hosts.error().message;
  std::string text;
  for (const HostSlots& host : *hosts) text += fmt::format("{}={} ", host.name, host.slots);
  return text;
}

TEST(Hosts, InAList) {
  EXPECT_EQ(show(parse_hosts("a")), "a=1 ");
  EXPECT_EQ(show(parse_hosts("a,b:2, c.d-e_f ")), "a=1 b=2 c.d-e_f=1 ");
  EXPECT_EQ(show(parse_hosts("a,b,a:3")), "a=4 b=1 ");
  EXPECT_EQ(show(parse_hosts("ann@b:2,10.0.0.1")), "ann@b=2 10.0.0.1=1 ");
  EXPECT_EQ(show(parse_hosts("[fe80::1%eth0]:2,ann@[::1]")), "fe80::1%eth0=2 ann@::1=1 ");
}

TEST(Hosts, ThatAreNone) {
  for (const char* list :
       {"", "a,", ",a", "a b", "-oProxyCommand=x", "a;b", "a/b", "$(x)", "a\nb", "ann@", "ann@-x", "'a'"})
    EXPECT_THAT(show(parse_hosts(list)), HasSubstr("is not the name of a host")) << list;
  for (const char* list : {"a:0", "a:65", "a:x", "a:", "a:2x", "a:-1"})
    EXPECT_THAT(show(parse_hosts(list)), HasSubstr("host 'a': '")) << list;
  EXPECT_THAT(show(parse_hosts("fe80::1")), HasSubstr("in brackets"));
  EXPECT_THAT(show(parse_hosts("[::1")), HasSubstr("bracket is not closed"));
  EXPECT_THAT(show(parse_hosts("[::1]x")), HasSubstr("is not a host"));
}

TEST(Hosts, InAFile) {
  EXPECT_EQ(show(parse_hostfile("# cluster\n\na\nb slots=2  # two\n\tc:3\r\nd slots=2 max_slots=4\na", "f")),
            "a=2 b=2 c=3 d=2 ");
  EXPECT_EQ(show(parse_hostfile("a\nb slots=none\n", "f")),
            "error: f, line 2: 'none' is not a number of nodes from 1 to 64");
  EXPECT_EQ(show(parse_hostfile("a cpu=4\n", "f")),
            "error: f, line 1: 'cpu=4' is not understood; after the host there may be slots=N");
  EXPECT_EQ(show(parse_hostfile("# nothing\n\n", "f")), "error: f names no host");
}

std::string show(const Result<std::vector<HostNodes>>& placed) {
  if (!placed) return "error: " + placed.error().message;
  std::string text;
  for (const HostNodes& host : *placed) text += fmt::format("{}={}+{} ", host.name, host.first, host.count);
  return text;
}

TEST(Placement, FillsTheHostsInOrder) {
  const std::vector<HostSlots> hosts = {{"a", 1}, {"b", 3}, {"c", 2}};
  EXPECT_EQ(show(place_nodes(hosts, {})), "a=0+1 b=1+3 c=4+2 ");
  EXPECT_EQ(show(place_nodes(hosts, 6)), "a=0+1 b=1+3 c=4+2 ");
  EXPECT_EQ(show(place_nodes(hosts, 5)), "a=0+1 b=1+3 c=4+1 ");
  EXPECT_EQ(show(place_nodes(hosts, 4)), "a=0+1 b=1+3 ");
  EXPECT_EQ(show(place_nodes(hosts, 1)), "a=0+1 ");
  EXPECT_THAT(show(place_nodes(hosts, 7)), HasSubstr("--nodes 7, but the hosts take 6"));
  EXPECT_THAT(show(place_nodes({{"a", 64}, {"b", 1}}, {})), HasSubstr("take 65 nodes; a run has at most 64"));
}

TEST(Words, AreCutAsAShellCutsThem) {
  EXPECT_THAT(*split_words("ssh"), ElementsAre("ssh"));
  EXPECT_THAT(*split_words("  ssh -F 'my file' -o\"A B\"=c ''"), ElementsAre("ssh", "-F", "my file", "-oA B=c", ""));
  EXPECT_FALSE(split_words(""));
  EXPECT_FALSE(split_words("  "));
  EXPECT_FALSE(split_words("ssh 'x"));
}

TEST(Words, SurviveAShell) {
  const std::string text = "it's $HOME; \"a\" `b` \\ *";
  FILE* const shell = popen(("printf %s " + quote_for_shell(text)).c_str(), "r");
  ASSERT_NE(shell, nullptr);
  char buffer[200] = {};
  EXPECT_EQ(std::fread(buffer, 1, sizeof buffer - 1, shell), text.size());
  EXPECT_EQ(pclose(shell), 0);
  EXPECT_EQ(buffer, text);
}

TEST(Interfaces, AreFoundByAddress) {
  EXPECT_EQ(interface_with("127.0.0.1"), "lo");
  EXPECT_EQ(interface_with("::ffff:127.0.0.1"), "lo");
  EXPECT_EQ(interface_with("203.0.113.77"), "");
  EXPECT_EQ(interface_with(""), "");
  EXPECT_EQ(interface_with("lo"), "");
}

TEST(Interfaces, ThatCannotBeUsedAreNamedWithThoseThatCan) {
  EXPECT_TRUE(check_devices(""));
  EXPECT_TRUE(check_devices("lo"));
  for (const char* list : {"nosuch0", "lo,nosuch0", "nosuch0,lo", "mlx5_77:1"}) {
    const Status checked = check_devices(list);
    ASSERT_FALSE(checked) << list;
    EXPECT_THAT(checked.error().message, testing::ContainsRegex("no network device '(nosuch0|mlx5_77:1)'"));
    EXPECT_THAT(checked.error().message, testing::ContainsRegex("; there (is only|are) .*lo"));
  }
  EXPECT_FALSE(check_devices("lo,")) << "an empty name";
}

// The times are made up: the test asks no clock.
TEST(HeartbeatTimer, ExpiresAfterItsLimit) {
  using namespace std::chrono_literals;
  const agent::HeartbeatTimer::Clock::time_point start{};
  agent::HeartbeatTimer timer(Nanoseconds{4'000'000'000}, start);
  for (auto passed = 0ms; passed < 4500ms; passed += 500ms) EXPECT_FALSE(timer.expired(start + passed));
  EXPECT_TRUE(timer.expired(start + 4500ms));
  timer.heard(start + 4600ms);
  EXPECT_FALSE(timer.expired(start + 5000ms));
}

TEST(HeartbeatTimer, BearsSilenceShorterThanItsLimitWhereverItBegins) {
  using namespace std::chrono_literals;
  const agent::HeartbeatTimer::Clock::time_point start{};
  const auto interval = agent::heartbeat_interval(4'000'000'000);
  EXPECT_EQ(interval, 500ms);
  EXPECT_EQ(agent::heartbeat_interval(400'000'000), 50ms);
  // The other side is stopped for 3.99 s, just before it would have sent another heartbeat.
  for (auto since_word = 0ms; since_word < 500ms; since_word += 50ms) {
    agent::HeartbeatTimer timer(Nanoseconds{4'000'000'000}, start);
    for (auto passed = 0ms; passed < since_word + 3990ms; passed += 100ms)
      EXPECT_FALSE(timer.expired(start + passed)) << passed.count();
  }
}

TEST(HeartbeatTimer, DoesNotCountAPauseOfItsOwnProcess) {
  using namespace std::chrono_literals;
  const agent::HeartbeatTimer::Clock::time_point start{};
  agent::HeartbeatTimer timer(Nanoseconds{4'000'000'000}, start);
  EXPECT_FALSE(timer.expired(start + 1s));
  // The machine was suspended.
  EXPECT_FALSE(timer.expired(start + 1000s));
  EXPECT_FALSE(timer.expired(start + 1001s));
  EXPECT_FALSE(timer.expired(start + 1002s));
  EXPECT_FALSE(timer.expired(start + 1003s));
  EXPECT_TRUE(timer.expired(start + 1003500ms));
}

TEST(HeartbeatTimer, NeverExpiresWithoutALimit) {
  agent::HeartbeatTimer timer(0, {});
  EXPECT_FALSE(timer.expired(agent::HeartbeatTimer::Clock::time_point(std::chrono::hours(100))));
}

}  // namespace
}  // namespace multigrain
