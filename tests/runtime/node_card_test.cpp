// These tests check whether nodes on several hosts can run together, and what the sender of a card is told that makes
// no sense.
#include "runtime/node_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "base/config.h"

namespace multigrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NodeCard card_of(const char* host) {
  NodeCard card;
  card.version = "1.0";
  card.host = host;
  card.program = "/opt/water";
  card.identity = "ab12";
  card.fingerprint = 7;
  card.libraries = {{"libc.so.6", "c0de", 0x7ffff7c00000}, {"libm.so.6", "", 0x7ffff7b00000}};
  return card;
}

std::vector<NodeCard> three() {
  return {card_of("ant"), card_of("bee"), card_of("cat")};
}

std::string disagreement(const std::vector<NodeCard>& cards) {
  const Status status = check_agreement(cards);
  return status ? "agreement" : status.error().message;
}

TEST(NodeCard, ThisProcessHasOne) {
  const auto card = describe_this_node(true);
  ASSERT_TRUE(card) << card.error().message;
  EXPECT_FALSE(card->host.empty());
  EXPECT_THAT(card->program, HasSubstr("node_card_test"));
  EXPECT_FALSE(card->identity.empty());
  EXPECT_FALSE(card->libraries.empty());
}

TEST(NodeCard, TravelsWhole) {
  setenv("MULTIGRAIN_PAGE_SIZE", "16384", 1);
  const auto card = describe_this_node(true);
  unsetenv("MULTIGRAIN_PAGE_SIZE");
  const auto copy = decode(encode(*card));
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(copy->version, card->version);
  EXPECT_EQ(copy->host, card->host);
  EXPECT_EQ(copy->identity, card->identity);
  EXPECT_EQ(copy->fingerprint, card->fingerprint);
  EXPECT_EQ(copy->randomised, card->randomised);
  EXPECT_EQ(copy->settings, card->settings);
  ASSERT_EQ(copy->libraries.size(), card->libraries.size());
  EXPECT_EQ(copy->libraries[0].base, card->libraries[0].base);
  EXPECT_EQ(disagreement({*copy, *copy}), card->randomised ? disagreement({*card}) : "agreement");
}

// These are all variables that make a Config, except those of a node of its own. A new setting of the run belongs here,
// too.
TEST(NodeCard, EverySettingOfTheRunTravels) {
  const std::map<std::string, std::string> chosen = {
      {"MULTIGRAIN_PROCS_PER_NODE", "3"},  {"MULTIGRAIN_PAGE_SIZE", "16384"},
      {"MULTIGRAIN_REGION_SIZE", "1G"},    {"MULTIGRAIN_PROTOCOL", "hlrc"},
      {"MULTIGRAIN_ACCESS", "mprotect"},   {"MULTIGRAIN_NET", "latency=7us"},
      {"MULTIGRAIN_STATS", "json:a.json"}, {"MULTIGRAIN_HOME", "blocked"},
      {"MULTIGRAIN_PREFETCH", "5"},        {"MULTIGRAIN_CLOCK", "virtual"},
      {"MULTIGRAIN_CLOCK_SCALE", "2,3"},   {"MULTIGRAIN_SKEW", "9us"},
      {"MULTIGRAIN_MACHINE", "alewife"},   {"MULTIGRAIN_MGS", "reads=message"},
      {"MULTIGRAIN_HLRC", "coalesce=off"}, {"MULTIGRAIN_VERBOSE", "1"},
      {"MULTIGRAIN_TIMEOUT", "6"},         {"MULTIGRAIN_LINE_SIZE", "256"},
      {"MULTIGRAIN_BLOCK_SIZE", "512"},    {"MULTIGRAIN_MODEL", "rc"},
      {"MULTIGRAIN_CHECK", "1"},           {"MULTIGRAIN_CALLS", "trap"},
      {"MULTIGRAIN_LOCAL_FILES", "/a:/b"}, {"MULTIGRAIN_RACES", "0"},
      {"MULTIGRAIN_TIMELINE", "t.html"},   {"MULTIGRAIN_SEED", "3"},
      {"MULTIGRAIN_PERTURB", "9us"},       {"MULTIGRAIN_CACHES", "off"},
      {"MULTIGRAIN_POLICY", "ace"},        {"MULTIGRAIN_CHECK_RACES", "1"},
      {"MULTIGRAIN_CHECKPOINT", "/c"},     {"MULTIGRAIN_CHECKPOINT_EVERY", "9s"},
      {"MULTIGRAIN_RESTART", "/c"},        {"MULTIGRAIN_RACES_MEMORY", "64M"}};
  for (const auto& [name, value] : chosen) setenv(name.c_str(), value.c_str(), 1);
  setenv("MULTIGRAIN_INTERFACE", "eth7", 1);
  const auto card = decode(encode(*describe_this_node(true)));
  for (const auto& [name, value] : chosen) unsetenv(name.c_str());
  unsetenv("MULTIGRAIN_INTERFACE");
  ASSERT_TRUE(card) << card.error().message;
  EXPECT_EQ((std::map<std::string, std::string>(card->settings.begin(), card->settings.end())), chosen);

  adopt_settings(*card);
  // These exclude virtual time or HLRC, which others of them want.
  for (const char* name : {"MULTIGRAIN_MACHINE", "MULTIGRAIN_SEED", "MULTIGRAIN_PERTURB", "MULTIGRAIN_POLICY",
                           "MULTIGRAIN_CHECK", "MULTIGRAIN_CHECK_RACES", "MULTIGRAIN_RACES_MEMORY"})
    unsetenv(name);
  const auto config = config_from_environment();
  for (const auto& [name, value] : chosen) unsetenv(name.c_str());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->protocol, "hlrc");
  EXPECT_FALSE(config->hlrc.coalesce);
  EXPECT_EQ(config->mgs.reads, MgsReads::kByMessage);
  EXPECT_EQ(config->skew, 9000u);
  EXPECT_EQ(config->line_size, 256u);
  EXPECT_EQ(run_settings().size(), chosen.size()) << "a setting that this test does not know";
}

