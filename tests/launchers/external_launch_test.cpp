// These tests check what other launchers leave in the environment, and what is made of it. The environments are those
// that Open MPI 4.1.4, MPICH 4.0.2 and Slurm 22.05 set, cut down to what concerns us.
#include "runtime/external_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace multigrain {
namespace {

using testing::HasSubstr;

using Environment = std::map<std::string, std::string, std::less<>>;

constexpr pid_t kProcess = 4711;

const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "848953345"},
                              {"PMIX_RANK", "1"},
                              {"PMIX_SERVER_URI2", "848953344.0;tcp4://127.0.0.1:1"}};
const Environment kMpich = {
    {"PMI_FD", "6"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}, {"MPI_LOCALRANKID", "2"}};
// Any task of a step has these, and what --mpi adds.
const Environment kSlurm = {{"SLURM_JOB_ID", "1"},      {"SLURM_NTASKS", "3"},     {"SLURM_STEP_NUM_TASKS", "3"},
                            {"SLURM_PROCID", "1"},      {"SLURM_GTIDS", "0,1"},    {"SLURM_LOCALID", "1"},
                            {"SLURM_TASK_PID", "4711"}, {"SLURM_MPI_TYPE", "none"}};
const Environment kPmi2 = {{"PMI_FD", "10"}, {"PMI_JOBID", "1.0"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}};
const Environment kPmix = {{"PMIX_NAMESPACE", "slurm.pmix.1.0"}, {"PMIX_RANK", "1"}};
// These are the environments in a shell of salloc, and in a script of sbatch.
const Environment kAllocation = {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "2"}};
const Environment kBatch = {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"},  {"SLURM_PROCID", "0"},
                            {"SLURM_GTIDS", "0"},  {"SLURM_LOCALID", "0"}, {"SLURM_TASK_PID", "4711"}};

// Joins environments, of which later ones win. An empty value takes a variable away.
Environment join(std::initializer_list<Environment> parts) {
  Environment all;
  for (const Environment& part : parts) {
    for (const auto& [name, value] : part) {
      all.erase(name);
      if (!value.empty()) all.emplace(name, value);
    }
  }
  return all;
}

struct Case {
  const char* name;
  Environment environment;
  std::vector<int> sockets;
  // This is "" for no launch, and otherwise "WIREUP NODE/NODES here NODES_HERE", or the start of an error.
  const char* expected;
};

class Detection : public testing::TestWithParam<Case> {};

TEST_P(Detection, SaysWhatTheLauncherMeant) {
  const Case& c = GetParam();
  const auto launch = detect_external_launch(
      {.environment = c.environment, .process = kProcess, .sockets = c.sockets, .usable_cores = 4, .host_cores = 4});
  std::string said;
  if (!launch)
    said = launch.error().message;
  else if (*launch)
    said = fmt::format("{} {}/{} here {}", (*launch)->wireup, (*launch)->node, (*launch)->nodes, (*launch)->nodes_here);
  if (*c.expected == '\0' || launch)
    EXPECT_EQ(said, c.expected);
  else
    EXPECT_THAT(said, HasSubstr(c.expected));
}

