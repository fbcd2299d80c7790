// mgcc and mg++ run Clang with the pass that compiles access checks in, and with the headers and the library that
// programs of Multigrain need.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/child_process.h"
#include "base/installation.h"
#include "base/standard_output.h"
#include "command.h"
#include "inputs.h"

namespace {

using namespace multigrain;
using namespace multigrain::compiler;

constexpr const char* kHelp =
    R"({0}: compile and link {1} programs for Multigrain, with access checks for line protocols

Usage: {0} [clang's options] file...

Used as {3} is:
  {0} -O2 -o program {4}
  mgrun --nodes 4 --procs-per-node 2 --protocol dszoom ./program

All options are clang's, but for these:
  --showme                   print the command instead of running it
  --showme:compile           print what is added when compiling
  --showme:link              print what is added when linking
  -fmultigrain-threads       the program was written for threads of one machine (POSIX, C11, C++, OpenMP): its threads
                             run on all nodes, and share globals, malloc's memory and local variables; -fopenmp links
                             Multigrain's OpenMP runtime. -fno-multigrain-threads: not (the default)
  -fno-multigrain-checks     compile without checks: for page protocols, which need none
  -fmultigrain-checks=LIST   switch optimisations of the checks, all of which are on, to measure what they are
                             worth: a list, by commas, such as no-loops,no-batch, of
                             [no-]loops   one check before a loop whose addresses are known, instead of one an access
                             [no-]nests   the same for nests of loops
                             [no-]rows    of a nest over a part of a matrix only that part's rows are looked at
                             [no-]batch   one check for several stores
                             [no-]group   one branch for several loads
                             [no-]narrow  loads of 1 and 2 bytes checked by what they load, not by the word around
                             [no-]expand  short memory copies in line
                             [no-]prefetch  a line for a compare-and-swap loop, once, before the loop
                             [no-]hold    one hazard for the stores of several iterations
                             [no-]arguments  no checks for arguments that point to locals in all calls
                             [no-]pages   pages whose lines are all here are cached
                             [no-]updates  a load and a store of the same place are checked together
                             [no-]versions  loops have versions for objects that turn out to be private
                             [no-]all     all of these
                             and, off unless it is asked for:
                             verify       a call before each access under a hazard, which ends the program if none
                                          is published: to look for faults of the checks themselves
  -fno-multigrain-polls      no polls in loops: for programs that never run under --protocol shasta
  -fmultigrain-sequential    plain accesses of memory that may be shared stay in the order of the program's text, with
                             a fence behind each store: data races are sequentially consistent (slow)
  -fmultigrain-count         the program counts what it executes, for mgrun --clock counted; all that is linked into it has
                             to be compiled with this option. -fno-multigrain-count: not (the default)
  -fmultigrain-count=memory  it also reports each access to memory that may be shared, for mgrun --caches on and
                             --record (slow)
  -fmultigrain-translate     in place of checks, accesses are looked up in the translation table of their processor, for
                             mgrun --mgs translation=compiled; all that is linked has to be compiled with this option.
                             -fno-multigrain-translate: not (the default)
  -fmultigrain-references    in place of checks, each access looks whether its page is in another node's memory, and is made
                             there by the runtime then, for mgrun --protocol placement over a network; files without the
                             option refer to such pages by traps. -fno-multigrain-references: not (the default)
  -fmultigrain-races         each access calls the detector of data races, for mgrun --check-races; there are no checks
                             then. Give it to all files. -fno-multigrain-races: not (the default)
  -fmultigrain-asm=error     inline assembly that accesses memory which may be shared is an error (warn: the default)
  -W[no-]multigrain-unchecked-call  warn where a pointer that may be to shared memory is handed to a function of the
                             C or C++ library that has no access checks, which ends a run under a line protocol if it
                             is one (on by default); -Werror=multigrain-unchecked-call: an error
  -W[no-]multigrain-unchecked-object  warn where an object file, or a member of a static library, is linked that has no
                             checks, while the program has some (on by default); -Werror=multigrain-unchecked-object: an error
  -fmultigrain-explain       say of each loop why it has no check before it, if it has none
  --multigrain-version       Multigrain's version (--version: clang's)
  --help                     this text

Environment: {2} is the compiler to use instead of {3}; it must be clang 19.
)";

int complain(const Error& error) {
  std::fprintf(stderr, MULTIGRAIN_NAME ": %s\n", error.message.c_str());
  return 2;
}

// Returns the first line that a compiler prints when it has this option; nothing if it cannot be run.
std::string answer_of(const std::string& compiler, const char* option) {
  ChildStart start;
  start.command = {compiler, option};
  start.error = kNullDescriptor;
  const auto answer = run_and_read(start);
  return answer ? answer->text.substr(0, answer->text.find('\n')) : std::string();
}

// Returns the version that a compiler reports, or 0.
int major_version_of(const std::string& compiler) {
  return std::atoi(answer_of(compiler, "-dumpversion").c_str());
}

