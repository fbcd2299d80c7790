// These test the report on which processor waits for which, made from processors that do not exist, and the decision
// that all have slept for long enough.
#include "report/waiting_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/standstill.h"
#include "sync/handle.h"

namespace multigrain {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Nanoseconds kSecond = 1'000'000'000;

uint64_t handle(SyncKind kind, uint32_t index, uint32_t argument = 0) {
  SyncHandle made;
  made.kind = static_cast<uint8_t>(kind);
  made.index = index;
  made.argument = argument;
  return made.encode().value;
}

uint64_t lock(uint32_t index) {
  return handle(SyncKind::kLock, index);
}

ProcessorSnapshot waits(unsigned number, Call call, uint64_t object, std::vector<uint64_t> held = {}) {
  ProcessorSnapshot processor;
  processor.number = number;
  processor.life = Life::kRuns;
  processor.call = call;
  processor.object = object;
  processor.sleeps = true;
  processor.slept = 2 * kSecond;
  processor.line = "a.c:" + std::to_string(10 + number);
  processor.function = "work";
  for (const uint64_t one : held) processor.held.push_back({one, "a.c:" + std::to_string(50 + number)});
  return processor;
}

ProcessorSnapshot lives(unsigned number, Life life) {
  ProcessorSnapshot processor;
  processor.number = number;
  processor.life = life;
  processor.function = "work";
  return processor;
}

NodeSnapshot node(std::vector<ProcessorSnapshot> processors) {
  NodeSnapshot made;
  made.attached = true;
  made.processors = std::move(processors);
  return made;
}

WaitingReport describe(const NodeSnapshot& one, Nanoseconds slept = kSecond) {
  return describe_waiting({&one, 1}, slept);
}

TEST(WaitingReport, NamesEveryCycleOnceAndWhoIsOutside) {
  const auto report =
      describe(node({waits(0, Call::kLock, lock(1), {lock(0)}), waits(1, Call::kLock, lock(2), {lock(1)}),
                     waits(2, Call::kLock, lock(0), {lock(2)}), waits(3, Call::kLock, lock(0)),
                     waits(4, Call::kLock, lock(6), {lock(5)}), waits(5, Call::kRelock, lock(5), {lock(6)})}));
  EXPECT_TRUE(report.certain);
  EXPECT_THAT(report.text,
              HasSubstr("deadlock: processor 0 waits at a.c:10 for lock 1, which processor 1 took at a.c:51; "
                        "processor 1 waits at a.c:11 for lock 2, which processor 2 took at a.c:52; "
                        "processor 2 waits at a.c:12 for lock 0, which processor 0 took at a.c:50"));
  EXPECT_THAT(report.text, HasSubstr("deadlock: processor 4 waits at a.c:14 for lock 6"));
  EXPECT_THAT(report.text, Not(HasSubstr("deadlock: processor 3")));
  size_t cycles = 0;
  for (size_t at = 0; (at = report.text.find("deadlock:", at)) != std::string::npos; ++at) ++cycles;
  EXPECT_EQ(cycles, 2u);
}

TEST(WaitingReport, ChainsAreNoCycles) {
  const auto report = describe(
      node({waits(0, Call::kLock, lock(1), {lock(0)}), lives(1, Life::kRuns), waits(2, Call::kLock, lock(0))}), 0);
  EXPECT_FALSE(report.certain);
  EXPECT_THAT(report.text, Not(HasSubstr("deadlock")));
  EXPECT_THAT(report.text, HasSubstr("which no processor holds that is known"));
  EXPECT_THAT(report.text, HasSubstr("processor 1 on node 0 runs work"));
}

TEST(WaitingReport, SaysThatAHolderHasReturned) {
  ProcessorSnapshot gone = lives(1, Life::kReturned);
  gone.held.push_back({lock(3), "a.c:9"});
  EXPECT_THAT(describe(node({waits(0, Call::kLock, lock(3)), gone})).text,
              HasSubstr("lock 3, which processor 1 took at a.c:9 and holds, though it has returned"));
}

TEST(WaitingReport, SaysWhoABarrierLacksAndWhereTheyAre) {
  const uint64_t barrier = handle(SyncKind::kBarrier, 4, 4);
  const auto report = describe(node({waits(0, Call::kBarrier, barrier), waits(1, Call::kBarrier, barrier),
                                     waits(2, Call::kFlag, handle(SyncKind::kFlag, 0)), lives(3, Life::kNotStarted)}));
  EXPECT_THAT(report.text,
              AllOf(HasSubstr("barrier 4 lacks 2 of 4 processors: processor 2 has slept for 2.0 s at a.c:12"),
                    HasSubstr("flag 0 to become 0"), HasSubstr("processor 3 was never started")));
}

TEST(WaitingReport, SaysForWhichProcessorTheOthersWait) {
  const uint64_t barrier = handle(SyncKind::kBarrier, 4, 2);
  ProcessorSnapshot computes = lives(1, Life::kRuns);
  computes.computes = true;
  const auto report_of = [](std::vector<ProcessorSnapshot> processors) {
    const NodeSnapshot one = node(std::move(processors));
    return describe_waiting({&one, 1}, kSecond, true);
  };
  const auto report = report_of({waits(0, Call::kBarrier, barrier), computes});
  EXPECT_TRUE(report.certain);
  EXPECT_THAT(report.text,
              AllOf(HasSubstr("for 1.0 s processors have waited at a barrier while the others have neither"),
                    HasSubstr("barrier 4 lacks 1 of 2 processors: processor 1 runs work")));
  // A processor that waits in a system call, or processors that wait for something else than a barrier, are no sign of it.
  EXPECT_FALSE(report_of({waits(0, Call::kBarrier, barrier), lives(1, Life::kRuns)}).certain);
  EXPECT_FALSE(report_of({waits(0, Call::kLock, lock(1)), computes}).certain);
  EXPECT_FALSE(report_of({waits(0, Call::kBarrier, barrier), waits(1, Call::kLock, lock(1))}).certain);
}

TEST(WaitingReport, IsNotCertainWhereSomethingElseMayWakeThem) {
  NodeSnapshot one = node({waits(0, Call::kFlag, handle(SyncKind::kFlag, 0))});
  EXPECT_TRUE(describe(one).certain);
  one.other_threads = 1;
  EXPECT_FALSE(describe(one).certain);
  one.other_threads = 0;
  one.stopped = true;
  EXPECT_FALSE(describe(one).certain);
  one.stopped = false;
  one.leaves = true;
  EXPECT_FALSE(describe(one).certain);
  one.leaves = false;
  one.attached = false;
  EXPECT_FALSE(describe(one).certain);
}

TEST(NodeSnapshot, ComesBackAsItWasPacked) {
  NodeSnapshot one = node({waits(0, Call::kLock, lock(1), {lock(0), lock(2)}), lives(1, Life::kReturned)});
  one.other_threads = 3;
  const auto bytes = pack(one);
  const auto back = unpack(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(describe_waiting({&*back, 1}, 0).text, describe(one, 0).text);
  EXPECT_EQ(back->other_threads, 3u);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(unpack(std::span(bytes).first(length))) << length;
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] ^= std::byte{0xff};
    static_cast<void>(unpack(damaged));
  }
}

