#include "command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "count/note.h"
#include "inputs.h"
#include "instrument/note.h"

namespace multigrain::compiler {

bool takes_value(std::string_view option) {
  static constexpr std::array kOptions = {"-o",
                                          "-I",
                                          "-D",
                                          "-U",
                                          "-x",
                                          "-L",
                                          "-l",
                                          "-B",
                                          "-T",
                                          "-u",
                                          "-z",
                                          "-e",
                                          "-h",
                                          "-include",
                                          "-isystem",
                                          "-iquote",
                                          "-idirafter",
                                          "-imacros",
                                          "-isysroot",
                                          "-MF",
                                          "-MT",
                                          "-MQ",
                                          "-MJ",
                                          "-Xclang",
                                          "-Xlinker",
                                          "-Xassembler",
                                          "-Xpreprocessor",
                                          "-mllvm",
                                          "-target",
                                          "--param",
                                          "-arch",
                                          "-serialize-diagnostics",
                                          "--sysroot",
                                          "-G",
                                          "-framework",
                                          "-iprefix",
                                          "-iwithprefix",
                                          "-rpath",
                                          "-soname",
                                          "-aux-info"};
  return std::ranges::find(kOptions, option) != kOptions.end();
}

namespace {

// Tells whether it is an option with which the compiler does not link, or links something that libmultigrain
// cannot be part of.
bool forbids_linking(std::string_view option) {
  static constexpr std::array kOptions = {
      "-c",           "-S",        "-E",       "-M", "-MM", "-r", "-nostdlib", "-nodefaultlibs", "-fsyntax-only",
      "--precompile", "-emit-ast", "--analyze"};
  return std::ranges::find(kOptions, option) != kOptions.end();
}

// Tells whether the argument is -fsanitize= with one of these in its list.
bool asks_for_sanitizer(std::string_view argument, std::initializer_list<std::string_view> any_of) {
  constexpr std::string_view kOption = "-fsanitize=";
  if (!argument.starts_with(kOption)) return false;
  argument.remove_prefix(kOption.size());
  while (!argument.empty()) {
    const std::string_view one = argument.substr(0, argument.find(','));
    if (std::ranges::find(any_of, one) != any_of.end()) return true;
    argument.remove_prefix(std::min(argument.size(), one.size() + 1));
  }
  return false;
}

// Checks the list of -fmultigrain-checks=. The words are those of the pass (src/instrument/pass/plugin.cpp).
Status check_list(std::string_view list) {
  static constexpr std::array kWords = {"loops",  "nests",   "rows",     "batch",  "group",
                                        "narrow", "expand",  "prefetch", "hold",   "arguments",
                                        "pages",  "updates", "versions", "verify", "all"};
  while (true) {
    const std::string_view given = list.substr(0, list.find(','));
    const std::string_view word = given.starts_with("no-") ? given.substr(3) : given;
    if (std::ranges::find(kWords, word) == kWords.end())
      return fail("-fmultigrain-checks=: '{}' is none of {}, each also with no- in front; such as no-loops,no-batch",
                  given, fmt::join(kWords, ", "));
    if (given.size() == list.size()) return {};
    list.remove_prefix(given.size() + 1);
  }
}

// Takes the options about OpenMP out of the compiler's arguments, for -fmultigrain-threads: with -fopenmp the driver
// would link the compiler's own OpenMP runtime, whose threads stay on one node. The compiler behind it gets them by
// compile_flags().
Status take_openmp_options(Request& request) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < request.arguments.size(); ++i) {
    const std::string& argument = request.arguments[i];
    if (takes_value(argument)) {
      rest.push_back(argument);
      if (i + 1 < request.arguments.size()) rest.push_back(request.arguments[++i]);
    } else if (argument == "-fopenmp=libgomp" || argument.starts_with("-fopenmp-targets=")) {
      return fail(
          "{} is not possible with -fmultigrain-threads, which links libmultigrain-openmp: a runtime of the kind that "
          "-fopenmp=libomp is for, without other devices",
          argument);
    } else if (argument == "-fopenmp" || argument.starts_with("-fopenmp=") || argument == "-fno-openmp") {
      continue;
    } else if (request.openmp && argument.starts_with("-fopenmp-version=")) {
      request.openmp_options.push_back(argument);
    } else {
      rest.push_back(argument);
    }
  }
  request.arguments = std::move(rest);
  return {};
}

}  // namespace

