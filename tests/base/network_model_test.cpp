#include "base/network_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace multigrain {
namespace {

using ::testing::HasSubstr;

TEST(NetworkModelTest, Presets) {
  ASSERT_TRUE(parse_network_model("ideal"));
  EXPECT_TRUE(parse_network_model("ideal")->ideal());
  ASSERT_TRUE(parse_network_model("lan"));
  EXPECT_EQ(parse_network_model("lan")->latency_ns, 50'000u);
  EXPECT_EQ(parse_network_model("lan")->bytes_per_ns, 0);
}

TEST(NetworkModelTest, EveryPresetHasItsFiguresAndItsSource) {
  ASSERT_GE(network_presets().size(), 10u);
  for (const NetworkPreset& preset : network_presets()) {
    const auto model = parse_network_model(preset.name);
    ASSERT_TRUE(model) << preset.name << ": " << model.error().message;
    EXPECT_EQ(*model, preset.model) << preset.name;
    EXPECT_EQ(model->ideal(), preset.name == "ideal") << preset.name;
    EXPECT_FALSE(preset.source.empty()) << preset.name;
    const std::string table = render_network_presets();
    EXPECT_THAT(table, HasSubstr(std::string(preset.name) + " "));
    EXPECT_THAT(table, HasSubstr(format_network_model(preset.model)));
  }
}

TEST(NetworkModelTest, FiguresOfThePapers) {
  EXPECT_EQ(format_network_model(*parse_network_model("mgs")), "latency=50us");
  EXPECT_EQ(format_network_model(*parse_network_model("myrinet")), "latency=14us,bandwidth=96MB/s");
  EXPECT_EQ(format_network_model(*parse_network_model("origin2000")), "latency=110ns,bandwidth=555MB/s");
  EXPECT_EQ(format_network_model(*parse_network_model("memory-channel")), "latency=4us,bandwidth=60MB/s");
  // A remote operation takes two latencies.
  EXPECT_EQ(2 * parse_network_model("dszoom")->latency_ns, 2'000u);
  EXPECT_EQ(2 * parse_network_model("dszoom-15us")->latency_ns, 15'000u);
}

TEST(NetworkModelTest, FiguresReplaceAPresetsOwn) {
  const auto model = parse_network_model("myrinet,handler=42us,latency=20us");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->latency_ns, 20'000u);
  EXPECT_EQ(model->handler_ns, 42'000u);
  EXPECT_DOUBLE_EQ(model->bytes_per_ns, 0.096);
  EXPECT_TRUE(parse_network_model("handler=5us")->ideal());
}

TEST(NetworkModelTest, FormattedModelsReadBackAsTheyWere) {
  for (const char* text : {"ideal", "latency=1.5us,bandwidth=96MB/s,occupancy=2ms,handler=3ns", "bandwidth=0.3B/s",
                           "latency=1ns", "latency=10000ms,bandwidth=123.456GB/s"}) {
    const auto model = parse_network_model(text);
    ASSERT_TRUE(model) << text;
    EXPECT_EQ(format_network_model(*model), text);
    EXPECT_EQ(*parse_network_model(format_network_model(*model)), *model) << text;
  }
}

TEST(NetworkModelTest, ListsInAnyOrderAndUnit) {
  const auto model = parse_network_model("bandwidth=96MB/s,latency=1.5us,occupancy=2ms");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->latency_ns, 1500u);
  EXPECT_DOUBLE_EQ(model->bytes_per_ns, 0.096);
  EXPECT_EQ(model->occupancy_ns, 2'000'000u);
  EXPECT_FALSE(model->ideal());
  EXPECT_EQ(parse_network_model("latency=17ns")->latency_ns, 17u);
  EXPECT_DOUBLE_EQ(parse_network_model("bandwidth=2GB/s")->bytes_per_ns, 2);
  EXPECT_DOUBLE_EQ(parse_network_model("bandwidth=500KB/s")->bytes_per_ns, 0.0005);
  EXPECT_DOUBLE_EQ(parse_network_model("bandwidth=1000000B/s")->bytes_per_ns, 0.001);
  EXPECT_TRUE(parse_network_model("latency=0us")->ideal());
}

TEST(NetworkModelTest, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"",
                           "fast",
                           "LAN",
                           "latency",
                           "latency=",
                           "latency=50",
                           "latency=us",
                           "latency=-1us",
                           "latency=1e3us",
                           "latency=infus",
                           "latency=nanus",
                           "latency=11s",
                           "latency=20000ms",
                           "latency=1us,",
                           ",latency=1us",
                           "latency=1us,latency=2us",
                           "speed=1us",
                           "bandwidth=0MB/s",
                           "bandwidth=-1MB/s",
                           "bandwidth=5",
                           "bandwidth=5us",
                           "latency=5MB/s",
                           "handler=5",
                           "handler=1us,handler=1us",
                           "latency=1us,mgs",
                           "mgs,lan",
                           "mgs,",
                           "mgs,speed=1us",
                           "latency=1us lan"}) {
    const auto model = parse_network_model(text);
    EXPECT_FALSE(model) << "accepted '" << text << "'";
  }
  EXPECT_THAT(parse_network_model("latency=50").error().message,
              HasSubstr("latency is '50'; it must be a time of at most 10 s such as 50us, in ns, us or ms"));
  EXPECT_THAT(parse_network_model("speed=1us").error().message,
              HasSubstr("at 'speed=1us'; it must be ideal, lan, another name"));
}

}  // namespace
}  // namespace multigrain