TEST(NodeSnapshot, OfTheLargestNodeFitsIntoAFrame) {
  std::vector<ProcessorSnapshot> processors;
  for (unsigned i = 0; i < Config::kMaxProcessorsPerNode; ++i) {
    processors.push_back(waits(i, Call::kLock, lock(1), std::vector<uint64_t>(ProcessorStatus::kMaxHeld, lock(2))));
    for (auto& held : processors.back().held) held.line = std::string(1000, 'x');
  }
  const auto bytes = pack(node(std::move(processors)));
  EXPECT_LE(bytes.size() + 16, size_t{256} * 1024);
  EXPECT_TRUE(unpack(bytes));
}

class StandstillTest : public testing::Test {
 protected:
  std::optional<Standstill::Stood> after(int ms, const Stillness& what) {
    now_ += milliseconds(ms);
    return standstill_.see(what, now_);
  }
  Standstill standstill_{kSecond};
  Standstill::Clock::time_point now_{std::chrono::hours(1)};
  const Stillness still_{.still = true, .anyone = true, .digest = 7};
};

TEST_F(StandstillTest, IsToldOnceItHasLastedAndAgainAfterSomebodyMoved) {
  EXPECT_FALSE(after(0, still_));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(after(100, still_));
  EXPECT_TRUE(after(200, still_));
  EXPECT_FALSE(after(100, still_));
  Stillness other = still_;
  other.digest = 8;
  EXPECT_FALSE(after(100, other));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(after(100, other));
  EXPECT_TRUE(after(200, other));
}

TEST_F(StandstillTest, NeedsSomebodyWhoSleeps) {
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(after(100, Stillness{.still = true, .anyone = false, .digest = 7}));
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(after(100, Stillness{}));
}

TEST_F(StandstillTest, WithAProcessorOutsideItIsToldOnceInARun) {
  Stillness outside = still_;
  outside.outside = true;
  EXPECT_FALSE(after(0, outside));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(after(100, outside));
  const auto stood = after(200, outside);
  ASSERT_TRUE(stood);
  EXPECT_TRUE(stood->outside);
  outside.digest = 8;
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(after(100, outside));
  // All of them asleep is another matter.
  Stillness asleep = still_;
  asleep.digest = 9;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(after(100, asleep));
  const auto slept = after(200, asleep);
  ASSERT_TRUE(slept);
  EXPECT_FALSE(slept->outside);
}

TEST_F(StandstillTest, DoesNotCountTimeInWhichItDidNotLook) {
  EXPECT_FALSE(after(0, still_));
  EXPECT_FALSE(after(60'000, still_));
  EXPECT_FALSE(after(500, still_));
  EXPECT_TRUE(after(600, still_));
}

}  // namespace
}  // namespace multigrain
