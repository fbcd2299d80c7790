#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace multigrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SizeTest, PowersOfTwo) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("16K"), 16384u);
  EXPECT_EQ(parse_size("16k"), 16384u);
  EXPECT_EQ(parse_size("64KiB"), 65536u);
  EXPECT_EQ(parse_size("3M"), uint64_t{3} << 20);
  EXPECT_EQ(parse_size("64G"), uint64_t{64} << 30);
  EXPECT_EQ(parse_size("16TiB"), uint64_t{16} << 40);
  EXPECT_EQ(parse_size("18446744073709551615"), ~uint64_t{0});
}

TEST(SizeTest, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"", "K", "-1", "+1", " 1", "1 ", "1.5K", "0x10", "1KB", "1KiBs", "1X", "1Ki",
                           "18446744073709551616", "18014398509481984K", "16777216T"}) {
    EXPECT_FALSE(parse_size(text)) << "accepted '" << text << "'";
  }
  EXPECT_EQ(parse_size("1KB").error().message,
            "size '1KB' is not understood; it must be a whole number of bytes, or one with K, M, G or T such as 64K");
}

TEST(StatsTest, FormatsAndFiles) {
  EXPECT_EQ(parse_stats("none")->format, StatsFormat::kNone);
  EXPECT_EQ(parse_stats("text")->format, StatsFormat::kText);
  EXPECT_EQ(parse_stats("json")->format, StatsFormat::kJson);
  EXPECT_EQ(parse_stats("json")->file, "");
  EXPECT_EQ(parse_stats("json:a:b.json")->file, "a:b.json");
  for (const char* text : {"", "xml", "json:", "none:file", "JSON"}) EXPECT_FALSE(parse_stats(text)) << text;
}

TEST(NamesTest, AccessAndHome) {
  EXPECT_EQ(parse_access("auto"), AccessMechanism::kAutomatic);
  EXPECT_EQ(parse_access("userfault"), AccessMechanism::kUserfault);
  EXPECT_EQ(parse_access("mprotect"), AccessMechanism::kMprotect);
  EXPECT_EQ(parse_calls("jump"), CallsBy::kJump);
  EXPECT_EQ(parse_calls("trap"), CallsBy::kTrap);
  EXPECT_EQ(parse_calls("x").error().message, "it is 'x'; it must be jump or trap");
  EXPECT_EQ(parse_access("x").error().message, "access mechanism is 'x'; it must be auto, userfault or mprotect");
  EXPECT_EQ(parse_folders("/a//b/:/c/../d:/").value(), (std::vector<std::string>{"/a/b", "/d", "/"}));
  EXPECT_TRUE(parse_folders("x").value().front().ends_with("/x"));
  EXPECT_EQ(parse_folders("x").value().front().front(), '/');
  for (const char* text : {"", ":", "/a:", ":/a", "/a::/b"}) EXPECT_FALSE(parse_folders(text)) << text;
  EXPECT_EQ(parse_home("auto").value(), std::nullopt);
  EXPECT_EQ(parse_home("interleaved").value(), HomePolicy::kInterleaved);
  EXPECT_EQ(parse_home("blocked").value(), HomePolicy::kBlocked);
  EXPECT_EQ(parse_home("first-touch").value(), HomePolicy::kFirstTouch);
  EXPECT_FALSE(parse_home("node"));
}

