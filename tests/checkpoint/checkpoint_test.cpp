// Checkpoints of whole runs: a run goes on from one as if nothing had happened, and one that cannot be used is refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/temporary_folder.h"
#include "checkpoint/files.h"
#include "support/program_run.h"

namespace {

namespace fs = std::filesystem;
using multigrain::testing::Outcome;
using testing::HasSubstr;
using testing::Not;
using Strings = std::vector<std::string>;

Outcome run(const Strings& options, const Strings& arguments) {
  Strings command = {MGRUN};
  command.insert(command.end(), options.begin(), options.end());
  command.emplace_back(ROWS);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return multigrain::testing::run(command);
}

Outcome run_as_it_is(const Strings& options, const Strings& arguments) {
  Strings command = {MGRUN};
  command.insert(command.end(), options.begin(), options.end());
  command.emplace_back(AS_IT_IS);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return multigrain::testing::run(command);
}

std::string result_in(const std::string& text) {
  const size_t at = text.find("result ");
  return at == text.npos ? "no result in: " + text : text.substr(at, 23);
}

Strings operator+(Strings one, const Strings& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(folder_.path().empty()); }
  [[nodiscard]] std::string folder() const { return folder_.path() / "checkpoints"; }
  [[nodiscard]] Strings files() const {
    Strings names;
    for (const auto& entry : fs::directory_iterator(folder())) names.push_back(entry.path().filename());
    return names;
  }
  // The parts of each node, as the head names them.
  [[nodiscard]] std::vector<std::vector<multigrain::checkpoint::Part>> chains() const {
    const auto head = multigrain::checkpoint::read_head(folder());
    if (!head || !*head) return {};
    return (*head)->chains;
  }
  // The names of all files that a folder has whose last checkpoint is complete.
  [[nodiscard]] Strings needed_files() const {
    Strings names = {"checkpoint", "lock"};
    const auto all = chains();
    for (size_t n = 0; n < all.size(); ++n)
      for (const auto& part : all[n])
        names.push_back("memory-" + std::to_string(part.number) + "-" + std::to_string(n));
    return names;
  }

 private:
  multigrain::TemporaryFolder folder_{"checkpoint-test"};
};

class EveryProtocol : public Checkpoint, public testing::WithParamInterface<const char*> {};

TEST_P(EveryProtocol, ARunGoesOnAfterANodeHasDied) {
  for (const Strings& shape : {Strings{"--nodes", "1"}, Strings{"--nodes", "2", "--procs-per-node", "2"}}) {
    SCOPED_TRACE(shape.back());
    const Strings options = shape + Strings{"--protocol", GetParam()};
    const Outcome undisturbed = run(options, {"12", "96"});
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
    fs::remove_all(folder());
    const Outcome died = run(options + Strings{"--checkpoint", folder()}, {"12", "96", "0", "6"});
    EXPECT_NE(died.status, 0) << died.text;
    ASSERT_EQ(chains().size(), shape.size() / 2);
    for (const auto& chain : chains()) EXPECT_GT(chain.size(), 1u) << "Some parts have what has changed.";
    const Outcome restarted = run(options + Strings{"--restart", folder()}, {"12", "96"});
    EXPECT_EQ(restarted.status, 0) << restarted.text;
    EXPECT_THAT(restarted.text, HasSubstr("the run goes on from checkpoint 7 "));
    EXPECT_THAT(restarted.text, HasSubstr("began at step 7, wrote 0"));
    EXPECT_EQ(result_in(restarted.text), result_in(undisturbed.text));
    fs::remove_all(folder());
    const Outcome by_itself =
        run(options + Strings{"--checkpoint", folder(), "--restart-on-failure", "1"}, {"12", "96", "0", "6"});
    EXPECT_EQ(by_itself.status, 0) << by_itself.text;
    EXPECT_THAT(by_itself.text, HasSubstr("restart 1 of 1, from the checkpoint in"));
    EXPECT_THAT(by_itself.text, HasSubstr("began at step 7, wrote 5"));
    EXPECT_EQ(result_in(by_itself.text), result_in(undisturbed.text));
    EXPECT_THAT(files(), testing::UnorderedElementsAreArray(needed_files())) << "Older parts have gone.";
  }
}
INSTANTIATE_TEST_SUITE_P(Of, EveryProtocol, testing::Values("mgs", "hlrc", "sc", "placement"),
                         [](const auto& one) { return std::string(one.param); });

