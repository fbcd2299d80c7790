// These tests check what becomes of UCX_TLS.
#include "fabric/ucx/transports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace multigrain::ucx {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kHere = {"self", "tcp", "sysv", "posix", "cma"};

std::string allowed(std::string_view wanted) {
  return without_system_v(wanted, kHere).value_or("refused");
}

TEST(Transports, AllAreAllButSystemV) {
  EXPECT_EQ(allowed("all"), "^sysv");
  EXPECT_EQ(allowed("tcp,all"), "^sysv");
}

TEST(Transports, WhatIsSafeStays) {
  for (const char* const safe : {"tcp", "tcp,self", "rc,ud:aux", "posix,cma", "\\posix"})
    EXPECT_EQ(allowed(safe), safe);
}

TEST(Transports, AnExclusionIsLonger) {
  EXPECT_EQ(allowed("^tcp"), "^tcp,sysv");
  EXPECT_EQ(allowed("^sysv,cma"), "^sysv,cma,sysv");
}

TEST(Transports, AGroupIsItsMembersThatThereAre) {
  EXPECT_EQ(allowed("sm"), "posix,cma");
  EXPECT_EQ(allowed("rc,shm,self"), "rc,posix,cma,self");
  EXPECT_EQ(allowed("mm"), "posix");
  EXPECT_EQ(without_system_v("sm", std::vector<std::string>{"posix", "xpmem", "knem"}).value(), "posix,xpmem,knem");
}

TEST(Transports, SystemVByNameIsRefused) {
  for (const char* const wanted : {"sysv", "\\sysv", "tcp,sysv", "sysv:aux", "sm,\\sysv"})
    EXPECT_EQ(allowed(wanted), "refused") << wanted;
  EXPECT_THAT(without_system_v("tcp,sysv", kHere).error().message, HasSubstr("UCX_TLS=tcp,sysv asks for sysv"));
}

TEST(Transports, AUcxWithoutSystemVHearsNothingOfIt) {
  const std::vector<std::string> none = {"self", "tcp"};
  EXPECT_EQ(without_system_v("all", none).value(), "all");
  EXPECT_EQ(without_system_v("^cma", none).value(), "^cma");
}

}  // namespace
}  // namespace multigrain::ucx