TEST(ValidateTest, NamesEverySettingThatIsOutOfRange) {
  ASSERT_TRUE(validate(Config{}));
  const auto message = [](auto&& change) {
    Config config;
    change(config);
    const Status status = validate(config);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(message([](Config& c) { c.nodes = 0; }),
            "the number of nodes is 0; it must be from 1 to 1024 (--nodes or MULTIGRAIN_NODES)");
  EXPECT_THAT(message([](Config& c) { c.nodes = 1025; }), HasSubstr("nodes is 1025; it must be from 1 to 1024"));
  EXPECT_THAT(message([](Config& c) { c.nodes = 257; }),
              HasSubstr("nodes is 257; it must be from 1 to 256, or to 1024 in counted time"));
  for (const unsigned nodes : {256u, 1024u})
    EXPECT_EQ(message([&](Config& c) {
                c.nodes = nodes;
                c.clock = nodes > 256 ? ClockKind::kCounted : ClockKind::kVirtual;
                c.processors_per_node = 16384 / nodes;
              }),
              "accepted");
  EXPECT_THAT(message([](Config& c) {
                c.nodes = 256;
                c.processors_per_node = 65;
              }),
              HasSubstr("256 nodes of 65 processors are 16640 processors; a machine has at most 16384"));
  const auto of_65_nodes = [&](auto&& change) {
    return message([&](Config& c) {
      c.nodes = 65;
      change(c);
    });
  };
  EXPECT_THAT(of_65_nodes([](Config& c) { c.protocol = "sc"; }), HasSubstr("the protocol sc has room for 64 nodes"));
  EXPECT_THAT(of_65_nodes([](Config& c) { c.protocol = "placement"; }),
              HasSubstr("the protocol placement has room for 64 nodes"));
  EXPECT_THAT(of_65_nodes([](Config& c) { c.fabric = FabricKind::kUcx; }), HasSubstr("connects at most 64 nodes"));
  EXPECT_THAT(of_65_nodes([](Config& c) { c.races = true; }), HasSubstr("--races has a clock of at most 64 nodes"));
  EXPECT_THAT(of_65_nodes([](Config& c) { c.mgs.reads = MgsReads::kOneSided; }),
              HasSubstr("on machines of at most 64 nodes"));
  EXPECT_FALSE([] {
    Config config;
    config.nodes = 65;
    return config.mgs_reads_one_sided();
  }());
  EXPECT_THAT(message([](Config& c) { c.processors_per_node = 0; }),
              HasSubstr("a node is 0; it must be from 1 to 256"));
  EXPECT_THAT(message([](Config& c) { c.processors_per_node = 257; }), HasSubstr("a node is 257"));
  for (size_t bytes : {size_t{0}, size_t{2048}, size_t{5000}, size_t{131072}})
    EXPECT_THAT(message([&](Config& c) { c.page_size = bytes; }), HasSubstr("a power of two from 4096 to 65536"));
  for (uint64_t bytes : {uint64_t{0}, uint64_t{65536}, (uint64_t{1} << 30) + 4096, uint64_t{32} << 40})
    EXPECT_THAT(message([&](Config& c) { c.region_size = bytes; }), HasSubstr("a multiple of 64K from 1M to 16T"));
  EXPECT_THAT(message([](Config& c) { c.protocol = "msg"; }), HasSubstr("'msg'; it must be auto, mgs"));
  EXPECT_THAT(message([](Config& c) { c.home = HomePolicy::kNode; }), HasSubstr("interleaved, blocked or first-touch"));
  EXPECT_THAT(message([](Config& c) { c.node = NodeId(1); }), HasSubstr("this is node 1 of 1"));
  EXPECT_EQ(message([](Config& c) {
              c.nodes = 64;
              c.processors_per_node = 256;
              c.page_size = 65536;
              c.region_size = uint64_t{1} << 20;
              c.node = NodeId(63);
            }),
            "accepted");
}

class EnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  static std::string error_with(const char* name, const char* value) {
    set(name, value);
    const auto config = config_from_environment();
    ::unsetenv(name);
    return config ? std::string("accepted") : config.error().message;
  }

 private:
  static void clear() {
    for (const char* name : run_settings()) ::unsetenv(name);
    for (const char* name : {"MULTIGRAIN_NODES", "MULTIGRAIN_NODE", "MULTIGRAIN_JOB_FD", "MULTIGRAIN_FABRIC",
                             "MULTIGRAIN_INTERFACE", "MULTIGRAIN_WIREUP"})
      ::unsetenv(name);
  }
};

