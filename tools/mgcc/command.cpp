#include "command.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace multigrain::compiler {
namespace {

// Options of clang whose value is the next argument, which is then no input.
bool takes_value(std::string_view option) {
  static constexpr std::array kOptions = {"-o",       "-I",      "-D",        "-U",      "-x",         "-L",      "-l",
                                          "-B",       "-T",      "-u",        "-z",      "-e",         "-h",      "-include",
                                          "-isystem", "-iquote", "-idirafter", "-imacros", "-isysroot", "-MF",    "-MT",
                                          "-MQ",      "-MJ",     "-Xclang",   "-Xlinker", "-Xassembler", "-Xpreprocessor", "-mllvm",
                                          "-target",  "--param", "-arch",     "-serialize-diagnostics", "--sysroot", "-G",
                                          "-framework", "-iprefix", "-iwithprefix", "-rpath", "-soname", "-aux-info"};
  return std::ranges::find(kOptions, option) != kOptions.end();
}

// Options with which the compiler does not link, or not a program or library that code of ours could be part of.
bool forbids_linking(std::string_view option) {
  static constexpr std::array kOptions = {"-c", "-S", "-E", "-M", "-MM", "-r", "-nostdlib", "-nodefaultlibs", "-fsyntax-only", "--precompile",
                                          "-emit-ast", "--analyze"};
  return std::ranges::find(kOptions, option) != kOptions.end();
}

// What -fmultigrain-checks= may be given: as plugin.cpp of the pass.
Status check_list(std::string_view list) {
  static constexpr std::array kWords = {"loops", "nests", "batch", "group", "expand", "all"};
  while (!list.empty()) {
    std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    if (word.starts_with("no-")) word.remove_prefix(3);
    if (std::ranges::find(kWords, word) == kWords.end())
      return fail("-fmultigrain-checks: there is no '{}'; --help lists what there is", word);
  }
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
    } else if (argument.starts_with("-fmultigrain-checks=")) {
      if (const Status known = check_list(argument.substr(argument.find('=') + 1)); !known) return tl::unexpected(known.error());
      request.switches.push_back("-multigrain-checks=" + std::string(argument.substr(argument.find('=') + 1)));
    } else if (argument == "-fmultigrain-sequential") {
      request.switches.emplace_back("-multigrain-sequential");
    } else if (argument == "-fmultigrain-asm=error") {
      request.switches.emplace_back("-multigrain-asm-error");
    } else if (argument == "-fmultigrain-asm=warn") {
      std::erase(request.switches, "-multigrain-asm-error");
    } else if (argument.starts_with("-fmultigrain") || argument.starts_with("-fno-multigrain")) {
      return fail("there is no option {}; --help lists those that there are", argument);
    } else {
      request.arguments.emplace_back(argument);
      if (takes_value(argument)) {
        if (argument == "-l") has_input = true;
        if (i + 1 < arguments.size()) request.arguments.push_back(arguments[++i]);
      } else if (argument == "-" || !argument.starts_with('-') || argument.starts_with("-l") || argument.starts_with("-Wl,")) {
        has_input |= !argument.starts_with("-Wl,");
      } else {
        if (forbids_linking(argument)) may_link = false;
        if (argument == "-static" || argument == "-static-pie") is_static = true;
      }
    }
  }
  request.links = may_link && has_input;
  if (request.links && is_static)
    return fail("-static is not possible: the runtime stands in front of the C library, which takes a shared libmultigrain");
  return request;
}

std::vector<std::string> compile_flags(const Request& request, const Places& places) {
  std::vector<std::string> flags = {"-I" + places.includes};
  if (!request.checks) return flags;
  // -fplugin loads it before options are read, so that -mllvm knows those of the pass. Not -mllvm alone: with -flto that
  // reaches the linker, too.
  flags.push_back("-fplugin=" + places.pass);
  flags.push_back("-fpass-plugin=" + places.pass);
  for (const std::string& option : request.switches) flags.insert(flags.end(), {"-Xclang", "-mllvm", "-Xclang", option});
  return flags;
}

std::vector<std::string> link_flags(const Places& places) {
  return {"-L" + places.library, "-lmultigrain", "-Wl,-rpath," + places.library};
}

std::vector<std::string> command(const Request& request, const Places& places) {
  std::vector<std::string> words = {places.compiler};
  const auto add = [&](const std::vector<std::string>& more) { words.insert(words.end(), more.begin(), more.end()); };
  // An assembler file needs no plugin, and an object file no header: that is nothing to warn about.
  add({"--start-no-unused-arguments"});
  add(compile_flags(request, places));
  add({"--end-no-unused-arguments"});
  add(request.arguments);
  if (request.links) add(link_flags(places));
  return words;
}

}  // namespace multigrain::compiler
