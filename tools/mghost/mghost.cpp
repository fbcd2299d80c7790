// Hosts a run of one node whose program knows nothing of Multigrain. mgrun --binary starts it; it is not for users.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/guest_environment.h"
#include "base/shell_status.h"
#include "guest/host.h"

namespace {

// A guest on one node needs nothing of the run, and must not have the descriptors that mgrun handed over.
void close_descriptors_of_the_run() {
  for (const char* const name : {"MULTIGRAIN_JOB_FD", "MULTIGRAIN_FRAMES_FDS", "MULTIGRAIN_STATUS_FD"}) {
    const char* text = std::getenv(name);
    while (text != nullptr && *text != '\0') {
      char* end = nullptr;
      const long fd = std::strtol(text, &end, 10);
      if (end == text) break;
      close(static_cast<int>(fd));
      text = *end == ',' ? end + 1 : end;
    }
  }
}

// Makes the words of this process, as ps shows them, the program's own. They lie one behind the other.
void show_words_of_program(int argc, char** argv, int first) {
  char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]) + 1;
  const auto length = static_cast<size_t>(end - argv[first]);
  std::memmove(argv[0], argv[first], length);
  std::memset(argv[0] + length, 0, static_cast<size_t>(end - argv[0]) - length);
}

int usage() {
  std::fputs(
      "mghost runs a program for mgrun --binary; use that. Usage: mghost --execute PATH -- NAME [ARGUMENTS...]\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  multigrain::guest::HostOptions options;
  int first = 1;
  for (; first < argc; ++first) {
    const std::string_view word = argv[first];
    if (word == "--trap-calls")
      options.traps_all_calls = true;
    else if (word == "--copy-arguments")  // tests make calls as if nodes shared memory
      options.memory_is_shared = true;
    else
      break;
  }
  if (argc < first + 4 || std::string_view(argv[first]) != "--execute" || std::string_view(argv[first + 2]) != "--")
    return usage();
  close_descriptors_of_the_run();
  const std::string path = argv[first + 1];
  const std::vector<std::string> words(argv + first + 3, argv + argc);
  show_words_of_program(argc, argv, first + 3);
  const multigrain::guest::CannotExecute why =
      multigrain::guest::run_guest(path, words, multigrain::guest::environment_for_guest(environ), options);
  std::fprintf(stderr, "mgrun: %s\n", why.sentence.c_str());
  return why.code == ENOENT ? multigrain::kNotFound : multigrain::kNotExecutable;
}