Result<Request> understand(const std::vector<std::string>& arguments) {
  Request request;
  bool may_link = true;
  bool has_input = false;
  bool is_static = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--showme") {
      request.show = Show::kAll;
    } else if (argument == "--showme:compile") {
      request.show = Show::kCompile;
    } else if (argument == "--showme:link") {
      request.show = Show::kLink;
    } else if (argument.starts_with("--showme")) {
      return fail("there is no {}; there are --showme, --showme:compile and --showme:link", argument);
    } else if (argument == "--help") {
      request.help = true;
    } else if (argument == "--multigrain-version") {
      request.version = true;
    } else if (argument == "-fno-multigrain-checks") {
      request.checks = false;
    } else if (argument == "-fmultigrain-threads" || argument == "-fno-multigrain-threads") {
      request.threads = argument == "-fmultigrain-threads";
    } else if (argument == "-fmultigrain-count" || argument == "-fmultigrain-count=memory" ||
               argument == "-fno-multigrain-count") {
      request.count = argument != "-fno-multigrain-count";
      request.count_memory = argument == "-fmultigrain-count=memory";
    } else if (argument == "-fmultigrain-races" || argument == "-fno-multigrain-races") {
      request.races = argument == "-fmultigrain-races";
    } else if (argument == "-fmultigrain-translate" || argument == "-fno-multigrain-translate") {
      request.translate = argument == "-fmultigrain-translate";
    } else if (argument == "-fmultigrain-references" || argument == "-fno-multigrain-references") {
      request.references = argument == "-fmultigrain-references";
    } else if (argument.starts_with("-fmultigrain-checks=")) {
      const std::string_view list = argument.substr(argument.find('=') + 1);
      if (const Status known = check_list(list); !known) return tl::unexpected(known.error());
      if (!request.optimisations.empty()) request.optimisations += ',';
      request.optimisations += list;
    } else if (argument == "-fmultigrain-polls" || argument == "-fno-multigrain-polls") {
      request.polls = argument == "-fmultigrain-polls";
    } else if (argument == "-fmultigrain-sequential") {
      request.sequential = true;
    } else if (argument == "-fno-multigrain-sequential") {
      request.sequential = false;
    } else if (argument == "-fmultigrain-asm=error" || argument == "-fmultigrain-asm=warn") {
      request.asm_is_error = argument.ends_with("error");
    } else if (argument == "-fmultigrain-explain") {
      request.explain = true;
    } else if (argument == "-Wmultigrain-unchecked-call" || argument == "-Wno-error=multigrain-unchecked-call") {
      request.unchecked_call = "warn";
    } else if (argument == "-Wno-multigrain-unchecked-call") {
      request.unchecked_call = "ignore";
    } else if (argument == "-Werror=multigrain-unchecked-call") {
      request.unchecked_call = "error";
    } else if (argument == "-Wmultigrain-unchecked-object" || argument == "-Wno-error=multigrain-unchecked-object") {
      request.unchecked_object = Reaction::kWarn;
    } else if (argument == "-Wno-multigrain-unchecked-object") {
      request.unchecked_object = Reaction::kNone;
    } else if (argument == "-Werror=multigrain-unchecked-object") {
      request.unchecked_object = Reaction::kFail;
    } else if (asks_for_sanitizer(argument, {"address", "hwaddress", "memory", "thread"})) {
      return fail("{} is not possible: the sanitizer and Multigrain both want to stand in front of the C library",
                  argument);
    } else if (asks_for_sanitizer(argument, {"vptr"})) {
      return fail("{} is not possible: the sanitizer's library reads objects, which may be shared, without checks",
                  argument);
    } else if (argument.starts_with("-fmultigrain") || argument.starts_with("-fno-multigrain") ||
               argument.starts_with("-Wmultigrain") || argument.starts_with("-Wno-multigrain") ||
               argument.starts_with("-Werror=multigrain")) {
      return fail("there is no option {}; --help lists those that there are", argument);
    } else {
      if (argument == "-fopenmp" || argument.starts_with("-fopenmp=")) request.openmp = true;
      if (argument == "-fno-openmp") request.openmp = false;
      if (asks_for_sanitizer(argument, {"undefined"})) request.sanitizes_undefined = true;
      request.arguments.emplace_back(argument);
      if (takes_value(argument)) {
        if (argument == "-l") has_input = true;
        if (i + 1 < arguments.size()) request.arguments.push_back(arguments[++i]);
      } else if (argument == "-" || !argument.starts_with('-') || argument.starts_with("-l") ||
                 argument.starts_with("-Wl,")) {
        has_input |= !argument.starts_with("-Wl,");
      } else {
        if (forbids_linking(argument)) may_link = false;
        if (argument == "-static" || argument == "-static-pie") is_static = true;
      }
    }
  }
  request.links = may_link && has_input;
  if (request.links && is_static)
    return fail(
        "-static is not possible: the runtime stands in front of the C library, which takes a shared libmultigrain");
  if (request.threads && request.translate)
    return fail(
        "-fmultigrain-translate and -fmultigrain-threads exclude each other: what threads share is not all at addresses that "
        "compiled code can tell from private ones");
  if (request.races && (request.translate || request.count))
    return fail(
        "-fmultigrain-races excludes {}: a run that looks for races has page protocols whose accesses the hardware finds, and the "
        "wall clock",
        request.translate ? "-fmultigrain-translate" : "-fmultigrain-count");
  if (request.references && (request.translate || request.threads || request.count || request.races))
    return fail(
        "-fmultigrain-references excludes {}",
        request.translate ? "-fmultigrain-translate: an access is looked up in one way"
        : request.threads
            ? "-fmultigrain-threads: what threads share is not all at addresses that compiled code can tell from private ones"
        : request.count
            ? "-fmultigrain-count: the counted clock and --record have no references to other nodes' memory"
            : "-fmultigrain-races: a run that looks for races has page protocols whose accesses the hardware finds");
  // Page protocols need no checks.
  if (request.races || request.references) request.checks = false;
  if (request.links && request.translate)
    if (const Status translated = check_translated(request.arguments); !translated)
      return tl::unexpected(translated.error());
  if (request.links && request.count)
    if (const Status counted = check_counted(request.arguments); !counted) return tl::unexpected(counted.error());
  if (request.threads)
    if (const Status taken = take_openmp_options(request); !taken) return tl::unexpected(taken.error());
  return request;
}

