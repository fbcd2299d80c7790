// mgrun --check, on the cases of erring_program.c: what it says of mistakes, and that it says nothing of what is none.
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

Outcome check(const std::string& shape, const std::string& program_case, const Strings& more = {}) {
  const size_t x = shape.find('x');
  Strings command = {MGRUN, "--check", "--nodes", shape.substr(0, x), "--procs-per-node", shape.substr(x + 1)};
  command.insert(command.end(), more.begin(), more.end());
  command.insert(command.end(), {PROGRAM, program_case});
  return run(command);
}

class UnderEachProtocol : public testing::TestWithParam<const char*> {
 protected:
  static Outcome check(const std::string& shape, const std::string& program_case) {
    return ::check(shape, program_case, {"--protocol", GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(Pages, UnderEachProtocol, testing::Values("hlrc", "mgs", "sc"));

// --- Blocks

TEST(Blocks, AWriteBeyondTheEndIsFoundWhenTheBlockIsFreed) {
  for (const char* const shape : {"1x1", "2x1"}) {
    const Outcome it = check(shape, "overflow_small", {"--quiet"});
    EXPECT_EQ(it.status, 66) << it.text;
    EXPECT_THAT(it.text,
                AllOf(HasSubstr("a write beyond the end of a block: byte 23 of it, which has 20 bytes, changed"),
                      ContainsRegex("allocated by processor 0 at overflow_small at erring_program.c:[0-9]+"),
                      HasSubstr("when processor 0 freed the block at overflow_small at " + line("free of overflown")),
                      HasSubstr("watch *(char *)0x")));
  }
}

TEST_P(UnderEachProtocol, AWriteOfAnotherNodeBeyondTheEndIsFoundAtTheEnd) {
  const Outcome it = check("2x1", "overflow_remote");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text,
              AllOf(HasSubstr("bytes 100 to 103 of it, which has 100 bytes, changed"),
                    HasSubstr("overflow_remote at " + line("remote block")), HasSubstr("found at the end of the run")));
}

TEST_P(UnderEachProtocol, AWriteBeyondTheLastPage) {
  const Outcome it = check("2x1", "overflow_large");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text,
              AllOf(HasSubstr("byte 12288 of it, which has 12288 bytes, changed"), HasSubstr(line("large block"))));
}

TEST(Blocks, AWriteBeforeTheBeginning) {
  const Outcome it = check("1x1", "underflow", {"--quiet"});
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, ContainsRegex("a write before the beginning of a block, .*: memory 1 byte before 0x"));
}

TEST(Blocks, AWriteThatReachesFarBeyondTheEnd) {
  const Outcome it = check("1x1", "far_overflow", {"--quiet"});
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("a write beyond the end of a block: what --check keeps behind it was overwritten"));
}

TEST_P(UnderEachProtocol, AWriteAfterFree) {
  const Outcome it = check("2x1", "write_after_free");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr("a write to a freed block: byte 5 of it changed after it was freed"),
                             HasSubstr("write_after_free at " + line("freed block")),
                             HasSubstr("write_after_free at " + line("early free"))));
}

TEST_P(UnderEachProtocol, AWriteOfAnotherNodeAfterFree) {
  const Outcome it = check("2x1", "write_after_remote_free");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr("a write to a freed block: byte 9 of it changed after it was freed"),
                             HasSubstr("late_writer at " + line("free by 0"))));
}

TEST(Blocks, ADoubleFree) {
  const Outcome it = check("1x1", "double_free", {"--quiet"});
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr("mg_free of a block that was freed before, by processor 0 at double_free at " +
                                       line("second free")),
                             HasSubstr(line("doubly freed")),
                             HasSubstr("freed by processor 0 at double_free at " + line("first free"))));
}

TEST(Blocks, ADoubleFreeByAnotherNode) {
  const Outcome it = check("2x1", "double_free_remote");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("freed before, by processor 1 at second_free at " + line("remote second free")));
}

TEST(Blocks, AFreeOfWhatIsNoBlock) {
  const Outcome inside = check("1x1", "free_inside", {"--quiet"});
  EXPECT_EQ(inside.status, 66) << inside.text;
  EXPECT_THAT(inside.text,
              AllOf(HasSubstr("which is no block, by processor 0 at free_inside at " + line("free inside")),
                    HasSubstr("it points to byte 16 of a block; the block of 64 bytes")));
  const Outcome global = check("1x1", "free_private", {"--quiet"});
  EXPECT_EQ(global.status, 66) << global.text;
  EXPECT_THAT(global.text,
              HasSubstr("which is no block, by processor 0 at free_private at " + line("free of a global")));
}

