// Starting other programs: one way from fork() to exec that says what went wrong.
//
// Between the two the child does nothing that may allocate or lock, so this may be used in a process with threads. Not
// for signal handlers, nor for processes that only fork: whoever needs a copy of itself calls fork() and says why.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain {

// What a standard descriptor of the child becomes, if it is not a descriptor of this process.
inline constexpr int kInheritDescriptor = -1;
inline constexpr int kNullDescriptor = -2;  // /dev/null

struct ChildStart {
  // The program's words; the first names it, and is searched for in PATH if it has no slash.
  std::vector<std::string> command;
  // If not empty: the file to execute in the place of the first word, not searched for.
  std::string path;
  // "NAME=VALUE", in addition to this process's environment or, for `whole_environment`, in its place.
  std::vector<std::string> environment;
  bool whole_environment = false;
  // What the child's standard descriptors become. A descriptor of this process should lie above 2: the three are set in
  // their order, and a lower one may have been replaced already when its turn to be copied comes.
  int input = kInheritDescriptor, output = kInheritDescriptor, error = kInheritDescriptor;
  std::vector<int> inherited;   // descriptors that lose their close-on-exec flag
  int parent_death_signal = 0;  // what ends the child when the thread that starts it ends; 0: nothing does
  bool new_session = false;     // so that the terminal's signals do not reach it
  std::optional<sigset_t> signal_mask;
  std::vector<int> default_signals;  // handled by their defaults again, even where this process ignores them
  // Runs in the child before its descriptors are set: what of the child's state has no field here. It may call what a
  // signal handler may. False, with errno: the program is not executed.
  std::function<bool()> prepare;
};

// Where starting a child failed, and the errno.
struct ChildFailure {
  enum class Step : int { kPipe, kProcess, kPrepare, kDescriptors, kExec };
  Step step = Step::kExec;
  int code = 0;
};

// Starts the program and returns its process, which waits for nothing any more: its exec has succeeded. A child that
// fails before that is gone when this returns.
tl::expected<pid_t, ChildFailure> try_start_child(const ChildStart& start);

// The same; the error names the program: "cannot run 'x': No such file or directory".
Result<pid_t> start_child(const ChildStart& start);

// Waits until the child has ended, whatever signals come in between; its status as of waitpid(), or -1 with errno.
int wait_for_child(pid_t child);

// Everything that can be read from the descriptor until its end.
std::string read_to_end(int fd);

// Executes the command in the place of this process. Returns only what went wrong.
tl::unexpected<Error> exec_command(const std::vector<std::string>& command);

// Executes the file `path`, which is not searched for, in the place of this process, with these words, the program's name
// first, and this environment ("NAME=VALUE") and no other. Returns only what went wrong, an errno.
int exec_file(const std::string& path, const std::vector<std::string>& words,
              const std::vector<std::string>& environment);

}  // namespace multigrain