TEST_F(EnvironmentTest, NothingSetIsOneNode) {
  const auto config = config_from_environment();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->nodes, 1u);
  EXPECT_EQ(config->processors(), 1u);
  EXPECT_EQ(config->page_size, 4096u);
  EXPECT_EQ(config->region_size, uint64_t{16} << 40);
  EXPECT_EQ(config->job_fd, -1);
  EXPECT_EQ(config->home, std::nullopt) << "the protocol of an allocation decides";
  EXPECT_EQ(config->line_size, 64u);
}

TEST(Config, MemoryIsAtHomeWhereItIsTouchedFirstIfThatPays) {
  const auto home = [](const Config& config, std::string_view protocol) {
    return config.home_under(*find_protocol(&ProtocolTraits::name, protocol));
  };
  Config config;
  for (const auto* protocol : {"mgs", "hlrc", "sc", "placement", "dszoom", "shasta"})
    EXPECT_EQ(home(config, protocol), HomePolicy::kFirstTouch) << protocol;
  config.fabric = FabricKind::kUcx;
  for (const auto* protocol : {"mgs", "sc"}) EXPECT_EQ(home(config, protocol), HomePolicy::kInterleaved) << protocol;
  for (const auto* protocol : {"hlrc", "dszoom", "shasta"})
    EXPECT_EQ(home(config, protocol), HomePolicy::kFirstTouch) << protocol;
  config.fabric = FabricKind::kShm;
  config.clock = ClockKind::kVirtual;
  for (const auto* protocol : {"mgs", "sc", "dszoom", "shasta"})
    EXPECT_EQ(home(config, protocol), HomePolicy::kInterleaved) << protocol;
  EXPECT_EQ(home(config, "hlrc"), HomePolicy::kFirstTouch);
  config.home = HomePolicy::kBlocked;
  EXPECT_EQ(home(config, "hlrc"), HomePolicy::kBlocked);
}

TEST(Config, ChoosesThePageProtocolByWhatARemoteAccessCosts) {
  Config config;
  EXPECT_EQ(config.traits().name, "hlrc");
  config.fabric = FabricKind::kUcx;
  EXPECT_EQ(config.traits().name, "mgs");
  config = {};
  config.clock = ClockKind::kVirtual;
  EXPECT_EQ(config.traits().name, "mgs");
  config = {};
  config.network.latency_ns = 1000;
  EXPECT_EQ(config.traits().name, "mgs");
  config.protocol = "shasta";
  EXPECT_EQ(config.traits().name, "shasta");
}

TEST(Config, PlacementRunsOverNetworksAndInWallClockTimeAlone) {
  Config config;
  config.protocol = "placement";
  EXPECT_TRUE(validate(config));
  config.fabric = FabricKind::kUcx;
  EXPECT_TRUE(validate(config));
  config.fabric = FabricKind::kShm;
  for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kCounted}) {
    config.clock = clock;
    EXPECT_THAT(validate(config).error().message, HasSubstr("leave out --clock"));
  }
  config.clock = ClockKind::kWall;
  config.network.latency_ns = 1000;
  EXPECT_TRUE(validate(config));
}

TEST(Config, OnlyPlacementHasAPolicy) {
  Config config;
  config.policy_given = true;
  EXPECT_THAT(validate(config).error().message, HasSubstr("the protocol of this run is hlrc (--policy"));
  config.protocol = "placement";
  EXPECT_TRUE(validate(config));
}

TEST(Config, OnlyTheCountedClockHasAMachine) {
  Config config;
  config.machine_text = "alewife";
  for (const ClockKind clock : {ClockKind::kWall, ClockKind::kVirtual}) {
    config.clock = clock;
    EXPECT_EQ(validate(config).error().message,
              "--machine prices what the counted clock counts; give --clock counted (--machine or MULTIGRAIN_MACHINE)");
  }
  config.clock = ClockKind::kCounted;
  EXPECT_TRUE(validate(config));
  config.fabric = FabricKind::kUcx;
  EXPECT_THAT(validate(config).error().message, HasSubstr("needs fabric shm and no hosts"));
}

