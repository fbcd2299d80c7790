// These test mgrun from outside, as its users meet it: what it says about bad usage, whose exit status it returns, and
// that nothing outlives a run however it ends. Shell scripts stand in for the nodes. The test process adopts orphans
// (PR_SET_CHILD_SUBREAPER), so that it can wait for the end of processes whose parent was killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;
using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

Strings lines_of(const std::string& text) {
  std::istringstream stream(text);
  Strings lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Waits for the condition. Gives up only where it would hang otherwise.
template <typename Condition>
bool eventually(Condition&& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    usleep(5000);
  }
  return false;
}

class MgrunTest : public testing::Test {
 protected:
  void SetUp() override {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::string name = (fs::temp_directory_path() / "mgrun-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Starts mgrun. Its output goes to files in folder_.
  pid_t start(const Strings& arguments, const Variables& variables = {}, const std::string& input = "") {
    std::ofstream(folder_ / "in") << input;
    const pid_t pid = fork();
    if (pid != 0) return pid;
    redirect("in", O_RDONLY, 0);
    redirect("out", O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect("err", O_WRONLY | O_CREAT | O_TRUNC, 2);
    exec_mgrun(arguments, variables);
  }

  // Starts a command line in a group of processes of its own.
  static pid_t start_shell(const std::string& command) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    setpgid(0, 0);
    execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
    _exit(126);
  }

  // Waits for mgrun and returns its exit status, or 1000 + the signal that killed it.
  static int finish(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  int run(const Strings& arguments, const Variables& variables = {}, const std::string& input = "") {
    return finish(start(arguments, variables, input));
  }

  [[nodiscard]] std::string out() const { return contents(folder_ / "out"); }
  [[nodiscard]] std::string err() const { return contents(folder_ / "err"); }

  // Returns arguments that run a script on every node, which first leaves its pid in a file.
  [[nodiscard]] Strings nodes(unsigned count, const std::string& script) const {
    const std::string prefix = "echo $$ > " + (folder_ / "pid.").string() + "$MULTIGRAIN_NODE; ";
    return {"--nodes", std::to_string(count), "sh", "-c", prefix + script};
  }

  // Waits until that many nodes have left their pids.
  std::vector<pid_t> pids(unsigned count) {
    std::vector<pid_t> result;
    for (unsigned node = 0; node < count; ++node) {
      const fs::path file = folder_ / ("pid." + std::to_string(node));
      EXPECT_TRUE(eventually([&] { return contents(file).ends_with('\n'); }));
      result.push_back(std::atoi(contents(file).c_str()));
      // 0 would stand for this process's group.
      EXPECT_GT(result.back(), 0);
    }
    return result;
  }

  static bool all_gone(const std::vector<pid_t>& processes) {
    return eventually([&] {
      // Processes that the test has adopted must be reaped before they are gone.
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      return std::ranges::all_of(processes, [](pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; });
    });
  }

  [[noreturn]] static void exec_mgrun(const Strings& arguments, const Variables& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>(MGRUN)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(MGRUN, argv.data());
    _exit(126);
  }

  void redirect(const char* name, int flags, int target) const {
    const int fd = open((folder_ / name).c_str(), flags, 0600);
    if (fd < 0 || dup2(fd, target) < 0) _exit(125);
  }

  fs::path folder_;
};

struct BadUsage {
  Strings arguments;
  std::string sentence;  // part of the sentence
};

class MgrunBadUsageTest : public MgrunTest, public testing::WithParamInterface<BadUsage> {};

TEST_P(MgrunBadUsageTest, GetsOneSentenceAndStatus2) {
  EXPECT_EQ(run(GetParam().arguments), 2);
  EXPECT_EQ(out(), "");
  EXPECT_THAT(err(), StartsWith("mgrun: "));
  EXPECT_THAT(err(), HasSubstr(GetParam().sentence));
  EXPECT_EQ(lines_of(err()).size(), 1u) << err();
}

INSTANTIATE_TEST_SUITE_P(
    All, MgrunBadUsageTest,
    testing::Values(
        BadUsage{{}, "no program"}, BadUsage{{"--nodes", "2"}, "no program"},
        BadUsage{{"--bogus", "true"}, "unknown option '--bogus'"},
        BadUsage{{"--nodes", "2", "-z", "true"}, "unknown option '-z'"},
        BadUsage{{"--nodes", "0", "true"}, "--nodes is '0'; it must be a whole number from 1 to 1024"},
        BadUsage{{"--nodes", "1025", "true"}, "--nodes is '1025'; it must be a whole number from 1 to 1024"},
        BadUsage{{"--nodes", "2x", "true"}, "--nodes is '2x'; it must be a whole number"},
        BadUsage{{"--nodes", "-1", "true"}, "--nodes"}, BadUsage{{"--nodes", "", "true"}, "--nodes"},
        BadUsage{{"--nodes", "99999999999", "true"}, "--nodes"},
        BadUsage{{"--procs-per-node", "0", "true"}, "from 1 to 256"},
        BadUsage{{"--page-size", "5000", "true"}, "power of two from 4096 to 65536"},
        BadUsage{{"--page-size", "2048", "true"}, "power of two from 4096 to 65536"},
        BadUsage{{"--page-size", "128K", "true"}, "power of two from 4096 to 65536"},
        BadUsage{{"--page-size", "big", "true"}, "--page-size: size 'big'"},
        BadUsage{{"--region-size", "10", "true"}, "region's size is 10"},
        BadUsage{{"--net", "fast", "true"}, "--net: network model 'fast'"},
        BadUsage{{"--net", "latency=5", "true"}, "latency is '5'"},
        BadUsage{{"--machine", "alewife", "true"},
                 "--machine prices what the counted clock counts; give --clock counted"},
        BadUsage{{"--machine", "alewife", "--clock", "virtual", "true"}, "give --clock counted"},
        BadUsage{{"--protocol", "mesi", "true"}, "protocol is 'mesi'; it must be auto, mgs"},
        BadUsage{{"--access", "magic", "true"}, "--access"}, BadUsage{{"--home", "moon", "true"}, "--home"},
        BadUsage{{"--stats", "xml", "true"}, "--stats"},
        BadUsage{{"--fabric", "tcp", "true"}, "--fabric: fabric is 'tcp'"},
        BadUsage{{"--timeout", "soon", "true"}, "--timeout: time-out is 'soon'"},
        BadUsage{{"--interface", "", "true"}, "--interface"},
        BadUsage{{"--fabric", "ucx", "--interface", "nosuch0", "true"},
                 "--interface: there is no network device 'nosuch0'"},
        BadUsage{{"--hosts", "localhost:2", "--interface", "nosuch0", "true"},
                 "host localhost: --interface: there is no network device 'nosuch0'"},
        BadUsage{{"--stats", "text:/nonexistent/x", "echo", "started"},
                 "--stats: cannot write '/nonexistent/x': No such"},
        BadUsage{{"--stats", "json:/tmp", "echo", "started"}, "--stats: cannot write '/tmp': Is a directory"},
        BadUsage{{"--hosts", "localhost", "--stats", "text:/nonexistent/x", "echo", "started"},
                 "host localhost: --stats: cannot write '/nonexistent/x': No such"},
        BadUsage{{"--hosts", "a,,b", "true"}, "--hosts: '' is not the name of a host"},
        BadUsage{{"--hosts", "-oProxyCommand=x", "true"}, "--hosts"},
        BadUsage{{"--hosts", "a", "--hostfile", "/etc/hosts", "true"}, "exclude each other"},
        BadUsage{{"--hostfile", "/nonexistent", "true"}, "--hostfile: cannot read '/nonexistent'"},
        BadUsage{{"--hosts", "a", "--fabric", "shm", "true"}, "--fabric shm connects nodes on one machine"},
        BadUsage{{"--hosts", "a,b", "--nodes", "3", "true"}, "--nodes 3, but the hosts take 2"},
        BadUsage{{"--hosts", "a", "--ssh", "'ssh", "true"}, "--ssh: ''ssh' has a quote"},
        BadUsage{{"--hosts", "localhost", "no-such-program-anywhere"}, "no executable file of that name"},
        BadUsage{{"--hosts", "localhost:2", "--procs-per-node", "256", "--pin", "true"}, "host localhost: --pin"},
        BadUsage{{"--pin", "--no-pin", "true"}, "--no-pin"},
        BadUsage{{"--pin", "--nodes", "64", "--procs-per-node", "256", "true"}, "16384 processors"},
        BadUsage{{"no-such-program-anywhere"}, "'no-such-program-anywhere': no executable file of that name in PATH"},
        BadUsage{{"./no-such-program"}, "'./no-such-program': No such file or directory"},
        BadUsage{{"/tmp"}, "'/tmp': it is a directory"}, BadUsage{{"/etc/passwd"}, "'/etc/passwd': it is not exec"},
        BadUsage{{""}, "cannot run ''"}));

TEST_F(MgrunTest, RefusesAFileThatTheSystemCannotExecute) {
  const fs::path file = folder_ / "text";
  std::ofstream(file) << "just text\n";
  fs::permissions(file, fs::perms::owner_all);
  EXPECT_EQ(run({"--nodes", "3", file.string()}), 2);
  EXPECT_THAT(err(), HasSubstr("neither a program for this machine nor a script"));
  EXPECT_EQ(lines_of(err()).size(), 1u);
}

TEST_F(MgrunTest, HelpAndVersionGoToStandardOutput) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("--procs-per-node"));
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_THAT(out(), StartsWith("mgrun (Multigrain) "));
}

TEST_F(MgrunTest, ListsNetworksWithTheirFigures) {
  EXPECT_EQ(run({"--net", "list"}), 0);
  EXPECT_THAT(out(), HasSubstr("latency=14us,bandwidth=96MB/s"));
  EXPECT_THAT(out(), HasSubstr("Source: "));
  EXPECT_EQ(run({"--net", "carrier-pigeon", "true"}), 2);
  EXPECT_THAT(err(), HasSubstr("mgrun --net list"));
}

TEST_F(MgrunTest, ListsMachinesWithTheirSources) {
  EXPECT_EQ(run({"--machine", "list"}), 0);
  EXPECT_THAT(out(), HasSubstr("alewife           20 MHz, network latency=50us\n"));
  EXPECT_THAT(out(), HasSubstr("Source: the MGS paper"));
  EXPECT_EQ(run({"--clock", "counted", "--machine", "pdp-11", "true"}), 2);
  EXPECT_THAT(err(), HasSubstr("mgrun: --machine: there is no machine 'pdp-11'; mgrun --machine list shows those"));
}

TEST_F(MgrunTest, NamesFileLineAndKeyOfAMistakeInAMachine) {
  const std::string file = (folder_ / "machine.json").string();
  std::ofstream(file) << "{\n\"name\": \"x\",\n\"speed\": 3}\n";
  EXPECT_EQ(run({"--clock", "counted", "--machine", file, "true"}), 2);
  EXPECT_THAT(err(), HasSubstr("mgrun: --machine: " + file + ", line 3: speed: there is no such key"));
  EXPECT_EQ(run({"--clock", "counted", "true"}, {{"MULTIGRAIN_MACHINE", file}}), 2);
  EXPECT_THAT(err(), HasSubstr("mgrun: MULTIGRAIN_MACHINE: " + file + ", line 3: speed: "));
}

TEST_F(MgrunTest, ReturnsTheProgramsStatus) {
  for (const int status : {0, 1, 7, 255}) EXPECT_EQ(run({"sh", "-c", "exit " + std::to_string(status)}), status);
  EXPECT_EQ(run({"--nodes", "4", "sh", "-c", "test $MULTIGRAIN_NODE != 0 || exit 7"}), 7);
}

TEST_F(MgrunTest, ProgramArgumentsAreNotItsOwn) {
  EXPECT_EQ(run({"--nodes", "1", "printf", "%s|", "--nodes", "0", "--", "a b", "", "--help"}), 0);
  EXPECT_EQ(out(), "--nodes|0|--|a b||--help|");
  EXPECT_EQ(run({"--", "printf", "%s|", "--", "-n"}), 0);
  EXPECT_EQ(out(), "--|-n|");
}

TEST_F(MgrunTest, OptionsOverrideTheEnvironment) {
  const std::string script =
      "test $MULTIGRAIN_NODE = 0 && echo $MULTIGRAIN_NODES,$MULTIGRAIN_PAGE_SIZE,$MULTIGRAIN_NET";
  const Variables variables = {{"MULTIGRAIN_NODES", "2"}, {"MULTIGRAIN_PAGE_SIZE", "8192"}, {"MULTIGRAIN_NET", "lan"}};
  run({"--net", "latency=5us", "sh", "-c", script + " || true"}, variables);
  EXPECT_EQ(out(), "2,8192,latency=5us\n");
  EXPECT_EQ(run({"true"}, {{"MULTIGRAIN_NODES", "zero"}}), 2);
  EXPECT_THAT(err(), HasSubstr("MULTIGRAIN_NODES is 'zero'; it must be a whole number from 1 to 1024"));
  EXPECT_EQ(run({"true"}, {{"MULTIGRAIN_VERBOSE", "yes"}}), 2);
  EXPECT_THAT(err(), HasSubstr("MULTIGRAIN_VERBOSE"));
}

TEST_F(MgrunTest, OnlyNodeZeroReadsTheInput) {
  EXPECT_EQ(run(nodes(3, "cat > " + (folder_ / "read.").string() + "$MULTIGRAIN_NODE"), {}, "hello\n"), 0);
  EXPECT_EQ(contents(folder_ / "read.0"), "hello\n");
  EXPECT_EQ(contents(folder_ / "read.1"), "");
  EXPECT_EQ(contents(folder_ / "read.2"), "");
}

TEST_F(MgrunTest, LabelsEachLine) {
  const std::string script = "echo one; echo two $MULTIGRAIN_NODE; echo bad >&2; printf unfinished";
  EXPECT_EQ(run({"--label-output", "--quiet", "--nodes", "2", "sh", "-c", script}), 0);
  EXPECT_THAT(lines_of(out()), testing::UnorderedElementsAre("[0] one", "[0] two 0", "[0] unfinished", "[1] one",
                                                             "[1] two 1", "[1] unfinished"));
  EXPECT_THAT(lines_of(err()), testing::UnorderedElementsAre("[0] bad", "[1] bad"));
}

TEST_F(MgrunTest, LabelledOutputOfAnyLengthArrivesWhole) {
  EXPECT_EQ(run({"--label-output", "sh", "-c", "seq 1 200000; head -c 300000 /dev/zero | tr '\\0' x"}), 0);
  size_t characters = 0;
  size_t numbers = 0;
  for (const std::string& line : lines_of(out())) {
    ASSERT_THAT(line, StartsWith("[0] "));
    if (line[4] == 'x') {
      characters += line.size() - 4;
    } else {
      ASSERT_EQ(line, "[0] " + std::to_string(++numbers));
    }
  }
  EXPECT_EQ(numbers, 200000u);
  EXPECT_EQ(characters, 300000u);
}

// The nodes have been told that their bytes were written.
TEST_F(MgrunTest, OutputThatIsLostEndsTheRun) {
  fs::create_symlink("/dev/full", folder_ / "out");
  const Strings chatty = {"sh", "-c", "seq 1 100000; exec sleep 60"};
  const Strings brief = {"sh", "-c", "echo last words"};
  for (const Strings& where : {Strings{"--label-output", "--nodes", "2"}, Strings{"--hosts", "localhost:2"}}) {
    for (const Strings& program : {chatty, brief}) {
      Strings arguments = where;
      arguments.insert(arguments.end(), program.begin(), program.end());
      EXPECT_EQ(run(arguments), 1);
      EXPECT_THAT(err(), StartsWith("mgrun: cannot write the output of nodes to standard output: No space left"));
      EXPECT_EQ(lines_of(err()).size(), 1u) << err();
    }
  }
}

TEST_F(MgrunTest, InformationThatIsLostIsNoSuccess) {
  fs::create_symlink("/dev/full", folder_ / "out");
  for (const Strings& arguments : {Strings{"--help"}, Strings{"--version"}, Strings{"--net", "list"}}) {
    EXPECT_EQ(run(arguments), 1);
    EXPECT_EQ(err(), "mgrun: cannot write to standard output: No space left on device\n");
  }
}

TEST_F(MgrunTest, MessagesThatAreLostEndNothing) {
  fs::create_symlink("/dev/full", folder_ / "err");
  EXPECT_EQ(run({"--verbose", "--nodes", "2", "sh", "-c", "echo $MULTIGRAIN_NODE"}), 0);
  EXPECT_THAT(lines_of(out()), testing::UnorderedElementsAre("0", "1"));
  EXPECT_EQ(run({"--bogus", "true"}), 2);
}

TEST_F(MgrunTest, AStandardDescriptorThatIsClosedStaysUnusable) {
  const std::string command =
      std::string(MGRUN) + " --nodes 2 bash -c 'echo x' 0<&- 1>&- 2>" + (folder_ / "err").string();
  // The shell's echo fails, as it does without mgrun.
  EXPECT_NE(finish(start_shell(command)), 0);
  EXPECT_THAT(err(), HasSubstr("Bad file descriptor"));
}

TEST_F(MgrunTest, AReaderThatHasEnoughEndsTheRunWithoutAWord) {
  const std::string command = std::string("exec 2>") + (folder_ / "err").string() + "; { " + MGRUN +
                              " --nodes 2 sh -c 'exec yes'; echo $? > " + (folder_ / "status").string() +
                              "; } | head -1";
  EXPECT_EQ(finish(start_shell(command)), 0);
  EXPECT_EQ(contents(folder_ / "status"), "141\n");
  EXPECT_EQ(err(), "");
}

TEST_F(MgrunTest, LimitsThatAreTooLowAreNamed) {
  const std::string nodes = std::string(MGRUN) + " --nodes 16 ";
  const std::string to_files = " > " + (folder_ / "out").string() + " 2> " + (folder_ / "err").string();
  EXPECT_EQ(finish(start_shell("ulimit -n 16; " + nodes + "true" + to_files)), 2);
  EXPECT_THAT(err(),
              testing::ContainsRegex("^mgrun: a run of 16 nodes needs [0-9]+ open files in a process, and the limit "
                                     "is 16: raise it \\(ulimit -n [0-9]+\\)\n$"));
  EXPECT_EQ(finish(start_shell("ulimit -n 16; " + nodes + "--fabric ucx true" + to_files)), 2);
  EXPECT_THAT(err(), HasSubstr("ulimit -n"));
  EXPECT_EQ(finish(start_shell("ulimit -f 1000; " + nodes + "true" + to_files)), 1);
  EXPECT_THAT(err(), HasSubstr("ulimit -f"));
  EXPECT_EQ(lines_of(err()).size(), 1u) << err();
  // A limit that the program may raise does not hinder writes that do not go to a disk, and still holds for the
  // program.
  EXPECT_EQ(finish(start_shell("ulimit -S -f 1000; " + std::string(MGRUN) + " bash -c 'ulimit -f'" + to_files)), 0)
      << err();
  EXPECT_EQ(out(), "1000\n");
}

// An mgrun with a sanitizer itself needs terabytes.
TEST_F(MgrunTest, ALimitOnAddressSpaceThatIsTooLowIsNamed) {
  const std::string to_files = " > " + (folder_ / "out").string() + " 2> " + (folder_ / "err").string();
  EXPECT_EQ(finish(start_shell("ulimit -v 150000; " + std::string(MGRUN) + " --nodes 16 true" + to_files)), 1);
  EXPECT_THAT(err(), HasSubstr("ulimit -v"));
}

TEST_F(MgrunTest, GivesEachNodeWhatItNeeds) {
  EXPECT_EQ(run({"--nodes", "2", "--procs-per-node", "3", "--page-size", "16K", "--region-size", "1G", "--label-output",
                 FAKE_NODE, "report"},
                {{"MULTIGRAIN_NODE", "9"}, {"MULTIGRAIN_JOB_FD", "1"}}),
            0);
  const std::string rest = " of 2 x 3, pages of 16384, fixed addresses, frames 1073741824 1073741824";
  EXPECT_THAT(lines_of(out()), testing::UnorderedElementsAre("[0] node 0" + rest, "[1] node 1" + rest));
}

TEST_F(MgrunTest, WiresUpNodesThatShareNothing) {
  EXPECT_EQ(run({"--fabric", "ucx", "--nodes", "1", WIREUP_NODE, "report"}), 0);
  EXPECT_EQ(run({"--fabric", "ucx", "--nodes", "4", WIREUP_NODE, "report"},
                {{"MULTIGRAIN_NODES", "9"}, {"MULTIGRAIN_NODE", "9"}, {"MULTIGRAIN_WIREUP", "fd:9"}}),
            0)
      << err();
  EXPECT_EQ(err(), "");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string rest = std::string(" of 4 on ") + host + ", fixed addresses, interface 'lo'";
  EXPECT_THAT(lines_of(out()),
              testing::UnorderedElementsAre("node 0" + rest, "node 1" + rest, "node 2" + rest, "node 3" + rest));
  EXPECT_EQ(run({"--fabric", "ucx", "--interface", "lo,lo", "--nodes", "2", WIREUP_NODE, "report"}), 0);
  EXPECT_THAT(out(), HasSubstr("interface 'lo,lo'"));
  EXPECT_EQ(run({"--fabric", "ucx", "--nodes", "2", "sh", "-c", "echo $MULTIGRAIN_NODES"}), 0) << "any program";
  EXPECT_EQ(out(), "2\n2\n");
}

TEST_F(MgrunTest, AnAgentOnThisMachineDoesAsMgrunDoes) {
  // tests/cluster tests hosts. This is the part that needs none.
  EXPECT_EQ(run({"--hosts", "localhost:3", WIREUP_NODE, "report"}), 0) << err();
  EXPECT_EQ(lines_of(out()).size(), 3u);
  EXPECT_EQ(err(), "");
  // Node 1 has no input, so it ends first. On a busy machine mgrun hears of node 0's end too late to take it for the reason of an
  // error there.
  const std::string program = "cat; echo $MULTIGRAIN_NODE >&2; test $MULTIGRAIN_NODE = 1 || exit 3";
  EXPECT_EQ(run({"--hosts", "localhost:2", "sh", "-c", program}, {}, "input\n"), 3);
  EXPECT_EQ(out(), "input\n");
  EXPECT_THAT(lines_of(err()), testing::UnorderedElementsAre("0", "1"));
  EXPECT_EQ(run({"--hosts", "localhost", "--label-output", "sh", "-c", "seq 1 100000; printf unfinished"}), 0);
  EXPECT_EQ(lines_of(out()).size(), 100001u);
  EXPECT_TRUE(out().ends_with("\n[0] 100000\n[0] unfinished\n"));
}

TEST_F(MgrunTest, AnAgentsNodesDieWithMgrun) {
  Strings arguments = nodes(3, "exec sleep 60");
  arguments.insert(arguments.begin(), {"--hosts", "localhost:3"});
  const pid_t mgrun = start(arguments);
  const std::vector<pid_t> processes = pids(3);
  kill(mgrun, SIGKILL);
  EXPECT_EQ(finish(mgrun), 1000 + SIGKILL);
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, ANodeThatLeavesAWiredUpRunEndsIt) {
  EXPECT_EQ(run({"--fabric", "ucx", "--nodes", "3", WIREUP_NODE, "leave"}), 1);
  EXPECT_THAT(err(), HasSubstr("node 1 (pid "));
  EXPECT_THAT(err(), HasSubstr("exited with status 0 before the program did"));
}

TEST_F(MgrunTest, NodesThatSeeTheEndFirstAreNotItsCause) {
  EXPECT_EQ(run({"--fabric", "ucx", "--nodes", "3", WIREUP_NODE, "follow"}), 5);
  EXPECT_EQ(err(), "");
}

TEST_F(MgrunTest, ASignalEndsAWiredUpRun) {
  const pid_t mgrun = start({"--fabric", "ucx", "--nodes", "3", WIREUP_NODE, "serve"});
  ASSERT_TRUE(eventually([this] { return out() == "serving\n"; }));
  kill(mgrun, SIGTERM);
  EXPECT_EQ(finish(mgrun), 128 + SIGTERM);
  EXPECT_EQ(err(), "mgrun: signal 15 (Terminated) ended the run\n");
}

TEST_F(MgrunTest, PinsWhenThereAreEnoughCores) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const unsigned cores = static_cast<unsigned>(CPU_COUNT(&set));
  const Strings show = {"sh", "-c", "echo $MULTIGRAIN_CORES:$MULTIGRAIN_PIN"};
  const auto run_with = [&](Strings arguments) {
    arguments.insert(arguments.end(), show.begin(), show.end());
    EXPECT_EQ(run(arguments, {{"MULTIGRAIN_PIN", "stale"}}), 0);
    return lines_of(out());
  };
  const std::string unpinned = std::to_string(cores) + ":";
  const Strings pinned = run_with({"--procs-per-node", std::to_string(cores)});
  ASSERT_EQ(pinned.size(), 1u);
  ASSERT_THAT(pinned[0], StartsWith(unpinned));
  std::istringstream list(pinned[0].substr(unpinned.size()));
  std::set<std::string> distinct;
  for (std::string core; std::getline(list, core, ',');) {
    EXPECT_TRUE(CPU_ISSET(std::stoul(core), &set)) << core;
    distinct.insert(core);
  }
  EXPECT_EQ(distinct.size(), cores);
  EXPECT_THAT(run_with({"--no-pin"}), testing::ElementsAre(unpinned));
  EXPECT_THAT(run_with({"--procs-per-node", std::to_string(cores + 1)}), testing::ElementsAre(unpinned));
}

