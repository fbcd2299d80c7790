// Runs a program to its end, for tests of whole programs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/child_process.h"

namespace multigrain::testing {

struct Outcome {
  int status = 0;    // the exit status; 1000 and the signal's number, if a signal ended the program
  std::string text;  // what it wrote, to both streams
};

// Returns how the program ended. Fails the test if it could not be started.
inline Outcome run(const std::vector<std::string>& command) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) std::abort();
  ChildStart start;
  start.command = command;
  start.output = start.error = out[1];
  const auto child = start_child(start);
  close(out[1]);
  if (!child) {
    ADD_FAILURE() << child.error().message;
    close(out[0]);
    return {.status = -1, .text = {}};
  }
  Outcome result{.status = 0, .text = read_to_end(out[0])};
  close(out[0]);
  const int status = wait_for_child(*child);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

}  // namespace multigrain::testing