TEST(Config, ProcessorsStartLateInCountedTimeAlone) {
  Config config;
  config.seed = 0;
  for (const ClockKind clock : {ClockKind::kWall, ClockKind::kVirtual}) {
    config.clock = clock;
    EXPECT_THAT(validate(config).error().message, HasSubstr("--seed makes processors start late in counted time"));
  }
  config.clock = ClockKind::kCounted;
  EXPECT_TRUE(validate(config));
  config.perturb = 5000;
  EXPECT_TRUE(validate(config));
  config.seed.reset();
  EXPECT_THAT(validate(config).error().message, HasSubstr("give a seed, too (--perturb or MULTIGRAIN_PERTURB)"));
}

TEST(Config, CountedTimeIsOfEveryProtocol) {
  Config config;
  config.clock = ClockKind::kCounted;
  for (const char* const protocol : {"auto", "mgs", "hlrc", "sc", "dszoom", "shasta"}) {
    config.protocol = protocol;
    EXPECT_TRUE(validate(config)) << protocol;
  }
}

TEST(Config, CountedTimeIsNotScaled) {
  Config config;
  config.clock = ClockKind::kCounted;
  config.clock_scale.protocol = 2;
  EXPECT_THAT(validate(config).error().message, HasSubstr("--clock-scale scales CPU time"));
}

TEST(Config, UnderTheCountedClockNodesShareNoMemory) {
  Config config;
  config.clock = ClockKind::kCounted;
  EXPECT_FALSE(config.shares_memory());
  EXPECT_EQ(config.traits().name, "mgs");
  EXPECT_EQ(config.home_under(config.traits()), HomePolicy::kInterleaved);
}

TEST_F(EnvironmentTest, KnowsWhetherANetworkWasGiven) {
  EXPECT_FALSE(config_from_environment()->network_given);
  set("MULTIGRAIN_NET", "ideal");
  EXPECT_TRUE(config_from_environment()->network_given);
}

TEST_F(EnvironmentTest, ReadsEveryVariable) {
  set("MULTIGRAIN_NODES", "4");
  set("MULTIGRAIN_PROCS_PER_NODE", "2");
  set("MULTIGRAIN_PAGE_SIZE", "16K");
  set("MULTIGRAIN_REGION_SIZE", "64G");
  set("MULTIGRAIN_PROTOCOL", "mgs");
  set("MULTIGRAIN_ACCESS", "mprotect");
  set("MULTIGRAIN_NET", "latency=5us");
  set("MULTIGRAIN_STATS", "json:out.json");
  set("MULTIGRAIN_HOME", "first-touch");
  set("MULTIGRAIN_VERBOSE", "1");
  set("MULTIGRAIN_NODE", "3");
  set("MULTIGRAIN_JOB_FD", "7");
  const auto config = config_from_environment();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->nodes, 4u);
  EXPECT_EQ(config->processors_per_node, 2u);
  EXPECT_EQ(config->processors(), 8u);
  EXPECT_EQ(config->node_of(ProcessorId(5)), NodeId(2));
  EXPECT_EQ(config->page_size, 16384u);
  EXPECT_EQ(config->region_size, uint64_t{64} << 30);
  EXPECT_EQ(config->access, AccessMechanism::kMprotect);
  EXPECT_EQ(config->network.latency_ns, 5000u);
  EXPECT_EQ(config->stats, StatsFormat::kJson);
  EXPECT_EQ(config->stats_file, "out.json");
  EXPECT_EQ(config->home, HomePolicy::kFirstTouch);
  EXPECT_TRUE(config->verbose);
  EXPECT_EQ(config->node, NodeId(3));
  EXPECT_EQ(config->job_fd, 7);
}