TEST_F(MgrunTest, AKilledNodeEndsTheRun) {
  const pid_t mgrun = start(nodes(4, "exec sleep 60"));
  const std::vector<pid_t> processes = pids(4);
  kill(processes[2], SIGKILL);
  EXPECT_EQ(finish(mgrun), 1);
  EXPECT_EQ(err(),
            "mgrun: node 2 (pid " + std::to_string(processes[2]) + ") was killed by signal 9 (Killed); the run ends\n");
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, AKilledProgramEndsTheRun) {
  const pid_t mgrun = start(nodes(3, "exec sleep 60"));
  const std::vector<pid_t> processes = pids(3);
  kill(processes[0], SIGKILL);
  EXPECT_EQ(finish(mgrun), 128 + SIGKILL);
  EXPECT_THAT(err(), HasSubstr("node 0 (pid " + std::to_string(processes[0]) + ") was killed by signal 9"));
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, ACrashIsReportedAsTheShellWould) {
  EXPECT_EQ(
      run({"--nodes", "2", "sh", "-c", "test $MULTIGRAIN_NODE != 0 && exec sleep 60; ulimit -c 0; kill -SEGV $$"}),
      128 + SIGSEGV);
  EXPECT_THAT(err(), HasSubstr("was killed by signal 11 (Segmentation fault"));
}