// The program calls nothing of checkpoints: they are written at its barriers, with its private memory and its stacks.
TEST_P(EveryProtocol, AProgramAsItIsGoesOnFromItsBarrier) {
  for (const Strings& shape : {Strings{"--procs-per-node", "2"}, Strings{"--nodes", "2", "--procs-per-node", "2"}}) {
    SCOPED_TRACE(shape.size());
    const Strings options = shape + Strings{"--protocol", GetParam()};
    const std::string marker = folder() + "-has-died";
    const Outcome undisturbed = run_as_it_is(options, {"12", "64"});
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
    fs::remove_all(folder());
    const Outcome died = run_as_it_is(options + Strings{"--checkpoint", folder()}, {"12", "64", "0", "6", marker});
    EXPECT_NE(died.status, 0) << died.text;
    const Outcome restarted = run_as_it_is(options + Strings{"--restart", folder()}, {"other", "arguments"});
    EXPECT_EQ(restarted.status, 0) << restarted.text;
    EXPECT_THAT(restarted.text, HasSubstr("the run goes on from checkpoint 14 "));
    EXPECT_THAT(restarted.text, Not(HasSubstr("begins"))) << "What was printed is not printed again.";
    EXPECT_EQ(result_in(restarted.text), result_in(undisturbed.text)) << restarted.text;
    EXPECT_THAT(restarted.text, HasSubstr(" 12 64")) << "The program keeps its arguments.";
    fs::remove_all(folder());
    fs::remove(marker);
    const Outcome by_itself = run_as_it_is(options + Strings{"--checkpoint", folder(), "--restart-on-failure", "1"},
                                           {"12", "64", "0", "6", marker});
    EXPECT_EQ(by_itself.status, 0) << by_itself.text;
    EXPECT_THAT(by_itself.text, HasSubstr("restart 1 of 1, from the checkpoint in"));
    EXPECT_EQ(result_in(by_itself.text), result_in(undisturbed.text)) << by_itself.text;
    EXPECT_THAT(files(), testing::UnorderedElementsAreArray(needed_files())) << "Older parts have gone.";
    fs::remove(marker);
  }
}

TEST_F(Checkpoint, OfAProgramAsItIsIsRefusedWithWhatItCannotKeep) {
  const Outcome undisturbed = run_as_it_is({"--nodes", "2"}, {"3", "16"});
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
  const auto refused = [&](const char* mischief, const char* why) {
    const Outcome it =
        run_as_it_is({"--nodes", "2", "--checkpoint", folder()}, {"3", "16", "0", "9", "/nothing", mischief});
    EXPECT_EQ(it.status, 0) << it.text;
    EXPECT_THAT(it.text, HasSubstr(why));
    EXPECT_THAT(it.text, HasSubstr("checkpoint 1 was not written: node 0 could not write its part; the run goes on"));
    EXPECT_EQ(result_in(it.text), result_in(undisturbed.text)) << "It goes on.";
    EXPECT_FALSE(fs::exists(folder() + "/checkpoint"));
  };
  refused("open", "the program has opened descriptor");
  refused("lock", "processor 0 holds a lock at the barrier");
  refused("thread", "the program has started threads of its own");
}

TEST_F(Checkpoint, OfAProgramAsItIsIsOfOneShape) {
  ASSERT_EQ(run_as_it_is({"--procs-per-node", "2", "--checkpoint", folder()}, {"2", "16"}).status, 0);
  Outcome it = run_as_it_is({"--restart", folder()}, {"2", "16"});
  EXPECT_EQ(it.status, 2) << it.text;
  EXPECT_THAT(it.text, HasSubstr("the checkpoint has 2 processors a node, and this run has 1"));
  it = run({"--procs-per-node", "2", "--restart", folder()}, {"2", "16"});
  EXPECT_EQ(it.status, 2) << it.text;
  EXPECT_THAT(it.text, HasSubstr("another program"));
}