TEST_P(UnderEachProtocol, NothingIsSaidOfAHeapThatIsUsedWell) {
  for (const char* const shape : {"2x2", "3x1"}) {
    for (const char* const what : {"heap_worker", "hand_over"}) {
      const Outcome it = check(shape, what);
      EXPECT_EQ(it.status, 0) << what << it.text;
      EXPECT_EQ(it.text, "") << what;
    }
  }
}

// --- Locks

TEST(Locks, TakenInTwoOrders) {
  const Outcome it = check("2x1", "two_orders");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(
      it.text,
      AllOf(HasSubstr("2 locks are taken in orders that can end in a deadlock"), HasSubstr("processor 0 wanted lock "),
            HasSubstr("processor 1 wanted lock "), HasSubstr("in_order at " + line("second lock")),
            HasSubstr("in_order at " + line("first lock")), HasSubstr("(created at erring_program.c:")));
}

#if defined(THREADS_PROGRAM)
// Of mutexes of POSIX the program's lines are told, and the calls that led there.
TEST(Locks, MutexesOfThreadsTakenInTwoOrders) {
  const auto threads_line = [](const char* mark) {
    return multigrain::testing::marked_line(THREADS_PROGRAM_SOURCE, mark);
  };
  const auto run_case = [](const char* what) {
    return run({MGRUN, "--check", "--nodes", "2", "--procs-per-node", "2", THREADS_PROGRAM, what});
  };
  const Outcome it = run_case("two_orders");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("2 locks are taken in orders that can end in a deadlock"));
  for (const char* const mark : {"in order", "in reverse"}) {
    const std::string by = "take at " + threads_line("taken") + "\n      called from take_both at ";
    const std::string from = std::string("\n      called from in_") + (mark + 3) + " at " + threads_line(mark);
    EXPECT_THAT(it.text, HasSubstr(by + threads_line("second mutex") + from));
    EXPECT_THAT(it.text, HasSubstr(", taken at " + by + threads_line("first mutex") + from));
  }
  EXPECT_THAT(it.text, HasSubstr("(created at " + threads_line("made") + ")"));
  EXPECT_THAT(it.text, Not(HasSubstr("posix_objects")));
  // Its two threads leave a processor without one, which is no mistake.
  const Outcome other = run_case("one_order");
  EXPECT_EQ(other.status, 0) << other.text;
  EXPECT_THAT(other.text, AllOf(Not(HasSubstr("deadlock")), Not(HasSubstr("never started"))));
}
#endif

TEST(Locks, TakenInACycleOfThree) {
  const Outcome it = check("3x1", "three_orders");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("3 locks are taken in orders that can end in a deadlock"));
}

TEST(Locks, NothingIsSaidOfOrdersThatCannotMeet) {
  for (const char* const what : {"both_orders_alone", "orders_under_a_gate", "one_order", "try_other_order"}) {
    const Outcome it = check("2x1", what);
    EXPECT_EQ(it.status, 0) << what << it.text;
    EXPECT_EQ(it.text, "") << what;
  }
}

TEST(Locks, HeldAtABarrier) {
  const Outcome it = check("2x2", "barrier_with_lock");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, AllOf(HasSubstr("processor 1 came to a barrier with a lock"),
                             HasSubstr("barrier_with_lock at " + line("barrier with lock")),
                             HasSubstr("taken at barrier_with_lock at " + line("lock before barrier"))));
}

TEST(Locks, HeldAtTheEnd) {
  const Outcome it = check("1x2", "end_with_lock", {"--quiet"});
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text,
              AllOf(HasSubstr("the program ends while processor 0 holds a lock"), HasSubstr(line("lock at the end"))));
}

// --- Globals, processors, the status

TEST(Others, AGlobalThatAnotherNodeWrites) {
  const Outcome it = check("2x1", "write_global");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("node 1 wrote the global written_by_all (erring_program.c:"));
}

TEST(Others, ProcessorsThatAreNeverStarted) {
  const Outcome it = check("3x1", "nothing_started");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("processors 1 to 2 were never started"));
}

TEST(Others, TheProgramsOwnStatusIsKept) {
  const Outcome it = check("1x1", "own_status", {"--quiet"});
  EXPECT_EQ(it.status, 5) << it.text;
  EXPECT_THAT(it.text, HasSubstr("a write beyond the end"));
}

TEST(Others, WhatCannotBeCheckedIsRefused) {
  const Outcome virtual_time = check("2x1", "nothing_started", {"--clock", "virtual"});
  EXPECT_NE(virtual_time.status, 0);
  EXPECT_THAT(virtual_time.text, HasSubstr("--check and virtual time exclude each other"));
  const Outcome binary = run({MGRUN, "--check", "--binary", "/bin/true"});
  EXPECT_NE(binary.status, 0);
  EXPECT_THAT(binary.text, HasSubstr("--check is for programs that are linked with Multigrain, and excludes --binary"));
}

}  // namespace