TEST_F(MgrunTest, ANodeThatFailsEndsTheRun) {
  const std::string go = (folder_ / "go").string();
  const pid_t mgrun = start(
      nodes(3, "test $MULTIGRAIN_NODE = 1 || exec sleep 60; while ! test -e " + go + "; do sleep 0.02; done; exit 3"));
  const std::vector<pid_t> processes = pids(3);
  std::ofstream(folder_ / "go") << "now";
  EXPECT_EQ(finish(mgrun), 1);
  EXPECT_EQ(err(), "mgrun: node 1 (pid " + std::to_string(processes[1]) +
                       ") exited with status 3 before the program did; the run ends\n");
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, ANodeThatLeavesUntoldEndsTheRun) {
  EXPECT_EQ(run({"--nodes", "2", FAKE_NODE, "leave"}), 1);
  EXPECT_THAT(err(), HasSubstr("node 1 (pid "));
  EXPECT_THAT(err(), HasSubstr("exited with status 0 before the program did"));
}

TEST_F(MgrunTest, AFlagTakesNoValue) {
  EXPECT_EQ(run({"--check=5", "true"}), 2);
  EXPECT_THAT(err(), HasSubstr("--check takes no value"));
}

TEST_F(MgrunTest, ANodeThatEndsInOrderDoesNot) {
  // Both ends are seen at about the same time, in either order.
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(run({"--nodes", "2", FAKE_NODE, "end"}), 5);
    ASSERT_EQ(err(), "");
  }
}