TEST_F(Checkpoint, IsRestartedFromTheBeginningIfThereIsNone) {
  const Outcome undisturbed = run({}, {"4", "16"});
  const Outcome it =
      run({"--checkpoint", folder(), "--every", "1h", "--restart-on-failure", "2"}, {"4", "16", "0", "1"});
  EXPECT_EQ(it.status, 137) << it.text;
  EXPECT_THAT(it.text, HasSubstr("restart 2 of 2, from the beginning"));
  EXPECT_EQ(undisturbed.status, 0) << undisturbed.text;
}

TEST_F(Checkpoint, OfAnEarlierRunIsNotWhereAnotherOneGoesOn) {
  ASSERT_EQ(run({"--checkpoint", folder()}, {"8", "16"}).status, 0);
  const Outcome it =
      run({"--checkpoint", folder(), "--every", "1h", "--restart-on-failure", "1"}, {"4", "16", "0", "1"});
  EXPECT_THAT(it.text, HasSubstr("restart 1 of 1, from the beginning"));
}

TEST_F(Checkpoint, ThatDoesNotFitLeavesTheLastOne) {
  const Outcome undisturbed = run({"--nodes", "2"}, {"8", "256"});
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
  ASSERT_NE(run({"--nodes", "2", "--checkpoint", folder()}, {"8", "256", "0", "2"}).status, 0);
  // A part that is written to a device without room is how this test makes a disk full.
  const Strings options = {"--nodes", "2", "--restart", folder(), "--checkpoint", folder()};
  const std::string told =
      "checkpoint 4 was not written: node 1 could not write its part; the run goes on, and checkpoint 3 stays";
  fs::create_symlink("/dev/full", folder() + "/memory-4-1");
  const Outcome died = run(options, {"8", "256", "0", "3"});
  EXPECT_NE(died.status, 0) << died.text;
  EXPECT_THAT(died.text, HasSubstr("No space left on device"));
  EXPECT_THAT(died.text, HasSubstr(told));
  fs::create_symlink("/dev/full", folder() + "/memory-4-1");
  const Outcome full = run(options, {"8", "256"});
  EXPECT_EQ(full.status, 0) << full.text;
  EXPECT_EQ(result_in(full.text), result_in(undisturbed.text)) << full.text;
  EXPECT_THAT(full.text, HasSubstr(told));
  EXPECT_THAT(full.text, HasSubstr("began at step 3, wrote 4 checkpoints, failed to write 1"));
}

