#include "base/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace multigrain {
namespace {

// This is a pipe whose ends are closed at the end of its life.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    close_write();
    close(ends[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  int ends[2];
};

// Returns what the program prints. Its exit status goes to `status`.
std::string output_of(const ChildStart& start, int* status = nullptr) {
  const auto output = run_and_read(start);
  EXPECT_TRUE(output) << (output ? "" : output.error().message);
  if (!output) return "";
  if (status != nullptr) *status = output->status;
  return output->text;
}

ChildStart shell(const std::string& script) {
  ChildStart start;
  start.command = {"sh", "-c", script};
  return start;
}

TEST(ChildProcess, IsSearchedForInPathAndHasItsWords) {
  int status = -1;
  EXPECT_EQ(output_of(shell("echo a \"$0\"; exit 3"), &status), "a sh\n");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(ChildProcess, ThatCannotBeExecutedIsNamedWithTheReason) {
  ChildStart start;
  start.command = {"/nonexistent/program", "x"};
  const auto child = start_child(start);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().message, "cannot run '/nonexistent/program': No such file or directory");
  start.command = {"/etc/passwd"};
  const auto forbidden = try_start_child(start);
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().step, ChildFailure::Step::kExec);
  EXPECT_EQ(forbidden.error().code, EACCES);
  // No child is left to wait for.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildProcess, IsReadToItsEnd) {
  const auto failed = run_and_read(shell("echo a; exec 1>&-; exit 3"));
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->text, "a\n");
  EXPECT_FALSE(failed->succeeded());
  const auto long_text = run_and_read(shell("seq 100000"));
  ASSERT_TRUE(long_text);
  EXPECT_EQ(long_text->text.size(), 588895u);
  EXPECT_TRUE(long_text->succeeded());
  ChildStart missing;
  missing.command = {"/nonexistent/program"};
  const auto none = run_and_read(missing);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "cannot run '/nonexistent/program': No such file or directory");
}

TEST(ChildProcess, WithoutWordsIsAnError) {
  EXPECT_EQ(start_child({}).error().message, "there is no program to run");
}

TEST(ChildProcess, ExecutesTheFileThatPathNamesWhateverTheFirstWordIs) {
  ChildStart start;
  start.command = {"no such name", "-c", "echo \"$0\""};
  start.path = "/bin/sh";
  EXPECT_EQ(output_of(start), "no such name\n");
  start.path = "sh";  // not searched for
  EXPECT_FALSE(start_child(start));
}

TEST(ChildProcess, HasVariablesInAdditionOrAlone) {
  ASSERT_EQ(setenv("MULTIGRAIN_TEST_KEPT", "kept", 1), 0);
  ASSERT_EQ(setenv("MULTIGRAIN_TEST_CHANGED", "before", 1), 0);
  ChildStart start = shell("echo \"$MULTIGRAIN_TEST_KEPT-$MULTIGRAIN_TEST_CHANGED\"");
  start.environment = {"MULTIGRAIN_TEST_CHANGED=after"};
  EXPECT_EQ(output_of(start), "kept-after\n");
  EXPECT_STREQ(getenv("MULTIGRAIN_TEST_CHANGED"), "before");
  start.whole_environment = true;
  EXPECT_EQ(output_of(start), "-after\n");
}

TEST(ChildProcess, HasTheDescriptorsThatItIsGivenAndNoOthers) {
  Pipe input, other;
  ASSERT_EQ(write(input.ends[1], "text", 4), 4);
  input.close_write();
  ChildStart start = shell("cat; if [ -e /proc/$$/fd/" + std::to_string(other.ends[1]) + " ]; then echo -open; fi");
  start.input = input.ends[0];
  EXPECT_EQ(output_of(start), "text");
  start.input = kNullDescriptor;
  start.inherited = {other.ends[1]};
  EXPECT_EQ(output_of(start), "-open\n");
  EXPECT_EQ(fcntl(other.ends[1], F_GETFD), FD_CLOEXEC) << "the flag is lost in the child alone";
}

TEST(ChildProcess, ThatGetsADescriptorWhichIsNotThereDoesNotRun) {
  ChildStart start = shell("true");
  start.inherited = {12345};
  const auto child = try_start_child(start);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().step, ChildFailure::Step::kDescriptors);
  EXPECT_EQ(child.error().code, EBADF);
}

