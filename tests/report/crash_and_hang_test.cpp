// These test what mgrun says of programs that crash, hang or misuse locks (mistaken_program.cpp), and that it says
// nothing of those that only wait for the world outside.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/marked_line.h"

namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Strings = std::vector<std::string>;

std::string line(const std::string& mark) {
  return multigrain::testing::marked_line(PROGRAM_SOURCE, mark);
}

// Runs mgrun on the program, with output and errors in one pipe.
class Mgrun {
 public:
  Mgrun(Strings options, const std::string& mistake) {
    int out[2];
    int in[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(in, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      options.insert(options.begin(), MGRUN);
      options.insert(options.end(), {PROGRAM, mistake});
      std::vector<char*> argv;
      for (std::string& option : options) argv.push_back(option.data());
      argv.push_back(nullptr);
      execv(MGRUN, argv.data());
      std::_Exit(127);
    }
    close(out[1]);
    close(in[0]);
    out_ = out[0];
    in_ = in[1];
  }
  ~Mgrun() {
    close(out_);
    close(in_);
  }
  Mgrun(const Mgrun&) = delete;
  Mgrun& operator=(const Mgrun&) = delete;

  void signal(int number) const { kill(pid_, number); }
  void let_read() const { EXPECT_EQ(write(in_, "x", 1), 1); }
  // Reads until the text has come, behind what came before, or mgrun has ended.
  const std::string& read_until(const std::string& text, size_t behind = 0) {
    while (text_.find(text, behind) == std::string::npos && read_some()) {
    }
    return text_;
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  const std::string& read_all() {
    while (read_some()) {
    }
    return text_;
  }
  int finish() {
    read_all();
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t got = read(out_, buffer, sizeof buffer);
    if (got > 0) text_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }

  pid_t pid_;
  int out_;
  int in_;
  std::string text_;
};

const Strings kTwoNodes = {"--nodes", "2", "--procs-per-node", "2"};

Strings with(Strings options, const Strings& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

std::string output_of(const std::string& mistake, int expected_status = 1, const Strings& options = kTwoNodes) {
  Mgrun run(options, mistake);
  EXPECT_EQ(run.finish(), expected_status) << mistake;
  return run.read_all();
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// --- Crashes

TEST(Crash, OfANullPointerNamesItAndTheCalls) {
  for (const char* const access : {"userfault", "mprotect"}) {
    const std::string text = output_of("null", 1, with(kTwoNodes, {"--access", access}));
    EXPECT_THAT(text, ContainsRegex("node 1, processor 3 \\(pid [0-9]+, thread [0-9]+\\): signal 11 \\(Segmentation "
                                    "fault\\) writing to 0x0: a null pointer"));
    EXPECT_THAT(text, AllOf(HasSubstr("null_store at " + line("null_store")), HasSubstr("crash at")));
    EXPECT_THAT(last_line(text), HasSubstr("was killed by signal 11 (Segmentation fault)"));
  }
}

TEST(Crash, OnNode0EndsWithItsSignal) {
  const std::string text = output_of("null", 128 + SIGSEGV, {"--procs-per-node", "2"});
  EXPECT_THAT(text, HasSubstr("node 0, processor 1"));
}

TEST(Crash, OfOtherKinds) {
  EXPECT_THAT(output_of("divide"), AllOf(HasSubstr("signal 8"), HasSubstr("an integer was divided by zero"),
                                         HasSubstr("crash at " + line("divide"))));
  EXPECT_THAT(output_of("illegal"), AllOf(HasSubstr("processor 3"), HasSubstr("signal 4"), HasSubstr("crash at")));
  EXPECT_THAT(output_of("abort"), AllOf(HasSubstr("signal 6"), HasSubstr("crash at " + line("abort"))));
  EXPECT_THAT(output_of("null-call"), AllOf(HasSubstr("executing 0x0"), HasSubstr("crash at " + line("null-call"))));
  EXPECT_THAT(output_of("wild"), HasSubstr("writing to 0x123456789: where this node has no memory"));
  EXPECT_THAT(output_of("flag-value"),
              AllOf(HasSubstr("holds 0xfffdfffdfffdfffd: the flag value"), HasSubstr(line("null_store"))));
}

TEST(Crash, OfTheStack) {
  EXPECT_THAT(output_of("stack-overflow"),
              AllOf(HasSubstr("the stack of processor 3 overflowed"), HasSubstr("recursive at " + line("recursive")),
                    HasSubstr("more calls"), HasSubstr("crash at")));
}

TEST(Crash, InSharedMemoryNamesTheBlock) {
  EXPECT_THAT(output_of("beyond"), AllOf(HasSubstr("bytes beyond the end of a block of 4096 bytes"),
                                         HasSubstr("allocated by node 0 at " + line("shared"))));
}

TEST(Crash, OfADoubleFreeNamesItsPlacesLast) {
  const std::string text = output_of("double-free");
  EXPECT_THAT(text, HasSubstr("a block of 100 bytes"));
  EXPECT_THAT(text, HasSubstr("at " + line("freed-again")));
  EXPECT_THAT(text,
              HasSubstr("allocated by node 1 at " + line("allocated") + " and freed by node 1 at " + line("freed")));
  EXPECT_THAT(last_line(text), HasSubstr("was killed by signal 6"));
  EXPECT_THAT(text, Not(HasSubstr("stopped, because")));
}

TEST(Crash, IsTheProgramsIfItHasAHandler) {
  for (const char* const mistake : {"own-handler", "own-division-handler"}) {
    const std::string text = output_of(mistake);
    EXPECT_THAT(text, HasSubstr("the program's own handler"));
    EXPECT_THAT(text, HasSubstr("exited with status 9"));
    EXPECT_THAT(text, Not(HasSubstr("null_store")));
  }
}

TEST(Crash, OverAnAgent) {
  const std::string text = output_of("null", 1, {"--hosts", "localhost:2", "--procs-per-node", "2"});
  EXPECT_THAT(text, AllOf(HasSubstr("node 1, processor 3"), HasSubstr("a null pointer"),
                          HasSubstr("null_store at " + line("null_store"))));
}

TEST(Crash, WithoutMgrunNamesAddresses) {
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(out[1], STDERR_FILENO);
    execl(PROGRAM, PROGRAM, "divide", nullptr);
    std::_Exit(127);
  }
  close(out[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(out[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGFPE) << status;
  EXPECT_THAT(text, AllOf(HasSubstr("node 0, processor 0: signal 8"), ContainsRegex("#0 .*mistaken_program 0x")));
}

// --- Locks

TEST(Locks, TakenTwiceAreAnErrorAtOnce) {
  for (const char* const protocol : {"mgs", "hlrc", "sc", "placement"})
    EXPECT_THAT(output_of("lock-twice", 1, with(kTwoNodes, {"--protocol", protocol})),
                AllOf(HasSubstr("processor 3: mg_lock: the processor holds this lock already"),
                      HasSubstr("created at " + line("lock-created")), HasSubstr("wanted at " + line("taken-twice")),
                      HasSubstr("taken at " + line("taken"))));
}

TEST(Locks, OfAnotherCannotBeUnlocked) {
  EXPECT_THAT(output_of("unlock-others"),
              AllOf(HasSubstr("mg_unlock: this processor does not hold the lock"), HasSubstr(line("unlocked"))));
}

TEST(Locks, AreNotKeptByAFunctionThatReturns) {
  EXPECT_THAT(output_of("return-with-lock"),
              AllOf(HasSubstr("processor 3: a processor has returned from its function with a lock"),
                    HasSubstr("taken at " + line("kept"))));
  EXPECT_THAT(output_of("pthread-exit-with-lock"), HasSubstr("has returned from its function with a lock"));
}

TEST(Threads, ThatEndInAFunctionHaveReturned) {
  for (const char* const protocol : {"mgs", "hlrc", "sc", "placement"})
    output_of("exit-threads", 0, with(kTwoNodes, {"--protocol", protocol}));
}

// --- Hangs

const Strings kEnd = {"--deadlock", "end", "--deadlock-after", "0.3"};

void expect_ring(const std::string& text) {
  EXPECT_THAT(text, ContainsRegex("deadlock: .*processor 0 waits at " + line("ring-second") +
                                  " for lock 1, which processor 1 took at " + line("ring-first")));
  EXPECT_THAT(text,
              HasSubstr("processor 2 waits at " + line("ring-second") + " for lock 0, which processor 0 took at"));
  EXPECT_THAT(text, HasSubstr("every processor waits for another (--deadlock end); the run ends"));
}

TEST(Hang, InARingOfLocksIsADeadlock) {
  for (const char* const protocol : {"mgs", "hlrc", "sc", "placement"})
    expect_ring(output_of("ring", 1, with({"--nodes", "3", "--protocol", protocol}, kEnd)));
}

TEST(Hang, OverAnAgentIsADeadlockToo) {
  expect_ring(output_of("ring", 1, with({"--hosts", "localhost:3"}, kEnd)));
}

TEST(Hang, AtABarrierNamesWhoIsMissing) {
  EXPECT_THAT(output_of("skip-barrier", 1, with(kTwoNodes, kEnd)),
              AllOf(HasSubstr("barrier 0 (created at " + line("barrier-created") +
                              ") lacks 1 of 4 processors: processor 3 has returned from"),
                    ContainsRegex("processor 1 on node 0 has slept for .* at " + line("last-barrier"))));
}

TEST(Hang, IsReportedAndGoesOnByDefault) {
  Mgrun run(with(kTwoNodes, {"--deadlock-after", "0.3"}), "skip-barrier");
  EXPECT_THAT(run.read_until("--deadlock end ends such a run"), HasSubstr("every processor that runs has slept for"));
  run.signal(SIGTERM);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
}

TEST(Hang, IsNoneWhereAProcessorOrAThreadWaitsForTheWorldOutside) {
  EXPECT_THAT(output_of("sleep", 0, with(kTwoNodes, {"--deadlock-after", "2", "--deadlock", "end"})),
              testing::Eq("finished\n"));
  EXPECT_THAT(output_of("wait-for-thread", 0, with({"--nodes", "1"}, {"--deadlock-after", "2", "--deadlock", "end"})),
              testing::Eq(""));
  Mgrun run(with(kTwoNodes, {"--deadlock-after", "2", "--deadlock", "end"}), "read");
  run.read_until("ready");
  usleep(4'000'000);
  run.let_read();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.read_all(), "ready\nfinished\n");
}

TEST(Hang, NamesAProcessorThatComputesWhileTheOthersWait) {
  Mgrun run(with(kTwoNodes, {"--protocol", "hlrc", "--deadlock-after", "0.5"}), "race");
  EXPECT_THAT(
      run.read_until("whether that is it"),
      AllOf(HasSubstr("processors have waited at a barrier while the others have neither called Multigrain nor"),
            HasSubstr("lacks 1 of 4 processors: processor 3 runs"), HasSubstr("a data race")));
  run.signal(SIGTERM);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
}

// --- SIGQUIT

void expect_answers(const Strings& options) {
  Mgrun run(options, "read");
  run.read_until("ready");
  // The other processors may still be on their way to the barrier, so the test asks again until they are there.
  std::string answer;
  for (int i = 0; i < 600 && answer.find("lacks 1 of 4 processors: processor 0 runs") == std::string::npos; ++i) {
    const size_t before = run.text().size();
    run.signal(SIGQUIT);
    answer = run.read_until("processor 3 on node", before).substr(before);
    usleep(20'000);
  }
  EXPECT_THAT(answer, HasSubstr("what the processors do:"));
  EXPECT_THAT(answer, HasSubstr("lacks 1 of 4 processors: processor 0 runs"));
  run.let_read();
  EXPECT_EQ(run.finish(), 0) << run.text();
  EXPECT_THAT(run.text(), HasSubstr("finished"));
}

TEST(Quit, IsAnsweredAndTheRunGoesOn) {
  expect_answers(kTwoNodes);
}

TEST(Quit, IsAnsweredByAgentsToo) {
  expect_answers({"--hosts", "localhost:2", "--procs-per-node", "2"});
}

}  // namespace
