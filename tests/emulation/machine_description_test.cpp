#include "emulation/machine_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace multigrain {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A description in which each figure has a value of its own.
ordered_json description() {
  ordered_json whole = {{"name", "model"}, {"what", "a model"}, {"source", "this test"}};
  ordered_json instructions = {{"unit", "cycles"}, {"source", "a book"}};
  int value = 1;
  for (const std::string_view name : counting::class_names()) instructions[std::string(name)] = value++;
  whole["processor"] = {{"clock", {{"value", 20}, {"unit", "MHz"}, {"source", "a book"}}},
                        {"instructions", instructions},
                        {"calls",
                         {{"unit", "cycles"},
                          {"source", "a book"},
                          {"default", 40},
                          {"sqrt", {{"value", 2.5}, {"unit", "us"}}},
                          {"memcpy", {{"fixed", 10}, {"per_byte", {{"value", 100}, {"unit", "MB/s"}}}}}}}};
  whole["network"] = {{"unit", "us"},
                      {"source", "a book"},
                      {"latency", 50},
                      {"bandwidth", {{"value", 96}, {"unit", "MB/s"}}},
                      {"occupancy", 1.5}};
  ordered_json costs = {{"unit", "ns"}, {"source", "a book"}};
  for (const std::string_view name : price_names()) costs[std::string(name)] = value++;
  whole["costs"] = costs;
  ordered_json caches = {{"unit", "cycles"}, {"source", "a book"}};
  caches["size"] = {{"value", 64}, {"unit", "KiB"}};
  caches["line"] = {{"value", 16}, {"unit", "bytes"}};
  caches["ways"] = 2;
  caches["replacement"] = "fifo";
  caches["pointers"] = 5;
  for (const char* const miss : {"local", "remote", "two_party", "three_party", "software"})
    for (const char* const what : {"read", "write"}) caches[fmt::format("{}_{}", miss, what)] = value++;
  whole["caches"] = caches;
  return whole;
}

std::string text_of(const ordered_json& json) {
  return json.dump(2);
}

