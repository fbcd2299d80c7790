#include "base/guest_environment.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace multigrain::guest {
namespace {

TEST(GuestEnvironment, ComesBackAsItWas) {
  const std::vector<std::string> original = {"PATH=/bin", "LD_PRELOAD=a.so", "MULTIGRAIN_NODES=3",
                                             "EMPTY=", "GLIBC_TUNABLES=x=1"};
  std::vector<std::string> handed;
  for (const std::string& variable : original) handed.push_back(name_for_host(variable));
  // mgrun adds this for the host.
  handed.emplace_back("MULTIGRAIN_NODE=0");
  std::vector<const char*> pointers;
  for (const std::string& variable : handed) {
    EXPECT_FALSE(variable.starts_with("LD_"));
    pointers.push_back(variable.c_str());
  }
  pointers.push_back(nullptr);
  EXPECT_EQ(environment_for_guest(pointers.data()), original);
}

TEST(GuestEnvironment, OpenMpSleepsUnlessTheUserHasDecided) {
  std::vector<std::string> environment = {"PATH=/bin", "OMP_NUM_THREADS=3"};
  let_openmp_sleep(environment);
  EXPECT_EQ(environment, (std::vector<std::string>{"PATH=/bin", "OMP_NUM_THREADS=3", "OMP_WAIT_POLICY=passive"}));
  for (const char* const decided :
       {"OMP_WAIT_POLICY=active", "KMP_BLOCKTIME=200", "KMP_LIBRARY=turnaround", "GOMP_SPINCOUNT=9"}) {
    std::vector<std::string> given = {decided};
    let_openmp_sleep(given);
    EXPECT_EQ(given, std::vector<std::string>{decided});
  }
}

}  // namespace
}  // namespace multigrain::guest
