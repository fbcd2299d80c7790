// mgstudy: how would a program run on other machines? The command is the Python package multigrain.study; this finds it
// and its interpreter and becomes it.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "python_package.h"

int main(int argc, char** argv) {
  const auto directory = multigrain::python_package_directory();
  const auto own = multigrain::own_directory();
  if (!directory || !own) {
    fmt::print(stderr, "mgstudy: {}\n", (directory ? own : directory).error().message);
    return 2;
  }
  // Not -m, which would look into the current folder first.
  std::vector<std::string> command = {multigrain::python_interpreter(),
                                      "-B",
                                      "-c",
                                      "import os, sys\n"
                                      "try:\n"
                                      "    sys.path[0] = sys.argv[1]\n"
                                      "    from pathlib import Path\n"
                                      "    from multigrain.study.command import main\n"
                                      "    try:\n"
                                      "        status = main(sys.argv[3:], Path(sys.argv[2]))\n"
                                      "    except SystemExit as end:\n"  // --help
                                      "        status = end.code\n"
                                      "    sys.stdout.flush()\n"
                                      "    sys.exit(status)\n"
                                      "except KeyboardInterrupt:\n"  // before main() is there to say more
                                      "    sys.exit(130)\n"
                                      "except BrokenPipeError:\n"
                                      "    os._exit(1)\n"
                                      "except OSError as error:\n"  // main() says what becomes of its own files
                                      "    print(f'mgstudy: cannot write to standard output: {error.strerror}',"
                                      " file=sys.stderr)\n"
                                      "    os._exit(1)\n",
                                      *directory,
                                      *own};
  command.insert(command.end(), argv + 1, argv + argc);
  fmt::print(stderr, "mgstudy: {} (install Python 3, or set MULTIGRAIN_PYTHON to it)\n",
             multigrain::exec_command(command).value().message);
  return 2;
}