namespace {

void add_flags_of_checks(std::vector<std::string>& flags, const Request& request, const Places& places) {
  // -fplugin loads the pass before options are read, so that -mllvm knows the options of the pass. They are passed by
  // -Xclang -mllvm, because with -flto an -mllvm alone would reach the linker, too.
  flags.push_back("-fplugin=" + places.pass);
  flags.push_back("-fpass-plugin=" + places.pass);
  // Templates of libstdc++ must be instantiated in the program, so that they have checks.
  flags.insert(flags.end(), {"-isystem", places.includes + "/multigrain/libstdc++"});
  // No pass has this name. The option makes Clang keep source locations, so that the pass can name the line of a
  // call even without -g.
  flags.push_back("-Rpass=^multigrain$");
  const auto option = [&](const std::string& word) {
    flags.insert(flags.end(), {"-Xclang", "-mllvm", "-Xclang", word});
  };
  if (request.translate) option("-multigrain-translate");
  if (request.references) option("-multigrain-references");
  if (!request.optimisations.empty()) option("-multigrain-checks=" + request.optimisations);
  if (!request.polls) option("-multigrain-polls=0");
  if (request.sequential) option("-multigrain-sequential");
  if (request.asm_is_error) option("-multigrain-asm-error");
  if (request.explain) option("-multigrain-explain");
  // What threads share is kept by pages, which any function may access.
  const std::string unchecked_call =
      request.threads && request.unchecked_call.empty() ? "ignore" : request.unchecked_call;
  if (!unchecked_call.empty()) option("-multigrain-unchecked-call=" + unchecked_call);
}

// The plugin comes after that of the checks: passes for the same place in the pipeline run in the order of plugins
// (src/threads/pass/plugin.cpp).
void add_flags_of_threads(std::vector<std::string>& flags, const Request& request, const Places& places) {
  flags.push_back("-fpass-plugin=" + places.threads_pass);
  if (!request.openmp) return;
  // A thread-private variable that is thread-local could not be copied from one node to another (copyin, copyprivate).
  flags.insert(flags.end(), {"-Xclang", "-fopenmp", "-Xclang", "-fnoopenmp-use-tls"});
  for (const std::string& option : request.openmp_options) flags.insert(flags.end(), {"-Xclang", option});
  // omp.h of the compiler's own, which is searched before, is as good.
  flags.insert(flags.end(), {"-idirafter", places.includes + "/multigrain/openmp"});
}

}  // namespace

