// This is the one way in which Multigrain starts other programs, from fork() to exec. It says what went wrong.
//
// Between fork() and exec the child does nothing that may allocate or lock, so a process with threads may use this.
// Signal handlers may not use it. Processes that only fork do not use it: code that needs a copy of its process calls
// fork() and says why.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain {

// These say what a standard descriptor of the child becomes, if it is not a descriptor of this process.
inline constexpr int kInheritDescriptor = -1;
inline constexpr int kNullDescriptor = -2;  // /dev/null

struct ChildStart {
  // These are the program's words. The first names it, and is searched for in PATH if it has no slash.
  std::vector<std::string> command;
  // If this is not empty, it is the file to execute in place of the first word, and is not searched for.
  std::string path;
  // These are "NAME=VALUE", in addition to this process's environment or, with `whole_environment`, in its place.
  std::vector<std::string> environment;
  bool whole_environment = false;
  // These become the child's standard descriptors. A descriptor of this process should lie above 2: the three are set
  // in their order, and a lower one may have been replaced already when its turn to be copied comes.
  int input = kInheritDescriptor, output = kInheritDescriptor, error = kInheritDescriptor;
  std::vector<int> inherited;   // descriptors that lose their close-on-exec flag
  int parent_death_signal = 0;  // sent when the starting thread ends; 0: none
  bool new_session = false;     // keeps the terminal's signals from the child
  std::optional<sigset_t> signal_mask;
  std::vector<int> default_signals;  // set to their defaults, even if ignored here
  // Runs in the child before its descriptors are set, and changes what of the child's state has no field here. It may
  // call what a signal handler may. If it returns false, and sets errno, the program is not executed.
  std::function<bool()> prepare;
};

// This says at which step starting a child failed, and the errno.
struct ChildFailure {
  enum class Step : int { kPipe, kProcess, kPrepare, kDescriptors, kExec };
  Step step = Step::kExec;
  int code = 0;
};

// Starts the program and returns its process. Its exec has succeeded when this returns. A child that fails before that
// is gone when this returns.
tl::expected<pid_t, ChildFailure> try_start_child(const ChildStart& start);

// Does the same. The error names the program: "cannot run 'x': No such file or directory".
Result<pid_t> start_child(const ChildStart& start);

// Waits until the child has ended, whatever signals come in between. Returns its status as of waitpid(), or -1 with
// errno.
int wait_for_child(pid_t child);

// Returns everything that can be read from the descriptor until its end.
std::string read_to_end(int fd);

// What a child wrote to its standard output, and its status as of waitpid().
struct ChildOutput {
  std::string text;
  int status = 0;

  // Returns whether the child has ended with exit status 0.
  [[nodiscard]] bool succeeded() const { return status == 0; }
};

// Starts the program with a pipe as its standard output, and returns when it has ended. `start.output` is not used.
Result<ChildOutput> run_and_read(ChildStart start);

// Executes the command in place of this process. Returns only if that fails, and says what went wrong.
tl::unexpected<Error> exec_command(const std::vector<std::string>& command);

// Executes the file `path`, which is not searched for, in place of this process, with these words, the program's name
// first, and this environment ("NAME=VALUE") and no other. Returns only if that fails, with an errno.
int exec_file(const std::string& path, const std::vector<std::string>& words,
              const std::vector<std::string>& environment);

}  // namespace multigrain
