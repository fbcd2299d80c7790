// Which programs are Python's, and with which options the interpreters of other nodes start.
#include "runtime/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "launch/interpreters.h"

namespace multigrain {
namespace {

using testing::ElementsAre;

std::vector<std::string> arguments_of_worker(std::vector<std::string> given) {
  std::vector<char*> pointers;
  for (std::string& word : given) pointers.push_back(word.data());
  return interpreter::worker_arguments(pointers, "code");
}

TEST(Interpreter, AWorkerHasTheOptionsAndNotTheProgram) {
  EXPECT_THAT(arguments_of_worker({"python3", "prog.py", "-v", "x"}), ElementsAre("python3", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3"}), ElementsAre("python3", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "-OB", "-E", "prog.py"}),
              ElementsAre("python3", "-OB", "-E", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "-"}), ElementsAre("python3", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "-B", "--", "-O"}), ElementsAre("python3", "-B", "-c", "code"));
}

TEST(Interpreter, TheProgramMayBeTextOrAModule) {
  EXPECT_THAT(arguments_of_worker({"python3", "-c", "print()", "-O"}), ElementsAre("python3", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "-Om", "package", "-B"}), ElementsAre("python3", "-O", "-c", "code"));
}

TEST(Interpreter, OptionsWithValuesKeepThem) {
  EXPECT_THAT(arguments_of_worker({"python3", "-W", "error", "-Xdev", "prog.py"}),
              ElementsAre("python3", "-W", "error", "-Xdev", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "-BX", "utf8", "prog.py"}),
              ElementsAre("python3", "-BX", "utf8", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "--check-hash-based-pycs", "never", "prog.py"}),
              ElementsAre("python3", "--check-hash-based-pycs", "never", "-c", "code"));
}

TEST(Interpreter, AWorkerNeverAsks) {
  EXPECT_THAT(arguments_of_worker({"python3", "-i", "prog.py"}), ElementsAre("python3", "-c", "code"));
  EXPECT_THAT(arguments_of_worker({"python3", "-uix", "prog.py"}), ElementsAre("python3", "-u", "-c", "code"));
}

TEST(Interpreter, IsKnownByItsNameOrByTheFirstLine) {
  const TemporaryFolder folder("multigrain-interpreters");
  const auto script = [&](const char* name, const char* text) {
    const std::string path = folder.path() / name;
    std::ofstream(path) << text;
    return path;
  };
  EXPECT_TRUE(starts_python("/usr/bin/python3"));
  EXPECT_TRUE(starts_python("python"));
  EXPECT_FALSE(starts_python(script("program",
                                    "\x7f"
                                    "ELF")));
  EXPECT_FALSE(starts_python("/nonexistent/program"));
  EXPECT_TRUE(starts_python(script("a", "#!/usr/bin/python3 -B\nprint()\n")));
  EXPECT_TRUE(starts_python(script("b", "#! /usr/bin/env python3.11\n")));
  EXPECT_TRUE(starts_python(script("c", "#!/usr/bin/env -S A=1 python3 -O\n")));
  EXPECT_FALSE(starts_python(script("d", "#!/bin/sh\npython3 program.py\n")));
  EXPECT_FALSE(starts_python(script("e", "#!/usr/bin/env bash\n")));
  EXPECT_FALSE(starts_python(script("f", "#!")));
}

}  // namespace
}  // namespace multigrain