TEST(NodeCard, SettingsOfNode0AreEverybodys) {
  setenv("MULTIGRAIN_PAGE_SIZE", "8192", 1);
  NodeCard node_0 = card_of("ant");
  node_0.settings = {{"MULTIGRAIN_PROCS_PER_NODE", "3"}};
  adopt_settings(node_0);
  EXPECT_EQ(getenv("MULTIGRAIN_PAGE_SIZE"), nullptr);
  EXPECT_STREQ(getenv("MULTIGRAIN_PROCS_PER_NODE"), "3");
  unsetenv("MULTIGRAIN_PROCS_PER_NODE");
}

TEST(Agreement, IsWhatEqualCardsGet) {
  EXPECT_EQ(disagreement(three()), "agreement");
}

TEST(Agreement, NamesTheHostThatRunsAnotherProgram) {
  auto cards = three();
  cards[2].identity = "ff00";
  cards[2].program = "/opt/old/water";
  EXPECT_THAT(disagreement(cards), AllOf(HasSubstr("node 2 on host cat runs /opt/old/water with build id ff00"),
                                         HasSubstr("node 0 on host ant")));
}

TEST(Agreement, NamesWhatElseDiffers) {
  auto cards = three();
  cards[1].version = "0.9";
  EXPECT_THAT(disagreement(cards), HasSubstr("node 1 on host bee has Multigrain 0.9"));
  cards = three();
  cards[0].randomised = true;
  EXPECT_THAT(disagreement(cards), HasSubstr("address randomisation is on for node 0 on host ant"));
  cards = three();
  cards[1].fingerprint = 8;
  EXPECT_THAT(disagreement(cards), HasSubstr("node 1 on host bee has the program's variables at other addresses"));
  cards = three();
  cards[1].libraries[0].identity = "beef";
  EXPECT_THAT(disagreement(cards), HasSubstr("node 1 on host bee has another build of the library libc.so.6"));
  cards = three();
  cards[2].libraries[1].base += 4096;
  EXPECT_THAT(disagreement(cards), HasSubstr("node 2 on host cat has the library libm.so.6 at address 0x7ffff7b01000"));
  cards = three();
  cards[2].libraries.pop_back();
  EXPECT_THAT(disagreement(cards), HasSubstr("library libm.so.6 loaded, node 2 on host cat has not"));
  cards = three();
  cards[1].libraries.push_back({"libfake.so", "", 1});
  EXPECT_THAT(disagreement(cards), HasSubstr("node 1 on host bee has the library libfake.so loaded"));
}

TEST(NodeCard, NonsenseIsRefused) {
  EXPECT_FALSE(decode({}));
  const Card good = encode(card_of("ant"));
  ASSERT_TRUE(decode(good));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode(Card(good.begin(), good.begin() + static_cast<ptrdiff_t>(length)))) << length;
  NodeCard strange = card_of("ant");
  strange.settings = {{"LD_PRELOAD", "/tmp/evil.so"}};
  EXPECT_FALSE(decode(encode(strange))) << "only settings of Multigrain are taken";
  // However a card is damaged, it is refused or read, and nothing else happens.
  std::mt19937 random(1u);
  unsigned refused = 0;
  for (unsigned i = 0; i < 20000; ++i) {
    Card bad = good;
    for (unsigned n = 1 + random() % 4; n != 0; --n)
      bad[random() % bad.size()] = static_cast<std::byte>(random() % 256);
    if (!decode(bad)) ++refused;
  }
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace multigrain
