// mgtrace cc, mgtrace c++: compile a program so that mgtrace record can record it.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/child_process.h"
#include "commands.h"
#include "trace/record/compiler.h"

namespace multigrain::trace::tool {
namespace {

Command add_compiler(CLI::App& app, Language language, const char* name, const char* description) {
  CLI::App* const sub = app.add_subcommand(name, description);
  // Every argument is the compiler's.
  sub->set_help_flag();
  sub->prefix_command();
  return {sub, [sub, language]() -> Result<int> {
            if (sub->remaining().empty())
              return fail("nothing to compile: give {} the arguments that clang would get, such as -O2 -g x.c -o x",
                          sub->get_name());
            auto command = compiler_command(language, sub->remaining());
            if (!command) return tl::unexpected(command.error());
            return exec_command(*command);
          }};
}

}  // namespace

Command add_cc(CLI::App& app) {
  return add_compiler(app, Language::kC, "cc", "Compile and link a C program for recording; options are clang's");
}

Command add_cxx(CLI::App& app) {
  return add_compiler(app, Language::kCxx, "c++", "Compile and link a C++ program for recording; options are clang's");
}

}  // namespace multigrain::trace::tool