TEST(ChildProcess, StartsWithStandardInputClosed) {
  // The report of a failure must not be taken for the closed descriptor that its pipe then gets.
  const int saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  close(STDIN_FILENO);
  ChildStart start;
  start.command = {"/nonexistent/program"};
  start.input = kNullDescriptor;
  const auto child = try_start_child(start);
  dup2(saved, STDIN_FILENO);
  close(saved);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ENOENT);
}

TEST(ChildProcess, IsEndedByItsParentsEnd) {
  // The shell's parent is a child of this process, which ends at once; the pipe is closed when the shell has gone, too.
  Pipe pipe;
  const pid_t middle = fork();
  ASSERT_GE(middle, 0);
  if (middle == 0) {
    ChildStart start;
    start.command = {"sleep", "1000"};
    start.output = pipe.ends[1];
    start.parent_death_signal = SIGKILL;
    _exit(start_child(start) ? 0 : 1);
  }
  pipe.close_write();
  EXPECT_EQ(wait_for_child(middle), 0);
  EXPECT_EQ(read_to_end(pipe.ends[0]), "");  // if the shell lived, this would wait for as long as its sleep
}

TEST(ChildProcess, HasTheSignalsAndTheSessionThatItIsGiven) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  ASSERT_EQ(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
  auto* const handler = signal(SIGUSR2, SIG_IGN);
  ChildStart start;
  start.command = {"cat", "/proc/self/stat", "/proc/self/status"};
  start.default_signals = {SIGUSR2};
  start.signal_mask.emplace();
  sigemptyset(&*start.signal_mask);
  start.new_session = true;
  const std::string text = output_of(start);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGUSR2, handler);
  const auto mask = [&](const char* name) {
    const size_t at = text.find(name);
    return at == std::string::npos ? ~0ull : std::strtoull(text.c_str() + at + 8, nullptr, 16);
  };
  EXPECT_EQ(mask("SigBlk:") & (1ull << (SIGUSR1 - 1)), 0u) << text;
  EXPECT_EQ(mask("SigIgn:") & (1ull << (SIGUSR2 - 1)), 0u) << text;
  int process = 0, session = 0;
  ASSERT_EQ(std::sscanf(text.c_str(), "%d (%*[^)]) %*c %*d %*d %d", &process, &session), 2) << text;
  EXPECT_EQ(session, process);
}

TEST(ChildProcess, IsPreparedAndNotRunIfThatFails) {
  ChildStart start = shell("pwd");
  start.prepare = [] { return chdir("/") == 0; };
  EXPECT_EQ(output_of(start), "/\n");
  start.prepare = [] {
    errno = EPERM;
    return false;
  };
  const auto child = try_start_child(start);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().step, ChildFailure::Step::kPrepare);
  EXPECT_EQ(child.error().code, EPERM);
}

TEST(ExecCommand, SaysWhatCannotBeExecuted) {
  EXPECT_EQ(exec_command({"/nonexistent/program"}).value().message,
            "cannot run '/nonexistent/program': No such file or directory");
}

TEST(ExecFile, HasItsWordsAndItsEnvironmentAlone) {
  ASSERT_EQ(setenv("MULTIGRAIN_TEST_KEPT", "kept", 1), 0);
  Pipe pipe;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(pipe.ends[1], STDOUT_FILENO);
    exec_file("/bin/sh", {"no such name", "-c", "echo \"$0-$GIVEN-$MULTIGRAIN_TEST_KEPT\""}, {"GIVEN=a b"});
    _exit(1);
  }
  pipe.close_write();
  EXPECT_EQ(read_to_end(pipe.ends[0]), "no such name-a b-\n");
  EXPECT_EQ(wait_for_child(child), 0);
}

TEST(ExecFile, SaysWhyItCannotAndDoesNotSearch) {
  EXPECT_EQ(exec_file("sh", {"sh"}, {}), ENOENT);
  EXPECT_EQ(exec_file("/etc/passwd", {"passwd"}, {}), EACCES);
}

}  // namespace
}  // namespace multigrain