INSTANTIATE_TEST_SUITE_P(
    Environments, Detection,
    testing::Values(
        Case{"Nothing", {}, {}, ""}, Case{"NodesWithoutALauncherAreNotOurAffair", {{"MULTIGRAIN_NODES", "4"}}, {}, ""},
        Case{"OpenMpi", kOpenMpi, {}, "pmix 1/4 here 2"},
        Case{"OpenMpiOfOne", join({kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}}), {}, ""},
        Case{"Mpich", kMpich, {6}, "pmi2 2/3 here 3"},
        Case{"MpichOfOne", join({kMpich, {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}}), {6}, ""},
        Case{"ChildOfAnMpichProcessWithoutItsDescriptor", kMpich, {}, ""},
        Case{"MpichOverPorts", {{"PMI_PORT", "vm:1"}, {"PMI_ID", "0"}}, {}, "without -pmi-port"},
        Case{"SlurmPmi2", join({kSlurm, kPmi2}), {10}, "pmi2 1/3 here 2"},
        Case{"SlurmPmix", join({kSlurm, kPmix}), {}, "pmix 1/3 here 2"},
        Case{"SlurmPmixInAScript", join({kSlurm, kPmix, {{"SLURM_TASK_PID", "4000"}}}), {}, "pmix 1/3 here 2"},
        Case{"SlurmWithoutPmi", kSlurm, {}, "srun has started 3 tasks that have no way to meet"},
        Case{"SlurmWithoutPmiButOneTask", join({kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}}), {}, ""},
        Case{"SlurmWithoutPmiButEachAlone", join({kSlurm, {{"MULTIGRAIN_NODES", "1"}}}), {}, ""},
        Case{"ChildOfATaskWithoutPmi", join({kSlurm, {{"SLURM_TASK_PID", "4000"}}}), {}, ""},
        Case{"ShellOfSalloc", kAllocation, {}, ""}, Case{"ScriptOfSbatch", kBatch, {}, ""},
        Case{"OpenMpiInsideSbatch", join({kBatch, kOpenMpi, {{"SLURM_TASK_PID", "4000"}}}), {}, "pmix 1/4 here 2"},
        Case{"OpenMpiInsideAPmi2StepOfOne",
             join({kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}, kPmi2, {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}, kOpenMpi}),
             {10},
             "pmix 1/4 here 2"},
        Case{"MpichInsideAPmixStepOfOne",
             join({kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}, kPmix, {{"PMIX_RANK", "0"}}, kMpich}),
             {6},
             "pmi2 2/3 here 3"},
        Case{"MpichInsideOpenMpi", join({kOpenMpi, kMpich}), {6}, "two launchers"},
        Case{"OtherPmixLauncher", {{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "1"}}, {}, "does not say of how many"},
        Case{"OtherPmixLauncherAndTheUserKnows",
             {{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "1"}, {"MULTIGRAIN_NODES", "2"}},
             {},
             "pmix 1/2 here 1"},
        Case{"OfMgrun", join({kOpenMpi, {{"MULTIGRAIN_NODE", "0"}, {"MULTIGRAIN_NODES", "2"}}}), {}, ""},
        Case{"OfMgrunOverSharedMemory", join({kOpenMpi, {{"MULTIGRAIN_JOB_FD", "3"}}}), {}, ""},
        Case{"EachAlone", join({kOpenMpi, {{"MULTIGRAIN_NODES", "1"}}}), {}, ""},
        Case{"NodesAgree", join({kOpenMpi, {{"MULTIGRAIN_NODES", "4"}}}), {}, "pmix 1/4 here 2"},
        Case{"NodesDisagree", join({kOpenMpi, {{"MULTIGRAIN_NODES", "3"}}}), {}, "MULTIGRAIN_NODES is '3'"},
        Case{"FabricAgrees", join({kOpenMpi, {{"MULTIGRAIN_FABRIC", "ucx"}}}), {}, "pmix 1/4 here 2"},
        Case{"FabricDisagrees", join({kOpenMpi, {{"MULTIGRAIN_FABRIC", "shm"}}}), {}, "MULTIGRAIN_FABRIC is 'shm'"},
        Case{"TooMany", join({kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "65"}}}), {}, "at most 64 nodes"},
        Case{"RankTooLarge", join({kOpenMpi, {{"PMIX_RANK", "4"}}}), {}, "contradicts itself"},
        Case{"NoNumber", join({kMpich, {{"PMI_SIZE", "three"}}}), {6}, "PMI_SIZE is 'three'"},
        Case{"NegativeRank", join({kMpich, {{"PMI_RANK", "-1"}}}), {6}, "PMI_RANK is '-1'"}),
    [](const auto& tested) { return tested.param.name; });

unsigned cores_with(unsigned usable, unsigned host) {
  const auto launch = detect_external_launch(
      {.environment = kOpenMpi, .process = kProcess, .sockets = {}, .usable_cores = usable, .host_cores = host});
  return (*launch)->cores;
}

TEST(CoresOfTheRun, AreThoseOfAllHosts) {
  EXPECT_EQ(cores_with(8, 8), 16u);  // two nodes share the eight cores of each of two hosts
  EXPECT_EQ(cores_with(4, 8), 16u);  // each is bound to its own half
  EXPECT_EQ(cores_with(1, 64), 4u);  // each is bound to a core
  EXPECT_EQ(cores_with(1, 1), 2u);   // two share a core
}

TEST(ForgettingALaunch, LeavesOnlyWhatTheUserSaid) {
  Environment set = join({kOpenMpi, kMpich, {{"MULTIGRAIN_NODE", "1"}, {"MULTIGRAIN_NODES", "4"}}});
  set.merge(Environment{{"MULTIGRAIN_WIREUP", "pmix"}, {"MULTIGRAIN_FABRIC", "ucx"}, {"MULTIGRAIN_CORES", "4"}});
  const Environment kept = {{"MULTIGRAIN_PAGE_SIZE", "8192"}, {"PMIX_MCA_gds", "hash"}, {"SLURM_JOB_ID", "1"}};
  for (const Environment& each : {set, kept})
    for (const auto& [name, value] : each) setenv(name.c_str(), value.c_str(), 1);
  forget_launch();
  for (const auto& [name, value] : set) EXPECT_EQ(getenv(name.c_str()), nullptr) << name;
  for (const auto& [name, value] : kept) {
    EXPECT_STREQ(getenv(name.c_str()), value.c_str()) << name;
    unsetenv(name.c_str());
  }
}

TEST(ForgettingALaunch, KeepsTheFabricThatTheUserChoseForMgrun) {
  setenv("MULTIGRAIN_WIREUP", "fd:5", 1);
  setenv("MULTIGRAIN_FABRIC", "ucx", 1);
  forget_launch();
  EXPECT_EQ(getenv("MULTIGRAIN_WIREUP"), nullptr);
  EXPECT_STREQ(getenv("MULTIGRAIN_FABRIC"), "ucx");
  unsetenv("MULTIGRAIN_FABRIC");
}

}  // namespace
}  // namespace multigrain