Result<std::string> find_compiler() {
  if (const char* const wanted = std::getenv(MULTIGRAIN_OVERRIDE); wanted != nullptr && *wanted != 0) {
    const int version = major_version_of(wanted);
    if (version != 19)
      return fail(MULTIGRAIN_OVERRIDE " is '{}', which {}; the checks need clang 19", wanted,
                  version == 0 ? std::string("does not run or is no clang") : fmt::format("is version {}", version));
    return wanted;
  }
  if (access(MULTIGRAIN_COMPILER, X_OK) == 0) return MULTIGRAIN_COMPILER;
  // The path may not exist if Multigrain was built on another machine.
  const std::string name = std::filesystem::path(MULTIGRAIN_COMPILER).filename();
  if (major_version_of(name) == 19) return name;
  return fail("cannot find {}: install clang 19 (on Debian: apt install clang-19), or name one in " MULTIGRAIN_OVERRIDE,
              name);
}

Result<Places> find_places() {
  Places places;
  auto compiler = find_compiler();
  if (!compiler) return tl::unexpected(compiler.error());
  places.compiler = *compiler;
  const auto pass = find_beside_executable({"../" MULTIGRAIN_LIBDIR "/multigrain", "../lib"},
                                           {"libmultigrain-checks-pass.so", "libmultigrain-threads-pass.so",
                                            "libmultigrain-count-pass.so", "libmultigrain-races-pass.so"});
  if (!pass) return tl::unexpected(pass.error());
  places.pass = *pass / "libmultigrain-checks-pass.so";
  places.threads_pass = *pass / "libmultigrain-threads-pass.so";
  places.count_pass = *pass / "libmultigrain-count-pass.so";
  places.races_pass = *pass / "libmultigrain-races-pass.so";
  const auto library = find_beside_executable({"../" MULTIGRAIN_LIBDIR, "../lib"}, {"libmultigrain.so"});
  if (!library) return tl::unexpected(library.error());
  places.library = *library;
  // In the build tree the headers are the source tree's, on which no installation may depend.
  const auto includes = find_beside_executable({"../" MULTIGRAIN_INCLUDEDIR}, {"multigrain/multigrain.h"});
  std::error_code ignored;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!includes && !std::filesystem::equivalent(own, MULTIGRAIN_BUILD_BIN, ignored))
    return tl::unexpected(includes.error());
  places.includes = includes ? includes->string() : MULTIGRAIN_SOURCE_INCLUDES;
  return places;
}

// Fails if Clang's OpenMP runtime, which Debian has in a package of its own, is not installed. Otherwise Clang would
// say that omp.h is not found, or the linker that libomp is not. The header must be in Clang's own folder:
// -print-file-name might find GCC's omp.h, which belongs to another runtime.
Status check_openmp(const std::string& compiler) {
  const std::string folder = answer_of(compiler, "-print-resource-dir");
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/include/omp.h", ignored)) return {};
  return fail(
      "-fopenmp needs the OpenMP runtime of clang 19, which is not installed (on Debian: apt install libomp-19-dev); its "
      "threads stay on the node of the processor that starts them, as those of gcc -fopenmp do, which works with page "
      "protocols (docs/user/porting.md)");
}

void print(const std::vector<std::string>& words) {
  print_text(quoted(words) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  fail_if_output_is_lost(MULTIGRAIN_NAME);
  const auto request = understand(std::vector<std::string>(argv + 1, argv + argc));
  if (!request) return complain(request.error());
  if (request->help) {
    print_text(fmt::format(fmt::runtime(kHelp), MULTIGRAIN_NAME, MULTIGRAIN_LANGUAGE, MULTIGRAIN_OVERRIDE,
                           MULTIGRAIN_COMPILER,
                           MULTIGRAIN_LANGUAGE == std::string_view("C") ? "program.c" : "program.cpp"));
    return 0;
  }
  if (request->version) {
    std::printf(MULTIGRAIN_NAME " (Multigrain) " MULTIGRAIN_VERSION "\n");
    return 0;
  }
  const auto places = find_places();
  if (!places) return complain(places.error());
  // With -fmultigrain-threads the program is linked with Multigrain's own OpenMP runtime.
  if (request->openmp && !request->threads)
    if (const Status possible = check_openmp(places->compiler); !possible) return complain(possible.error());
  if (request->links && request->show == Show::kNothing && request->checks && !request->threads &&
      !request->translate && request->unchecked_object != Reaction::kNone) {
    if (const Status checked = check_checked(request->arguments); !checked) {
      if (request->unchecked_object == Reaction::kFail) return complain(checked.error());
      std::fprintf(stderr, MULTIGRAIN_NAME ": warning: %s [-Wmultigrain-unchecked-object]\n",
                   checked.error().message.c_str());
    }
  }
  if (request->links && request->show == Show::kNothing && request->checks)
    if (const Status same = check_versions(request->arguments); !same) return complain(same.error());
  std::vector<std::string> words = command(*request, *places);
  switch (request->show) {
    case Show::kNothing:
      break;
    case Show::kAll:
      print(words);
      return 0;
    case Show::kCompile:
      print(compile_flags(*request, *places));
      return 0;
    case Show::kLink:
      print(link_flags(*request, *places));
      return 0;
  }
  std::fprintf(stderr, MULTIGRAIN_NAME ": %s\n", exec_command(words).value().message.c_str());
  return 2;
}