// Returns the line of the text in which the key is for the first time behind `behind`.
size_t line_of(const std::string& text, const std::string& key, const std::string& behind = "") {
  const size_t at = text.find('"' + key + '"', text.find(behind));
  return 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

std::string error_of(const ordered_json& json) {
  const auto machine = parse_machine(text_of(json), "m.json");
  return machine ? "accepted" : machine.error().message;
}

TEST(MachineDescription, MaySayWhatTranslatedAccessesCost) {
  ordered_json json = description();
  EXPECT_FALSE(parse_machine(text_of(json), "m.json")->instructions.translation);
  json["processor"]["translation"] = {{"unit", "cycles"}, {"source", "a book"}, {"pointer", 23}, {"array", 16}};
  const auto machine = parse_machine(text_of(json), "m.json");
  ASSERT_TRUE(machine) << machine.error().message;
  const counting::TranslationCosts costs{.pointer = 1'150'000, .array = 800'000};
  ASSERT_TRUE(machine->instructions.translation);
  EXPECT_EQ(*machine->instructions.translation, costs);
  EXPECT_EQ(parse_machine(compact(*machine), "m.json")->instructions.translation, machine->instructions.translation);
  json["processor"]["translation"].erase("array");
  EXPECT_THAT(error_of(json), HasSubstr("processor.translation: 'array' is missing"));
  json["processor"]["translation"] = {{"unit", "cycles"}, {"source", "a book"}, {"pointer", 23}, {"array", -1}};
  EXPECT_THAT(error_of(json), HasSubstr("processor.translation.array: this is -1"));
}

TEST(MachineDescription, MaySayThatEachProcessorHandlesMessages) {
  ordered_json json = description();
  EXPECT_EQ(parse_machine(text_of(json), "m.json")->handlers, MachineDescription::Handlers::kOne);
  json["handlers"] = {{"value", "each processor"}, {"source", "a book"}};
  const auto machine = parse_machine(text_of(json), "m.json");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->handlers, MachineDescription::Handlers::kEachProcessor);
  EXPECT_EQ(parse_machine(compact(*machine), "m.json")->handlers, machine->handlers);
  json["handlers"]["value"] = "one";
  EXPECT_EQ(parse_machine(text_of(json), "m.json")->handlers, MachineDescription::Handlers::kOne);
  json["handlers"]["value"] = 2;
  EXPECT_THAT(error_of(json), HasSubstr(R"(handlers: this must be "one" or "each processor")"));
  json["handlers"] = "each processor";
  EXPECT_THAT(error_of(json), HasSubstr("handlers: this figure has no source"));
}

TEST(MachineDescription, HasTheFiguresOfItsFile) {
  const auto machine = parse_machine(text_of(description()), "m.json");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->name, "model");
  EXPECT_EQ(machine->what, "a model");
  EXPECT_EQ(machine->source, "this test");
  EXPECT_EQ(machine->clock_mhz, 20);
  for (size_t i = 0; i < MG_COUNT_INSTRUCTIONS; ++i)
    EXPECT_EQ(machine->instructions.of_class[i], (i + 1) * 50'000) << i;
  EXPECT_EQ(machine->instructions.other_calls.fixed, 2'000'000u);
  EXPECT_EQ(machine->instructions.other_calls.per_byte, 0u);
  EXPECT_EQ(machine->instructions.calls.at("sqrt").fixed, 2'500'000u);
  EXPECT_EQ(machine->instructions.calls.at("memcpy").fixed, 500'000u);
  EXPECT_EQ(machine->instructions.calls.at("memcpy").per_byte, 10'000u);
  EXPECT_EQ(machine->instructions.calls.size(), 2u);
  EXPECT_EQ(format_network_model(machine->network), "latency=50us,bandwidth=96MB/s,occupancy=1.5us");
  EXPECT_EQ(machine->costs.fault_entry, (MG_COUNT_INSTRUCTIONS + 1) * 1000u);
  EXPECT_EQ(machine->costs.node_miss, (MG_COUNT_INSTRUCTIONS + price_names().size()) * 1000u);
  EXPECT_EQ(machine->costs.revoke_call.at(64), machine->costs.grant_call.at(1) + 1000);
}

TEST(MachineDescription, ConvertsUnits) {
  for (const auto& [value, unit, expected] :
       {std::tuple(3.0, "cycles", 150'000), std::tuple(7.0, "ps", 7), std::tuple(0.25, "ns", 250),
        std::tuple(1.5, "us", 1'500'000), std::tuple(2.0, "ms", 2'000'000'000), std::tuple(0.5, "ps", 1)}) {
    ordered_json json = description();
    json["costs"]["transition"] = {{"value", value}, {"unit", unit}};
    const auto machine = parse_machine(text_of(json), "m.json");
    ASSERT_TRUE(machine) << machine.error().message;
    EXPECT_EQ(machine->costs.transition, static_cast<Picoseconds>(expected)) << value << unit;
  }
  for (const auto& [value, unit, expected] :
       {std::tuple(2.0, "cycles", 100'000), std::tuple(0.5, "ns", 500), std::tuple(250.0, "KB/s", 4'000'000),
        std::tuple(80.0, "MB/s", 12'500), std::tuple(4.0, "GB/s", 250)}) {
    ordered_json json = description();
    json["costs"]["twin_byte"] = {{"value", value}, {"unit", unit}};
    const auto machine = parse_machine(text_of(json), "m.json");
    ASSERT_TRUE(machine) << machine.error().message;
    EXPECT_EQ(machine->costs.twin_byte, static_cast<Picoseconds>(expected)) << value << unit;
  }
  ordered_json json = description();
  json["processor"]["clock"] = {{"value", 2.5}, {"unit", "GHz"}, {"source", "a book"}};
  EXPECT_EQ(parse_machine(text_of(json), "m.json")->clock_mhz, 2500);
  EXPECT_EQ(parse_machine(text_of(json), "m.json")->instructions.of_class[0], 400u);
}

TEST(MachineDescription, TakesACurveByProcessors) {
  ordered_json json = description();
  json["costs"]["revoke_call"] = {{"value", {{1, 10}, {5, 30}}}, {"unit", "us"}};
  json["costs"]["rights_page"] = ordered_json::array({{2, 1}});
  const auto machine = parse_machine(text_of(json), "m.json");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->costs.revoke_call.at(3), 20'000'000u);
  EXPECT_EQ(machine->costs.revoke_call.at(99), 30'000'000u);
  EXPECT_EQ(machine->costs.rights_page.at(1), 1000u);
}

TEST(MachineDescription, MayHaveANetworkOfAnyBandwidth) {
  ordered_json json = description();
  json["network"]["bandwidth"] = "unlimited";
  const auto machine = parse_machine(text_of(json), "m.json");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->network.bytes_per_ns, 0);
}

TEST(MachineDescription, MayHaveCaches) {
  ordered_json json = description();
  const auto machine = parse_machine(text_of(json), "m.json");
  ASSERT_TRUE(machine && machine->caches) << machine.error().message;
  const CacheDescription& caches = *machine->caches;
  EXPECT_EQ(caches.size, 65536u);
  EXPECT_EQ(caches.line, 16u);
  EXPECT_EQ(caches.ways, 2u);
  EXPECT_EQ(caches.replacement, CacheDescription::Replacement::kFifo);
  EXPECT_EQ(caches.pointers, 5u);
  // Cycles of 50 ns.
  const Picoseconds first = json["caches"]["local_read"].get<Picoseconds>() * 50'000;
  EXPECT_EQ(caches.local.read, first);
  EXPECT_EQ(caches.software.write, first + 9 * 50'000);
  json.erase("caches");
  const auto without = parse_machine(text_of(json), "m.json");
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_FALSE(without->caches);
}

TEST(MachineDescription, OfOneLineSaysTheSame) {
  ordered_json json = description();
  json["costs"]["revoke_call"] = {{"value", {{1, 10.5}, {5, 30}, {16, 3}}}, {"unit", "us"}};
  json["costs"]["twin_byte"] = {{"value", 77}, {"unit", "MB/s"}};
  json["network"]["bandwidth"] = {{"value", 5.25}, {"unit", "GB/s"}};
  for (const bool unlimited : {false, true}) {
    if (unlimited) json["network"]["bandwidth"] = "unlimited";
    const auto machine = parse_machine(text_of(json), "m.json");
    ASSERT_TRUE(machine) << machine.error().message;
    const std::string line = compact(*machine);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto again = parse_machine(line, "again");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->name, machine->name);
    EXPECT_EQ(again->what, machine->what);
    EXPECT_EQ(again->source, machine->source);
    EXPECT_EQ(again->clock_mhz, machine->clock_mhz);
    EXPECT_EQ(again->instructions.of_class, machine->instructions.of_class);
    EXPECT_EQ(again->instructions.other_calls.fixed, machine->instructions.other_calls.fixed);
    ASSERT_EQ(again->instructions.calls.size(), machine->instructions.calls.size());
    for (const auto& [name, cost] : machine->instructions.calls) {
      EXPECT_EQ(again->instructions.calls.at(name).fixed, cost.fixed) << name;
      EXPECT_EQ(again->instructions.calls.at(name).per_byte, cost.per_byte) << name;
    }
    EXPECT_EQ(again->network, machine->network);
    EXPECT_TRUE(again->costs == machine->costs);
    EXPECT_EQ(again->caches, machine->caches);
    EXPECT_EQ(compact(*again), line);
  }
}

// --- What is wrong in a description

struct Mistake {
  const char* name;
  void (*make)(ordered_json& json);
  // The key in whose line it is, behind another text; and what is said behind the line.
  const char* key;
  const char* behind;
  const char* says;
};

class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsToldWithFileLineAndKey) {
  ordered_json json = description();
  ASSERT_EQ(error_of(json), "accepted");
  GetParam().make(json);
  const std::string text = text_of(json);
  const std::string error = error_of(json);
  const size_t line = *GetParam().key == '\0' ? 1 : line_of(text, GetParam().key, GetParam().behind);
  EXPECT_THAT(error, StartsWith(fmt::format("m.json, line {}: {}", line, GetParam().says))) << text;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, MistakeTest,
    ::testing::Values(
        Mistake{"MissingPrice", [](ordered_json& j) { j["costs"].erase("flag"); }, "costs", "",
                "costs: 'flag' is missing"},
        Mistake{"MissingPart", [](ordered_json& j) { j.erase("network"); }, "", "", "'network' is missing"},
        Mistake{"MissingName", [](ordered_json& j) { j.erase("name"); }, "", "", "'name' is missing"},
        Mistake{"MissingClock", [](ordered_json& j) { j["processor"].erase("clock"); }, "processor", "",
                "processor: 'clock' is missing"},
        Mistake{"MissingClass", [](ordered_json& j) { j["processor"]["instructions"].erase("load"); }, "instructions",
                "", "processor.instructions: 'load' is missing"},
        Mistake{"MissingDefaultCall", [](ordered_json& j) { j["processor"]["calls"].erase("default"); }, "calls", "",
                "processor.calls: 'default' is missing"},
        Mistake{"MissingLatency", [](ordered_json& j) { j["network"].erase("latency"); }, "network", "",
                "network: 'latency' is missing"},
        Mistake{"MissingValue", [](ordered_json& j) { j["costs"]["spawn"] = {{"unit", "us"}}; }, "spawn", "",
                "costs.spawn: 'value' is missing"},
        Mistake{"MissingPartOfACall", [](ordered_json& j) { j["processor"]["calls"]["memcpy"].erase("fixed"); },
                "memcpy", "", "processor.calls.memcpy: 'fixed' is missing"},
        Mistake{"MissingMiss", [](ordered_json& j) { j["caches"].erase("remote_write"); }, "caches", "",
                "caches: 'remote_write' is missing"},
        Mistake{"UnknownInCaches", [](ordered_json& j) { j["caches"]["levels"] = 2; }, "levels", "",
                "caches.levels: there is no such key"},
        Mistake{"LineOfNoPower", [](ordered_json& j) { j["caches"]["line"]["value"] = 24; }, "line", "caches",
                "caches.line: this is 24 bytes; it must be a power of two"},
        Mistake{"SizeOfNoSets", [](ordered_json& j) { j["caches"]["ways"] = 3; }, "size", "caches",
                "caches.size: this is 65536 bytes, which are not a power of two of sets of 3 lines of 16 bytes"},
        Mistake{"HalfAPointer", [](ordered_json& j) { j["caches"]["pointers"] = 2.5; }, "pointers", "caches",
                "caches.pointers: this is 2.5; it must be a whole number from 0 to"},
        Mistake{"OtherReplacement", [](ordered_json& j) { j["caches"]["replacement"] = "random"; }, "replacement",
                "caches", "caches.replacement: this must be \"lru\" or \"fifo\""},
        Mistake{"SizeInCycles", [](ordered_json& j) { j["caches"]["size"] = 4096; }, "size", "caches",
                "caches.size: its unit is 'cycles'; it must be bytes, KiB or MiB"},
        Mistake{"UnknownPrice", [](ordered_json& j) { j["costs"]["flags"] = 1; }, "flags", "",
                "costs.flags: there is no such key; those that there are: fault_entry, "},
        Mistake{"UnknownPart", [](ordered_json& j) { j["node"] = 1; }, "node", "", "node: there is no such key"},
        Mistake{"UnknownClass", [](ordered_json& j) { j["processor"]["instructions"]["jump"] = 1; }, "jump", "",
                "processor.instructions.jump: there is no such key"},
        Mistake{"UnknownFigure", [](ordered_json& j) { j["network"]["handler"] = 1; }, "handler", "",
                "network.handler: there is no such key"},
        Mistake{"UnknownInAFigure", [](ordered_json& j) { j["costs"]["spawn"] = {{"value", 1}, {"units", "us"}}; },
                "units", "", "costs.spawn.units: there is no such key; those that there are: value, unit, source"},
        Mistake{"Negative", [](ordered_json& j) { j["costs"]["release"] = -3; }, "release", "",
                "costs.release: this is -3; it must not be negative"},
        Mistake{"NegativeInACurve", [](ordered_json& j) { j["costs"]["grant_call"] = {{1, 2}, {2, -1}}; }, "grant_call",
                "", "costs.grant_call: this is -1; it must not be negative"},
        Mistake{"NoNumber", [](ordered_json& j) { j["costs"]["release"] = "3"; }, "release", "",
                "costs.release: this must be a number"},
        Mistake{"NoNumberButNull", [](ordered_json& j) { j["costs"]["release"] = nullptr; }, "release", "",
                "costs.release: this must be a number"},
        Mistake{"NoNumberOfBytes", [](ordered_json& j) { j["network"]["bandwidth"] = true; }, "bandwidth", "",
                "network.bandwidth: this must be a number, or \"unlimited\""},
        Mistake{"NoGroup", [](ordered_json& j) { j["costs"] = 1; }, "costs", "",
                "costs: this must be an object with figures"},
        Mistake{"NoText", [](ordered_json& j) { j["what"] = 1; }, "what", "", "what: this must be a text"},
        Mistake{"EmptySource", [](ordered_json& j) { j["costs"]["source"] = ""; }, "source", "costs",
                "costs.source: this must be a text in quotation marks, and not an empty one"},
        Mistake{"ClockOfZero", [](ordered_json& j) { j["processor"]["clock"]["value"] = 0; }, "value", "clock",
                "processor.clock: this is 0 MHz; it must be from 0.001 MHz to 1000 GHz"},
        Mistake{"BandwidthOfZero", [](ordered_json& j) { j["network"]["bandwidth"]["value"] = 0; }, "value",
                "bandwidth", "network.bandwidth: this is 0; it must be above 0, or \"unlimited\""},
        Mistake{"RateOfZero", [](ordered_json& j) { j["costs"]["send_byte"] = {{"value", 0}, {"unit", "MB/s"}}; },
                "value", "send_byte", "costs.send_byte: this is a rate of 0; it must be above 0"},
        Mistake{"TooLong", [](ordered_json& j) { j["costs"]["spawn"] = {{"value", 10001}, {"unit", "ms"}}; }, "value",
                "spawn", "costs.spawn: this is 10001 ms; it must be at most 10 s"},
        Mistake{"TooShort", [](ordered_json& j) { j["costs"]["spawn"] = 0.0004; }, "spawn", "",
                "costs.spawn: this is 0.0004 ns, which is less than a picosecond"},
        Mistake{"LatencyTooShort", [](ordered_json& j) { j["network"]["latency"] = 0.0004; }, "latency", "",
                "network.latency: this is less than half a nanosecond"},
        Mistake{"WrongUnit", [](ordered_json& j) { j["costs"]["spawn"] = {{"value", 1}, {"unit", "s"}}; }, "value",
                "spawn", "costs.spawn: its unit is 's'; it must be cycles, ps, ns, us or ms"},
        Mistake{"RateForATime", [](ordered_json& j) { j["costs"]["spawn"] = {{"value", 1}, {"unit", "MB/s"}}; },
                "value", "spawn", "costs.spawn: its unit is 'MB/s'; it must be cycles"},
        Mistake{"TimeForARate", [](ordered_json& j) { j["network"]["bandwidth"]["unit"] = "us"; }, "value", "bandwidth",
                "network.bandwidth: its unit is 'us'; it must be KB/s, MB/s or GB/s"},
        Mistake{"WrongUnitOfClock", [](ordered_json& j) { j["processor"]["clock"]["unit"] = "ns"; }, "value", "clock",
                "processor.clock: its unit is 'ns'; it must be MHz or GHz"},
        Mistake{"NoUnit", [](ordered_json& j) { j["costs"].erase("unit"); }, "fault_entry", "",
                "costs.fault_entry: this figure has no unit, and neither has its group; it must be cycles, ps"},
        Mistake{"NoSource", [](ordered_json& j) { j["costs"].erase("source"); }, "fault_entry", "",
                "costs.fault_entry: this figure has no source, and neither has its group"},
        Mistake{"NoSourceOfClock", [](ordered_json& j) { j["processor"]["clock"].erase("source"); }, "value", "clock",
                "processor.clock: this figure has no source"},
        Mistake{"CurveWithoutPoints", [](ordered_json& j) { j["costs"]["grant_call"] = ordered_json::array(); },
                "grant_call", "", "costs.grant_call: this must be a number, or points such as"},
        Mistake{"CurveOfNumbers", [](ordered_json& j) { j["costs"]["grant_call"] = {1, 2}; }, "grant_call", "",
                "costs.grant_call: this must be a number, or points such as"},
        Mistake{"CurveBackwards", [](ordered_json& j) { j["costs"]["grant_call"] = {{4, 1}, {2, 1}}; }, "grant_call",
                "", "costs.grant_call: the point for 2 processors does not come after one for fewer"},
        Mistake{"CurveOfHalves", [](ordered_json& j) { j["costs"]["grant_call"] = {{1.5, 1}, {2, 1}}; }, "grant_call",
                "", "costs.grant_call: a point is for 1.5 processors; it must be a whole number from 1"},
        Mistake{"CurveForASinglePrice", [](ordered_json& j) { j["costs"]["spawn"] = {{1, 1}, {2, 1}}; }, "spawn", "",
                "costs.spawn: this must be a number"}),
    [](const auto& instance) { return instance.param.name; });

TEST(MachineDescription, IsAnObjectInJson) {
  EXPECT_EQ(parse_machine("[]", "m.json").error().message,
            "m.json, line 1: a description of a machine is an object, which begins with a brace");
  EXPECT_THAT(parse_machine("{\n\"name\": x}", "m.json").error().message,
              StartsWith("m.json, line 2: this is no JSON: "));
  std::string text = text_of(description());
  text.replace(text.find("\"flag\""), 6, "\"spawn\"");
  EXPECT_THAT(parse_machine(text, "m.json").error().message,
              AllOf(StartsWith(fmt::format("m.json, line {}: ", line_of(text, "spawn", "\"spawn\"") + 1)),
                    HasSubstr("'spawn' is there twice")));
}

}  // namespace
}  // namespace multigrain
