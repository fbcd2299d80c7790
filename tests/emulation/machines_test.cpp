#include "emulation/machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace multigrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kNames[] = {"ace",           "alewife",      "alphaserver-4100",
                                  "cxl",           "dszoom-e6000", "genima-myrinet",
                                  "genima-origin", "today-rdma",   "today-tcp"};

std::string error_of(std::string_view text) {
  const auto machine = read_machine(text);
  return machine ? "accepted" : machine.error().message;
}

TEST(Machines, ThatAreBroughtAlongAreThese) {
  const auto folder = machines_folder();
  ASSERT_TRUE(folder) << folder.error().message;
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(*folder))
    if (file.path().extension() == ".json") names.push_back(file.path().stem().string());
  std::ranges::sort(names);
  EXPECT_THAT(names, ElementsAreArray(kNames));
}

TEST(Machines, HereIsWhatWasMeasured) {
  const fs::path folder = fs::path(::testing::TempDir()) / "machines_test_here";
  fs::remove_all(folder);
  const char* const before = std::getenv("XDG_DATA_HOME");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_DATA_HOME", folder.c_str(), 1);
  EXPECT_EQ(own_machine_file().value_or(""), folder / "multigrain/here.json");
  EXPECT_THAT(error_of("here"),
              StartsWith("this machine has not been measured yet: mgbench --calibrate does that, and writes '"));
  fs::create_directories(folder / "multigrain");
  auto here = read_machine("cxl");
  ASSERT_TRUE(here) << here.error().message;
  here->name = "here";
  std::ofstream(folder / "multigrain/here.json") << compact(*here);
  const auto read = read_machine("here");
  EXPECT_EQ(read ? read->name : read.error().message, "here");
  // What is not absolute counts as not there.
  setenv("XDG_DATA_HOME", "relative", 1);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') {
    EXPECT_EQ(own_machine_file().value_or(""), fs::path(home) / ".local/share/multigrain/here.json");
  }
  if (before == nullptr)
    unsetenv("XDG_DATA_HOME");
  else
    setenv("XDG_DATA_HOME", kept.c_str(), 1);
  fs::remove_all(folder);
}

// A description without a source for a figure is refused (machine_description_test.cpp).
TEST(Machines, ThatAreBroughtAlongCanBeRead) {
  for (const std::string name : kNames) {
    const auto machine = read_machine(name);
    ASSERT_TRUE(machine) << machine.error().message;
    EXPECT_EQ(machine->name, name);
    EXPECT_FALSE(machine->network.ideal()) << name;
    EXPECT_EQ(machine->network.handler_ns, 0u) << name;
    EXPECT_GT(machine->costs.transition, 0u) << name;
    // A change of rights that tells other processors is no cheaper in a wider node.
    EXPECT_GE(machine->costs.revoke_call.at(16), machine->costs.revoke_call.at(1)) << name;
    for (size_t i = 0; i < MG_COUNT_INSTRUCTIONS; ++i)
      EXPECT_GT(machine->instructions.of_class[i], 0u) << name << " " << i;
    for (const char* function : {"sqrt", "malloc", "memcpy", "memset"})
      EXPECT_TRUE(machine->instructions.calls.contains(function)) << name << " " << function;
    EXPECT_GT(machine->instructions.calls.at("memcpy").per_byte, 0u) << name;
    EXPECT_GT(machine->instructions.other_calls.fixed, 0u) << name;
    const auto again = read_machine(compact(*machine));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(again->costs == machine->costs) << name;
    EXPECT_EQ(again->network, machine->network) << name;
  }
}

TEST(Machines, AreListedWithWhatTheyAreAndTheirSources) {
  const auto table = render_machines();
  ASSERT_TRUE(table) << table.error().message;
  for (const std::string name : kNames) EXPECT_THAT(*table, HasSubstr("\n" + name + " ")) << *table;
  EXPECT_THAT(*table, HasSubstr("\nalewife           20 MHz, network latency=50us\n"));
  EXPECT_THAT(*table, HasSubstr("Source: the MGS paper: Table 1"));
  std::istringstream lines(*table);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Each figure's source")) continue;
    EXPECT_LE(line.size(), 120u) << line;
  }
}

class MachineFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/multigrain-machines-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(MachineFileTest, IsReadByItsName) {
  fs::copy(*machines_folder() / "alewife.json", folder_ / "mine.json");
  const auto machine = read_machine((folder_ / "mine.json").string());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->name, "alewife");
  fs::rename(folder_ / "mine.json", folder_ / "mine");
  EXPECT_TRUE(read_machine((folder_ / "mine").string()));
}

TEST_F(MachineFileTest, ThatCannotBeReadIsNamed) {
  const std::string missing = (folder_ / "none.json").string();
  EXPECT_EQ(error_of(missing), "cannot read the description of a machine '" + missing + "': No such file or directory");
  EXPECT_EQ(error_of(folder_.string()),
            "cannot read the description of a machine '" + folder_.string() + "': it is a directory");
  const std::string wrong = (folder_ / "wrong.json").string();
  std::ofstream(wrong) << "{\n\"name\": \"x\",\n\"speed\": 3}";
  EXPECT_THAT(error_of(wrong), StartsWith(wrong + ", line 3: speed: there is no such key"));
  std::ofstream(wrong) << std::string(2 << 20, ' ');
  EXPECT_EQ(error_of(wrong), "'" + wrong + "' is no description of a machine: it is longer than 1 MiB");
  for (const char* name : {"none", "", "..", "Alewife"})
    EXPECT_THAT(error_of(name), StartsWith(fmt::format("there is no machine '{}'; mgrun --machine list shows", name)));
}

TEST(SettleMachine, PricesTheCountedClockAlone) {
  for (const ClockKind clock : {ClockKind::kWall, ClockKind::kVirtual}) {
    Config config;
    config.clock = clock;
    ASSERT_TRUE(settle_machine("--machine", config));
    EXPECT_EQ(config.machine, nullptr);
    EXPECT_TRUE(config.network.ideal());
  }
}

TEST(SettleMachine, SetsTheNetworkUnlessItIsGiven) {
  Config config;
  config.clock = ClockKind::kCounted;
  config.machine_text = "alewife";
  ASSERT_TRUE(settle_machine("--machine", config));
  ASSERT_NE(config.machine, nullptr);
  EXPECT_EQ(config.machine->name, "alewife");
  EXPECT_EQ(config.network.latency_ns, 50'000u);
  config.network = {.latency_ns = 7};
  config.network_given = true;
  ASSERT_TRUE(settle_machine("--machine", config));
  EXPECT_EQ(config.network.latency_ns, 7u);
}

TEST(SettleMachine, HasADefault) {
  Config config;
  config.clock = ClockKind::kCounted;
  ASSERT_TRUE(settle_machine("--machine", config));
  EXPECT_EQ(config.machine->name, kDefaultMachine);
}

TEST(SettleMachine, SaysWhichOptionIsWrong) {
  Config config;
  config.clock = ClockKind::kCounted;
  config.machine_text = "pdp-11";
  const Status settled = settle_machine("MULTIGRAIN_MACHINE", config);
  ASSERT_FALSE(settled);
  EXPECT_THAT(settled.error().message, StartsWith("MULTIGRAIN_MACHINE: there is no machine 'pdp-11'; "));
}

}  // namespace
}  // namespace multigrain