TEST_F(Checkpoint, IsOfOneRunAtATime) {
  const Outcome undisturbed = run({"--nodes", "2"}, {"40", "16"});
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  multigrain::ChildStart start;
  start.command = {MGRUN, "--nodes", "2", "--checkpoint", folder(), ROWS, "40", "16", "50"};
  start.output = start.error = out[1];
  const auto first = multigrain::start_child(start);
  close(out[1]);
  ASSERT_TRUE(first) << first.error().message;
  for (int i = 0; i < 600 && !fs::exists(folder() + "/checkpoint"); ++i) usleep(10'000);
  const std::string why = "another run writes its checkpoints to '" + folder() + "' (process ";
  for (const char* option : {"--checkpoint", "--restart"}) {
    const Outcome second = run({"--nodes", "2", option, folder()}, {"40", "16"});
    EXPECT_EQ(second.status, 2) << second.text;
    EXPECT_THAT(second.text, HasSubstr(std::string(option) + ": " + why));
    EXPECT_THAT(second.text, Not(HasSubstr("result")));
  }
  const std::string text = multigrain::read_to_end(out[0]);
  close(out[0]);
  EXPECT_EQ(multigrain::wait_for_child(*first), 0) << text;
  EXPECT_EQ(result_in(text), result_in(undisturbed.text));
  EXPECT_EQ(run({"--nodes", "2", "--restart", folder()}, {"40", "16"}).status, 0) << "The run has ended.";
}

TEST_F(Checkpoint, OfAnotherRunIsRefused) {
  ASSERT_EQ(run({"--nodes", "2", "--protocol", "mgs", "--checkpoint", folder()}, {"4", "16"}).status, 0);
  const auto refused = [&](const Strings& options, const char* why) {
    const Outcome it = run(options + Strings{"--restart", folder()}, {"4", "16"});
    EXPECT_EQ(it.status, 2) << it.text;
    EXPECT_THAT(it.text, HasSubstr(why));
    EXPECT_THAT(it.text, Not(HasSubstr("result")));
  };
  refused({"--protocol", "mgs"}, "--nodes 2, and this one has 1");
  refused({"--nodes", "2", "--protocol", "sc"}, "--protocol mgs, and this one has sc");
  refused({"--nodes", "2", "--protocol", "mgs", "--page-size", "8192"}, "--page-size 4096, and this one has 8192");
  refused({"--nodes", "2", "--protocol", "mgs", "--clock", "virtual"}, "there are no checkpoints");
  EXPECT_EQ(run({"--nodes", "2", "--protocol", "mgs", "--restart", folder()}, {"4", "16"}).status, 0);
}

TEST_F(Checkpoint, ThatIsTornIsRefused) {
  const Strings shape = {"--nodes", "2"};
  ASSERT_EQ(run(shape + Strings{"--checkpoint", folder()}, {"4", "16"}).status, 0);
  const std::string part = folder() + "/memory-4-1";
  ASSERT_TRUE(fs::exists(part));
  const auto size = fs::file_size(part);
  fs::resize_file(part, size - 100);
  Outcome it = run(shape + Strings{"--restart", folder()}, {"4", "16"});
  EXPECT_NE(it.status, 0);
  EXPECT_THAT(it.text, HasSubstr("memory-4-1' is truncated"));
  EXPECT_THAT(it.text, Not(HasSubstr("result")));
  fs::resize_file(part, size);
  it = run(shape + Strings{"--restart", folder()}, {"4", "16"});
  EXPECT_THAT(it.text, HasSubstr("memory-4-1' is damaged"));
  // The same for a part to which others add.
  ASSERT_EQ(run(shape + Strings{"--checkpoint", folder()}, {"3", "16"}).status, 0);
  ASSERT_GT(chains().at(1).size(), 1u);
  const std::string first = folder() + "/memory-" + std::to_string(chains()[1][0].number) + "-1";
  std::fstream(first, std::ios::in | std::ios::out | std::ios::binary).seekp(1000).put('!');
  it = run(shape + Strings{"--restart", folder()}, {"3", "16"});
  EXPECT_NE(it.status, 0);
  EXPECT_THAT(it.text, HasSubstr(first + "' is damaged"));
  EXPECT_THAT(it.text, Not(HasSubstr("result")));
  fs::remove(first);
  it = run(shape + Strings{"--restart", folder()}, {"3", "16"});
  EXPECT_THAT(it.text, HasSubstr("cannot read '" + first + "': No such file"));
  fs::resize_file(folder() + "/checkpoint", 50);
  for (const char* option : {"--restart", "--checkpoint"}) {
    it = run(shape + Strings{option, folder()}, {"4", "16"});
    EXPECT_EQ(it.status, 2) << it.text;
    EXPECT_THAT(it.text, HasSubstr("truncated"));
  }
}

// Names of this machine, each with an agent of its own.
std::string two_names() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return "localhost:1," + std::string(name.data()) + ":1";
}