TEST_F(EnvironmentTest, ErrorsNameTheVariableTheValueAndWhatIsAllowed) {
  EXPECT_EQ(error_with("MULTIGRAIN_NODES", "0"), "MULTIGRAIN_NODES is '0'; it must be a whole number from 1 to 1024");
  EXPECT_EQ(error_with("MULTIGRAIN_NODES", "two"),
            "MULTIGRAIN_NODES is 'two'; it must be a whole number from 1 to 1024");
  EXPECT_THAT(error_with("MULTIGRAIN_NODES", ""), HasSubstr("MULTIGRAIN_NODES is ''"));
  EXPECT_THAT(error_with("MULTIGRAIN_NODES", "18446744073709551617"), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(error_with("MULTIGRAIN_PROCS_PER_NODE", "300"), HasSubstr("is '300'; it must be a whole number from 1"));
  EXPECT_THAT(error_with("MULTIGRAIN_PAGE_SIZE", "5000"), HasSubstr("MULTIGRAIN_PAGE_SIZE"));
  EXPECT_THAT(error_with("MULTIGRAIN_PAGE_SIZE", "big"), HasSubstr("MULTIGRAIN_PAGE_SIZE: size 'big'"));
  EXPECT_THAT(error_with("MULTIGRAIN_REGION_SIZE", "4"), HasSubstr("MULTIGRAIN_REGION_SIZE"));
  EXPECT_THAT(error_with("MULTIGRAIN_PROTOCOL", "x"), HasSubstr("MULTIGRAIN_PROTOCOL"));
  EXPECT_THAT(error_with("MULTIGRAIN_ACCESS", "x"), HasSubstr("MULTIGRAIN_ACCESS: access mechanism is 'x'"));
  EXPECT_THAT(error_with("MULTIGRAIN_NET", "x"), HasSubstr("MULTIGRAIN_NET: network model 'x'"));
  EXPECT_THAT(error_with("MULTIGRAIN_STATS", "x"), HasSubstr("MULTIGRAIN_STATS: statistics are 'x'"));
  EXPECT_THAT(error_with("MULTIGRAIN_HOME", "node"), HasSubstr("MULTIGRAIN_HOME: default home is 'node'"));
  EXPECT_THAT(error_with("MULTIGRAIN_VERBOSE", "2"), HasSubstr("MULTIGRAIN_VERBOSE is '2'"));
  EXPECT_THAT(error_with("MULTIGRAIN_FABRIC", "tcp"), HasSubstr("MULTIGRAIN_FABRIC: fabric is 'tcp'"));
  EXPECT_THAT(error_with("MULTIGRAIN_INTERFACE", ""), HasSubstr("MULTIGRAIN_INTERFACE"));
  EXPECT_THAT(error_with("MULTIGRAIN_TIMEOUT", "-1"), HasSubstr("MULTIGRAIN_TIMEOUT: time-out is '-1'"));
  EXPECT_THAT(error_with("MULTIGRAIN_TIMEOUT", "0.01"), HasSubstr("from 0.1 to 3600"));
  EXPECT_THAT(error_with("MULTIGRAIN_TIMEOUT", "4 s"), HasSubstr("time-out is '4 s'"));
  EXPECT_THAT(error_with("MULTIGRAIN_NODE", "1"), HasSubstr("MULTIGRAIN_NODE"));
  EXPECT_THAT(error_with("MULTIGRAIN_JOB_FD", "-1"), HasSubstr("MULTIGRAIN_JOB_FD is '-1'"));
}

TEST_F(EnvironmentTest, SeveralNodesNeedALauncher) {
  EXPECT_THAT(error_with("MULTIGRAIN_NODES", "2"), HasSubstr("start the program with mgrun --nodes 2"));
}

TEST(Settings, AreOfTheRunOrOfANode) {
  const std::vector<const char*> names = run_settings();
  const std::vector<std::string> of_the_run(names.begin(), names.end());
  EXPECT_THAT(of_the_run, Contains("MULTIGRAIN_HLRC"));
  EXPECT_THAT(of_the_run, Contains("MULTIGRAIN_MGS"));
  for (const char* own : {"MULTIGRAIN_NODES", "MULTIGRAIN_FABRIC", "MULTIGRAIN_INTERFACE", "MULTIGRAIN_WIREUP",
                          "MULTIGRAIN_NODE", "MULTIGRAIN_JOB_FD"})
    EXPECT_THAT(of_the_run, Not(Contains(own)));
  EXPECT_TRUE(is_told_to_a_node("MULTIGRAIN_PIN"));
  for (const std::string& name : of_the_run) EXPECT_FALSE(is_told_to_a_node(name)) << name;
}

TEST(Options, OfHlrc) {
  EXPECT_EQ(parse_hlrc("fetch-ahead=64,coalesce=off")->fetch_ahead, 64u);
  EXPECT_FALSE(parse_hlrc("chains=off")->chains);
  for (const char* text : {"fetch-ahead=65", "fetch-ahead=", "fetch-ahead=1x", "fetch-ahead=4294967297", "x"})
    EXPECT_FALSE(parse_hlrc(text)) << text;
}

TEST(Config, NodesReadByThemselvesUnderMgsWhereThatIsAsked) {
  Config config;
  config.nodes = 2;
  EXPECT_TRUE(config.mgs_reads_one_sided()) << "the nodes share this machine's memory";
  config.clock = ClockKind::kVirtual;
  EXPECT_FALSE(config.mgs_reads_one_sided());
  config.mgs = *parse_mgs("reads=one-sided");
  EXPECT_TRUE(config.mgs_reads_one_sided());
  config.clock = ClockKind::kWall;
  config.mgs = *parse_mgs("reads=message");
  EXPECT_FALSE(config.mgs_reads_one_sided());
  for (const char* text : {"", "reads", "reads=", "reads=onesided", "reads=message,", "translation=", "hand-on=on"})
    EXPECT_FALSE(parse_mgs(text)) << text;
}

TEST(Config, CompiledTranslationHasSmallerPagesAndCleanLocks) {
  Config config;
  config.nodes = 2;
  config.protocol = "mgs";
  EXPECT_TRUE(config.mgs.hands_on_dirty());
  config.page_size = 1024;
  EXPECT_FALSE(validate(config)) << "a page of the MMU has 4096 bytes";
  config.mgs = *parse_mgs("translation=compiled");
  EXPECT_TRUE(validate(config));
  EXPECT_TRUE(config.translates());
  EXPECT_FALSE(config.mgs_reads_one_sided());
  EXPECT_FALSE(config.mgs.hands_on_dirty());
  settle_translation(config);
  EXPECT_EQ(config.prefetch, 0u);
  EXPECT_EQ(config.region_size, uint64_t{1} << 40);
  config.page_size = 512;
  EXPECT_FALSE(validate(config));
  config.page_size = 1024;
  config.processors_per_node = 64;
  EXPECT_FALSE(validate(config));
  config.processors_per_node = 63;
  EXPECT_TRUE(validate(config));
  for (const char* text : {"translation=compiled,hand-on=dirty", "reads=one-sided,translation=compiled"}) {
    config.mgs = *parse_mgs(text);
    EXPECT_FALSE(validate(config)) << text;
  }
  config.mgs = *parse_mgs("translation=compiled,hand-on=clean");
  EXPECT_TRUE(validate(config));
  config.protocol = "hlrc";
  EXPECT_FALSE(validate(config));
  EXPECT_FALSE(parse_mgs("hand-on=clean")->hands_on_dirty());
}

TEST(SilenceLimit, IsInSeconds) {
  EXPECT_EQ(*parse_silence_limit("4"), Nanoseconds{4'000'000'000});
  EXPECT_EQ(*parse_silence_limit("0.5s"), Nanoseconds{500'000'000});
  EXPECT_EQ(*parse_silence_limit("0"), Nanoseconds{0});
}

}  // namespace
}  // namespace multigrain