TEST_F(MgrunTest, NodesThatCannotStartHaveSaidSo) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(run({"--nodes", "2", FAKE_NODE, "refuse"}), 2);
    ASSERT_EQ(err(), "");
  }
}

TEST_F(MgrunTest, TheAbortWordNamesTheDeadNode) {
  EXPECT_EQ(run({"--nodes", "2", FAKE_NODE, "abort"}), 1);
  // The word is 1 + the node's number.
  EXPECT_EQ(out(), "aborted: 2\n");
  EXPECT_THAT(err(), HasSubstr("node 1 (pid "));
}

TEST_F(MgrunTest, NodesThatIgnoreTheEndAreKilled) {
  const std::string go = (folder_ / "go").string();
  const pid_t mgrun =
      start(nodes(3, "trap '' TERM; while ! test $MULTIGRAIN_NODE = 0 -a -e " + go + "; do sleep 0.02; done; exit 6"));
  const std::vector<pid_t> processes = pids(3);
  std::ofstream(folder_ / "go") << "now";
  EXPECT_EQ(finish(mgrun), 6);
  EXPECT_THAT(err(), HasSubstr("node 1 (pid " + std::to_string(processes[1]) + ") did not end with the program"));
  EXPECT_THAT(err(), HasSubstr("node 2 (pid " + std::to_string(processes[2]) + ") did not end with the program"));
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, WhatNodesLeaveBehindIsEnded) {
  const std::string background = (folder_ / "background").string();
  EXPECT_EQ(run(nodes(1, "setsid sleep 60 & echo $! > " + background)), 0);
  const pid_t left = std::atoi(contents(background).c_str());
  ASSERT_GT(left, 0);
  EXPECT_TRUE(kill(left, 0) != 0 && errno == ESRCH);
}