std::vector<std::string> compile_flags(const Request& request, const Places& places) {
  std::vector<std::string> flags = {"-I" + places.includes};
  // The program is counted before checks are put into it: passes for the same place in the pipeline run in the order of
  // plugins. -fplugin: see add_flags_of_checks().
  if (request.count) flags.insert(flags.end(), {"-fplugin=" + places.count_pass, "-fpass-plugin=" + places.count_pass});
  if (request.count_memory) flags.insert(flags.end(), {"-Xclang", "-mllvm", "-Xclang", "-multigrain-count-memory"});
  if (request.count && request.translate)
    flags.insert(flags.end(), {"-Xclang", "-mllvm", "-Xclang", "-multigrain-count-translate"});
  if (request.checks || request.translate || request.references) add_flags_of_checks(flags, request, places);
  if (request.count && request.checks && !request.translate)
    flags.insert(flags.end(), {"-Xclang", "-mllvm", "-Xclang", "-multigrain-count-checks"});
  // The plugin comes before that of threads, which makes calls out of atomic operations.
  if (request.races) flags.push_back("-fpass-plugin=" + places.races_pass);
  if (request.threads) add_flags_of_threads(flags, request, places);
  // With -g, reports find lines by the table of addresses, which Clang leaves out otherwise.
  if (request.races || request.threads) flags.emplace_back("-gdwarf-aranges");
  return flags;
}

std::vector<std::string> link_flags(const Request& request, const Places& places) {
  const std::string rpath = "-Wl,-rpath," + places.library;
  const std::vector<std::string> says_counted =
      request.count ? std::vector<std::string>{"-Wl,--defsym=" MG_ONLY_COUNTED_CODE "=1"} : std::vector<std::string>{};
  // What threads share stays by pages.
  if (!request.threads) {
    std::vector<std::string> flags = {"-L" + places.library, "-lmultigrain", rpath};
    if (request.checks && !request.translate && links_only_checked(request.arguments))
      flags.emplace_back("-Wl,--defsym=" MG_FINE_ONLY_CHECKED_CODE "=1");
    flags.insert(flags.end(), says_counted.begin(), says_counted.end());
    return flags;
  }
  // A program of threads need not refer to the library, which is at work nevertheless.
  std::vector<std::string> flags = {"-L" + places.library, "-Wl,--push-state,--no-as-needed"};
  if (request.openmp) flags.emplace_back("-lmultigrain-openmp");
  flags.insert(flags.end(), {"-lmultigrain", "-Wl,--pop-state", rpath});
  flags.insert(flags.end(), says_counted.begin(), says_counted.end());
  return flags;
}

std::vector<std::string> command(const Request& request, const Places& places) {
  std::vector<std::string> words = {places.compiler};
  const auto add = [&](const std::vector<std::string>& more) { words.insert(words.end(), more.begin(), more.end()); };
  // The compiler must not warn that it does not use these: an assembler file needs no plugin, an object file needs no
  // header, and a file of arguments may contain -c.
  const auto add_quietly = [&](const std::vector<std::string>& more) {
    add({"--start-no-unused-arguments"});
    add(more);
    add({"--end-no-unused-arguments"});
  };
  add_quietly(compile_flags(request, places));
  add(request.arguments);
  // vptr is a part of `undefined`. Its library reads the pointer to an object's virtual table without checks.
  if ((request.checks || request.translate || request.references) && request.sanitizes_undefined)
    add({"-fno-sanitize=vptr"});
  if (request.links) add_quietly(link_flags(request, places));
  return words;
}

std::string quoted(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%^";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'')
        line += "'\\''";
      else
        line += c;
    }
    line += '\'';
  }
  return line;
}

}  // namespace multigrain::compiler
