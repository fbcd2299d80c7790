// mgrun --races, on the cases of racing_program.cpp: what it says of those that have a race, and that it says nothing of the
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/marked_line.h"
#include "support/program_run.h"

namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Strings = std::vector<std::string>;
using multigrain::testing::Outcome;
using multigrain::testing::run;

std::string line(const std::string& mark) {
  return multigrain::testing::marked_line(PROGRAM_SOURCE, mark);
}

Outcome races(const std::string& shape, const std::string& program_case, const Strings& more = {},
              const std::string& program = PROGRAM, const Strings& arguments = {}) {
  const size_t x = shape.find('x');
  Strings command = {MGRUN, "--races", "--nodes", shape.substr(0, x), "--procs-per-node", shape.substr(x + 1)};
  command.insert(command.end(), more.begin(), more.end());
  command.push_back(program);
  command.push_back(program_case);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(command);
}

constexpr const char* kRace = "multigrain: data race";

// --- Races

TEST(Races, AnUnprotectedCounter) {
  const Outcome it = races("2x1", "counter");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr(line("counter read")), HasSubstr(line("counter write"))));
  EXPECT_THAT(it.text, ContainsRegex("a read of 8 bytes by processor [01] on node [01]: "));
  EXPECT_THAT(it.text, ContainsRegex("a write of 8 bytes by processor [01] on node [01]: "));
  EXPECT_THAT(it.text,
              ContainsRegex("byte 0 of a block of 4096 bytes at 0x[0-9a-f]+, allocated by node 0 at racing_program"));
  EXPECT_THAT(it.text, ContainsRegex("in section [0-9]+ of node [01]"));
}

TEST(Races, AnInstructionThatReadsAndWrites) {
  const Outcome it = races("2x1", "one_instruction");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr(line("increment")));
}

TEST(Races, TwoWritersOfAWord) {
  for (const char* const shape : {"2x1", "3x1", "2x2"}) {
    const Outcome it = races(shape, "same_word");
    EXPECT_EQ(it.status, 66) << it.text;
    EXPECT_THAT(it.text, AllOf(HasSubstr(line("first writer")), HasSubstr(line("second writer")),
                               HasSubstr("a write of 4 bytes by processor 0 on node 0: ")));
  }
}

TEST(Races, AListThatGrowsWhileItIsWalked) {
  for (const char* const shape : {"2x1", "2x2"}) {
    const Outcome it = races(shape, "list");
    EXPECT_EQ(it.status, 66) << it.text;
    EXPECT_THAT(it.text, AllOf(HasSubstr(line("prepend")), HasSubstr(line("walk"))));
  }
}

TEST(Races, AFlagThatIsPolled) {
  const Outcome it = races("2x1", "spin");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr(line("set")), HasSubstr(line("poll"))));
}

TEST(Races, TwoLocksForOneVariable) {
  const Outcome it = races("2x1", "wrong_lock");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr(line("wrong lock")));
}

TEST(Races, ALibraryThatCopiesWhatIsWritten) {
  const Outcome it = races("2x1", "copied");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr("called in copied at " + line("copy")), HasSubstr(line("one character"))));
}

TEST(Races, WritesThatAreSeenInDiffsOnly) {
  const Outcome it = races("3x1", "once");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr("by node 1, at a place that was not seen"),
                             HasSubstr("by node 2, at a place that was not seen")));
}

TEST(Races, AreFoundWithEitherMechanismAndFabric) {
  for (const Strings& how :
       {Strings{"--access", "mprotect"}, Strings{"--access", "userfault"}, Strings{"--fabric", "ucx"}}) {
    const Outcome it = races("2x1", "list", how);
    EXPECT_EQ(it.status, 66) << it.text;
    EXPECT_THAT(it.text, AllOf(HasSubstr(line("prepend")), HasSubstr(line("walk"))));
  }
}

TEST(Races, LeaveAnotherStatusAlone) {
  const Outcome it = races("2x1", "counter", {}, PROGRAM, {"", "7"});
  EXPECT_EQ(it.status, 7) << it.text;
  EXPECT_THAT(it.text, HasSubstr(kRace));
}

TEST(Races, AreNamedByAddressesWithoutSymbols) {
  const Outcome it = races("2x1", "counter", {}, STRIPPED_PROGRAM);
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr(kRace), ContainsRegex("on node [01]: .*0x[0-9a-f]+.*stripped_racing_program")));
}

// --- None

class NoRace : public testing::TestWithParam<std::string> {};

TEST_P(NoRace, IsNamed) {
  const std::string program_case = GetParam();
  for (const char* const shape : {"2x1", "3x1", "2x2"}) {
    const std::string file = testing::TempDir() + "races_" + std::to_string(getpid()) + program_case;
    const Outcome it = races(shape, program_case, {}, PROGRAM, {file});
    EXPECT_EQ(it.status, 0) << shape;
    EXPECT_EQ(it.text, "") << shape;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, NoRace,
                         testing::Values("neighbours", "barriers", "chain", "locked", "conditions", "semaphores",
                                         "flags", "by_file", "reused", "instructions"),
                         [](const auto& of) { return of.param; });

TEST(Instructions, AreExecutedAloneUnderMprotectAsWell) {
  const Outcome it = races("2x1", "instructions", {"--access", "mprotect"});
  EXPECT_EQ(it.status, 0);
  EXPECT_EQ(it.text, "");
}

// --- What is refused

TEST(Refused, WithASentence) {
  const auto refused = [](const Strings& more, const std::string& sentence) {
    Strings command = {MGRUN, "--races"};
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.end(), {PROGRAM, "barriers"});
    const Outcome it = run(command);
    EXPECT_EQ(it.status, 2) << it.text;
    EXPECT_THAT(it.text, HasSubstr(sentence));
  };
  refused({}, "finds races between nodes, and the run has one");
  refused({"--nodes", "2", "--protocol", "mgs"}, "needs the protocol hlrc");
  refused({"--nodes", "2", "--clock", "virtual"}, "virtual time");
  refused({"--nodes", "2", "--hlrc", "runs=on"}, "excludes runs=on");
  refused({"--nodes", "2", "--hlrc", "chains=on"}, "excludes chains=on");
  refused({"--nodes", "2", "--hlrc", "releases=deferred"}, "excludes releases=deferred");
  refused({"--nodes", "2", "--hlrc", "fetch-ahead=2"}, "excludes fetch-ahead=2");
  refused({"--nodes", "2", "--prefetch", "4"}, "excludes --prefetch 4");
  refused({"--nodes", "2", "--binary"}, "--binary");
}

TEST(Refused, NotWhatAgrees) {
  const Outcome it = races("2x1", "barriers",
                           {"--hlrc", "runs=off,releases=at-once,homes=stay", "--prefetch", "0", "--protocol", "hlrc"});
  EXPECT_EQ(it.status, 0) << it.text;
}

}  // namespace