TEST_F(MgrunTest, NodesDieWithMgrun) {
  const pid_t mgrun = start(nodes(4, "exec sleep 60"));
  const std::vector<pid_t> processes = pids(4);
  kill(mgrun, SIGKILL);
  EXPECT_EQ(finish(mgrun), 1000 + SIGKILL);
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, EndingSignalsReachEveryNode) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const pid_t mgrun = start(nodes(3, "exec sleep 60"));
    const std::vector<pid_t> processes = pids(3);
    kill(mgrun, number);
    EXPECT_EQ(finish(mgrun), 128 + number);
    EXPECT_THAT(err(), HasSubstr("signal " + std::to_string(number) + " ("));
    EXPECT_THAT(err(), HasSubstr(") ended the run"));
    EXPECT_EQ(lines_of(err()).size(), 1u);
    EXPECT_TRUE(all_gone(processes));
    for (int node = 0; node < 3; ++node) fs::remove(folder_ / ("pid." + std::to_string(node)));
  }
}

TEST_F(MgrunTest, AProgramMayHandleTheSignal) {
  const std::string got = (folder_ / "got").string();
  // Both nodes handle the signal. Node 1 ends when node 0 has done so.
  const pid_t mgrun = start(nodes(2, "test $MULTIGRAIN_NODE = 0 && trap 'echo > " + got + "; exit 3' TERM || trap '' " +
                                         "TERM; echo > " + (folder_ / "set.").string() +
                                         "$MULTIGRAIN_NODE; while ! test -e " + got + "; do sleep 0.02; done"));
  const std::vector<pid_t> processes = pids(2);
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "set.0") && fs::exists(folder_ / "set.1"); }));
  kill(mgrun, SIGTERM);
  EXPECT_EQ(finish(mgrun), 3);
  EXPECT_EQ(err(), "");
  EXPECT_TRUE(all_gone(processes));
}