TEST_F(Checkpoint, IsLeftToTheUserWhenAHostIsLost) {
  const Outcome undisturbed = run({"--nodes", "2", "--protocol", "mgs"}, {"60", "16"});
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  multigrain::ChildStart start;
  start.command = {MGRUN, "--hosts", two_names(), "--protocol", "mgs", "--checkpoint", folder(), "--restart-on-failure",
                   "5",   ROWS,      "60",        "16",         "50"};
  start.output = start.error = out[1];
  const auto mgrun = multigrain::start_child(start);
  close(out[1]);
  ASSERT_TRUE(mgrun) << mgrun.error().message;
  for (int i = 0; i < 6000 && !fs::exists(folder() + "/checkpoint"); ++i) usleep(10'000);
  std::vector<pid_t> agents;
  std::ifstream children("/proc/" + std::to_string(*mgrun) + "/task/" + std::to_string(*mgrun) + "/children");
  for (pid_t one; children >> one;) agents.push_back(one);
  EXPECT_EQ(agents.size(), 2u);
  if (!agents.empty()) kill(agents.back(), SIGKILL);
  const std::string text = multigrain::read_to_end(out[0]);
  close(out[0]);
  EXPECT_NE(multigrain::wait_for_child(*mgrun), 0) << text;
  EXPECT_THAT(text, Not(HasSubstr("restart 1 of 5")));
  EXPECT_THAT(text, Not(HasSubstr("result")));
  const Outcome restarted = run({"--nodes", "2", "--protocol", "mgs", "--restart", folder()}, {"60", "16"});
  EXPECT_EQ(restarted.status, 0) << restarted.text;
  EXPECT_EQ(result_in(restarted.text), result_in(undisturbed.text));
}

// The fabric is another one, too.
TEST_F(Checkpoint, GoesOnOnAnotherNumberOfHosts) {
  const Strings here = {"--nodes", "2"};
  const Strings one_host = {"--hosts", "localhost:2"};
  const Strings two_hosts = {"--hosts", two_names()};
  const Strings shape = {"--protocol", "hlrc", "--procs-per-node", "2"};
  const Strings into = {"--checkpoint", folder()};
  const Outcome undisturbed = run(here + shape, {"12", "96"});
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.text;
  EXPECT_NE(run(here + shape + into, {"12", "96", "0", "3"}).status, 0);
  const Strings from = {"--restart", folder()};
  Outcome it = run(two_hosts + shape + from + into, {"12", "96", "0", "6"});
  EXPECT_NE(it.status, 0);
  EXPECT_THAT(it.text, HasSubstr("the run goes on from checkpoint 4 "));
  it = run(one_host + shape + from + into, {"12", "96", "0", "8"});
  EXPECT_NE(it.status, 0);
  EXPECT_THAT(it.text, HasSubstr("the run goes on from checkpoint 7 "));
  it = run(here + shape + from, {"12", "96"});
  EXPECT_EQ(it.status, 0) << it.text;
  EXPECT_THAT(it.text, HasSubstr("the run goes on from checkpoint 9 "));
  EXPECT_EQ(result_in(it.text), result_in(undisturbed.text));
  fs::remove_all(folder());
  it = run(two_hosts + shape + into + Strings{"--restart-on-failure", "1"}, {"12", "96", "0", "6"});
  EXPECT_EQ(it.status, 0) << it.text;
  EXPECT_THAT(it.text, HasSubstr("restart 1 of 1, from the checkpoint in"));
  EXPECT_THAT(it.text, HasSubstr("began at step 7, wrote 5"));
  EXPECT_EQ(result_in(it.text), result_in(undisturbed.text));
}

TEST_F(Checkpoint, OfMoreNodesLeavesNothingOnceThereIsAnother) {
  ASSERT_EQ(run({"--nodes", "4", "--checkpoint", folder()}, {"4", "16"}).status, 0);
  ASSERT_EQ(run({"--nodes", "2", "--checkpoint", folder()}, {"4", "16"}).status, 0);
  ASSERT_EQ(chains().size(), 2u);
  EXPECT_THAT(files(), testing::UnorderedElementsAreArray(needed_files()));
}

TEST_F(Checkpoint, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [](const Strings& options, const char* why) {
    const Outcome it = run(options, {"4", "16"});
    EXPECT_EQ(it.status, 2) << it.text;
    EXPECT_THAT(it.text, HasSubstr(why));
  };
  refused({"--every", "60s"}, "--checkpoint DIR must say where");
  refused({"--restart-on-failure", "3"}, "give --checkpoint DIR");
  refused({"--checkpoint", folder(), "--restart-on-failure", "-3"}, "whole number");
  refused({"--checkpoint", folder(), "--every", "soon"}, "no time between checkpoints");
  refused({"--checkpoint", ""}, "name a folder");
  refused({"--checkpoint", "/proc/nothing"}, "cannot make '/proc/nothing'");
  refused({"--restart", "/no/such/folder"}, "there is no checkpoint in '/no/such/folder'");
}

}  // namespace
