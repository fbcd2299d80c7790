// Places in the source of a program that a test runs: the program marks a line with a comment, "// line: MARK", at its end.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace multigrain::testing {

// Returns for instance "racing_program.cpp:17", the line of the file `path` with that mark. Fails the test, and returns
// nothing, if there is none.
inline std::string marked_line(const std::string& path, const std::string& mark) {
  std::ifstream file(path);
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (text.ends_with("// line: " + mark)) return path.substr(path.rfind('/') + 1) + ":" + std::to_string(number);
  }
  ADD_FAILURE() << "no line " << mark << " in " << path;
  return {};
}

}  // namespace multigrain::testing