// timeout, scancel and systemd send a signal like this: to every process that belongs to the run.
TEST_F(MgrunTest, ASignalToAllProcessesIsOneSignal) {
  const std::string got = (folder_ / "got").string();
  const std::string script = "echo $$ > " + (folder_ / "pid.").string() +
                             "$MULTIGRAIN_NODE; test $MULTIGRAIN_NODE = 0 && trap 'sleep 0.3; echo > " + got +
                             "; exit 3' TERM || trap '' TERM; echo > " + (folder_ / "set.").string() +
                             "$MULTIGRAIN_NODE; while ! test -e " + got + "; do sleep 0.02; done";
  const pid_t mgrun = start_shell(std::string("exec ") + MGRUN + " --nodes 2 sh -c \"" + replaced(script, "$", "\\$") +
                                  "\" 2> " + (folder_ / "err").string());
  const std::vector<pid_t> processes = pids(2);
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "set.0") && fs::exists(folder_ / "set.1"); }));
  // timeout sends the second signal to its group.
  kill(mgrun, SIGTERM);
  kill(-mgrun, SIGTERM);
  EXPECT_EQ(finish(mgrun), 3);
  // The shells may have written that their sleep has ended.
  EXPECT_THAT(err(), testing::Not(HasSubstr("mgrun")));
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, ASecondSignalAfterAWhileEndsTheRun) {
  const pid_t mgrun = start(nodes(
      2, "trap '' TERM; echo > " + (folder_ / "set.").string() + "$MULTIGRAIN_NODE; while :; do sleep 0.02; done"));
  const std::vector<pid_t> processes = pids(2);
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "set.0") && fs::exists(folder_ / "set.1"); }));
  kill(mgrun, SIGTERM);
  usleep(1'200'000);
  kill(mgrun, SIGTERM);
  EXPECT_EQ(finish(mgrun), 128 + SIGKILL);
  EXPECT_EQ(err(), "mgrun: signal 15 (Terminated) came twice; the run ends\n");
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, AnIgnoredSignalStaysIgnored) {
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  struct sigaction old{};
  sigaction(SIGHUP, &ignore, &old);
  const pid_t mgrun = start(nodes(2, "exec sleep 60"));
  sigaction(SIGHUP, &old, nullptr);
  const std::vector<pid_t> processes = pids(2);
  kill(mgrun, SIGHUP);
  kill(mgrun, SIGTERM);
  EXPECT_EQ(finish(mgrun), 128 + SIGTERM);
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, ControlCInATerminalReachesEachNodeOnce) {
  const std::string counted = (folder_ / "int.").string() + "$MULTIGRAIN_NODE";
  const Strings arguments = nodes(2, "trap 'echo x >> " + counted + "' INT; echo > " + (folder_ / "set.").string() +
                                         "$MULTIGRAIN_NODE; while ! test -e " + (folder_ / "stop").string() +
                                         "; do sleep 0.05; done; exit 0");
  int terminal = -1;
  const pid_t mgrun = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (mgrun == 0) exec_mgrun(arguments, {});
  ASSERT_GT(mgrun, 0);
  const std::vector<pid_t> processes = pids(2);
  const auto exists = [&](const char* name) { return fs::exists(folder_ / name); };
  ASSERT_TRUE(eventually([&] { return exists("set.0") && exists("set.1"); }));
  ASSERT_EQ(write(terminal, "\x03", 1), 1);
  ASSERT_TRUE(eventually([&] { return exists("int.0") && exists("int.1"); }));
  std::ofstream(folder_ / "stop") << "now";
  EXPECT_EQ(finish(mgrun), 0);
  close(terminal);
  EXPECT_EQ(contents(folder_ / "int.0"), "x\n");
  EXPECT_EQ(contents(folder_ / "int.1"), "x\n");
  EXPECT_TRUE(all_gone(processes));
}

TEST_F(MgrunTest, SixtyFourNodes) {
  EXPECT_EQ(run({"--nodes", "64", "--label-output", "sh", "-c", "echo $MULTIGRAIN_NODE"}), 0);
  const Strings lines = lines_of(out());
  const std::set<std::string> distinct(lines.begin(), lines.end());
  EXPECT_EQ(distinct.size(), 64u);
}

}  // namespace
