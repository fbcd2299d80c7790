#include "base/standard_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace multigrain {
namespace {

const char* g_command = "";
int g_code = 0;  // why output was lost, where that is known

void check_output() {
  // A stream remembers that a write has failed, but not why.
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) {
    g_code = errno;
  } else if (!failed_before) {
    return;
  }
  std::fprintf(stderr, "%s: cannot write to standard output%s%s\n", g_command, g_code != 0 ? ": " : "",
               g_code != 0 ? std::strerror(g_code) : "");
  _exit(1);
}

}  // namespace

void fail_if_output_is_lost(const char* command) {
  g_command = command;
  std::atexit(&check_output);
}

void print_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) g_code = errno;
}

}  // namespace multigrain
