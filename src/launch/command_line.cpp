#include "launch/command_line.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include "base/quantity.h"

namespace multigrain {
namespace {

using Reader = std::function<Status(std::string_view text, Config& config)>;

// Something that both an option and a variable can say.
struct Setting {
  const char* option;
  const char* variable;
  const char* placeholder;
  const char* help;
  Reader read;
  std::optional<std::string> given;
};

Reader whole_number(unsigned Config::* member, unsigned maximum) {
  return [=](std::string_view text, Config& config) -> Status {
    // That it is in the range is validate()'s to say.
    const std::optional<uint64_t> number = parse_whole(text, std::numeric_limits<unsigned>::max());
    if (!number) return fail("'{}' is not a whole number from 1 to {}", text, maximum);
    config.*member = static_cast<unsigned>(*number);
    return {};
  };
}

// A reader made of one of config.h's parsers.
template <typename Parse, typename Member>
Reader parsed(Parse parse, Member Config::* member) {
  return [=](std::string_view text, Config& config) -> Status {
    auto value = parse(text);
    if (!value) return tl::unexpected<Error>(value.error());
    config.*member = std::move(*value);
    return {};
  };
}

Status read_protocol(std::string_view text, Config& config) {
  config.protocol = text;
  return {};
}

Status read_interface(std::string_view text, Config& config) {
  if (text.empty() || text.front() == '-') return fail("'{}' does not name a network device", text);
  config.interface = text;
  return {};
}

Status read_prefetch(std::string_view text, Config& config) {
  const std::optional<uint64_t> pages = parse_whole(text, Config::kMaxPrefetch);
  if (!pages) return fail("'{}' is not a number of pages from 0 to {}", text, Config::kMaxPrefetch);
  config.prefetch = static_cast<unsigned>(*pages);
  return {};
}

Status read_stats(std::string_view text, Config& config) {
  auto target = parse_stats(text);
  if (!target) return tl::unexpected<Error>(target.error());
  config.stats = target->format;
  config.stats_file = std::move(target->file);
  return {};
}

std::vector<Setting> make_settings() {
  return {
      {"-n,--nodes",
       "MULTIGRAIN_NODES",
       "N",
       "number of nodes (default 1; on hosts: as many as they take)",
       whole_number(&Config::nodes, Config::kMaxNodes),
       {}},
      {"-c,--procs-per-node",
       "MULTIGRAIN_PROCS_PER_NODE",
       "C",
       "processors of each node (default 1)",
       whole_number(&Config::processors_per_node, Config::kMaxProcessorsPerNode),
       {}},
      {"--protocol",
       "MULTIGRAIN_PROTOCOL",
       "NAME",
       "coherence protocol: mgs (default), hlrc, dszoom, shasta",
       read_protocol,
       {}},
      {"--line-size",
       "MULTIGRAIN_LINE_SIZE",
       "BYTES",
       "size of a line: a power of two from 32 to 2048 under dszoom, 64 or 128 under shasta (default 64)",
       parsed(parse_size, &Config::line_size),
       {}},
      {"--block-size",
       "MULTIGRAIN_BLOCK_SIZE",
       "BYTES",
       "what moves together under shasta unless an allocation says otherwise: lines, up to a page (default: objects of "
       "up to 1024 bytes as a whole, larger ones by lines)",
       parsed(parse_size, &Config::block_size),
       {}},
      {"--model",
       "MULTIGRAIN_MODEL",
       "MODEL",
       "memory model of shasta: sc (default; sequential consistency), rc (release consistency) or tso (total store "
       "order, which is implemented as sc: it promises less, and is as strict and as fast)",
       parsed(parse_model, &Config::model),
       {}},
      {"--hlrc",
       "MULTIGRAIN_HLRC",
       "LIST",
       "options of hlrc: fetch-ahead=N (default 4), coalesce=on|off, lock=ticket|test-and-set, "
       "barrier=leader|cooperative",
       parsed(parse_hlrc, &Config::hlrc),
       {}},
      {"--page-size",
       "MULTIGRAIN_PAGE_SIZE",
       "BYTES",
       "unit of coherence: 4096 (default) to 65536, a power of two",
       parsed(parse_size, &Config::page_size),
       {}},
      {"--region-size",
       "MULTIGRAIN_REGION_SIZE",
       "BYTES",
       "shared address space (default 16T); used when touched",
       parsed(parse_size, &Config::region_size),
       {}},
      {"--fabric",
       "MULTIGRAIN_FABRIC",
       "KIND",
       "what connects the nodes: shm (default; this machine's memory) or ucx (also between hosts)",
       parsed(parse_fabric, &Config::fabric),
       {}},
      {"--interface",
       "MULTIGRAIN_INTERFACE",
       "DEVICES",
       "network devices that ucx uses, such as eth0 or mlx5_0:1 (default: those that ssh uses; lo on one machine)",
       read_interface,
       {}},
      {"--timeout",
       "MULTIGRAIN_TIMEOUT",
       "SECONDS",
       "a node or host that is silent for longer counts as gone, a second later at most (default 4; 0: never)",
       parsed(parse_silence_limit, &Config::silence_limit),
       {}},
      {"--net",
       "MULTIGRAIN_NET",
       "MODEL",
       "emulated network: ideal (default), another name that --net list shows, or figures such as "
       "latency=50us,bandwidth=96MB/s,occupancy=1us",
       parsed(parse_network_model, &Config::network),
       {}},
      {"--clock",
       "MULTIGRAIN_CLOCK",
       "CLOCK",
       "wall (default): times are what happens here; virtual: what the emulated machine would take",
       parsed(parse_clock, &Config::clock),
       {}},
      {"--clock-scale",
       "MULTIGRAIN_CLOCK_SCALE",
       "FACTOR",
       "virtual time for each unit of CPU time here (default 1; 2 emulates processors half as fast; 5000,90: the "
       "program's code, the protocol's)",
       parsed(parse_clock_scale, &Config::clock_scale),
       {}},
      {"--skew",
       "MULTIGRAIN_SKEW",
       "TIME",
       "how far a processor's virtual time may run ahead of the slowest's (default 20us)",
       parsed(parse_skew, &Config::skew),
       {}},
      {"--access",
       "MULTIGRAIN_ACCESS",
       "HOW",
       "access rights by auto (default), userfault or mprotect",
       parsed(parse_access, &Config::access),
       {}},
      {"--home",
       "MULTIGRAIN_HOME",
       "WHERE",
       "default home of pages: interleaved (default), blocked or first-touch",
       parsed(parse_home, &Config::home),
       {}},
      {"--prefetch",
       "MULTIGRAIN_PREFETCH",
       "PAGES",
       "pages read ahead of a processor that faults on one page after the other (default 16; 0: none)",
       read_prefetch,
       {}},
      {"--stats",
       "MULTIGRAIN_STATS",
       "FORMAT",
       "where the time went: none (default), text[:FILE] or json[:FILE]",
       read_stats,
       {}},
  };
}

// The long name, for messages.
std::string long_name(const Setting& setting) {
  const std::string_view all = setting.option;
  return std::string(all.substr(all.find("--")));
}

// Takes each setting from its option, or else from its variable.
Status apply(std::vector<Setting>& settings, LaunchOptions& options) {
  for (Setting& setting : settings) {
    if (setting.given == "automatic") setting.given = "auto";
    const char* inherited = std::getenv(setting.variable);
    if (!setting.given && inherited == nullptr) continue;
    const std::string text = setting.given ? *setting.given : std::string(inherited);
    if (const Status read = setting.read(text, options.config); !read)
      return fail("{}: {}", setting.given ? long_name(setting) : setting.variable, read.error().message);
    if (setting.given) options.environment.emplace_back(setting.variable, text);
  }
  return validate(options.config);
}

// A flag that is an option or a variable.
Status apply_flag(const char* variable, bool given, bool Config::* member, LaunchOptions& options) {
  const char* inherited = std::getenv(variable);
  const std::string_view text = given ? "1" : inherited != nullptr ? inherited : "0";
  if (text != "0" && text != "1") return fail("{}: '{}' is neither 0 nor 1", variable, text);
  options.config.*member = text == "1";
  if (given) options.environment.emplace_back(variable, "1");
  return {};
}

// The options that say where the nodes are, as given.
struct HostArguments {
  std::optional<std::string> hosts;
  std::optional<std::string> file;
  std::optional<std::string> ssh;
};

Result<std::vector<HostSlots>> read_hosts(const HostArguments& given) {
  if (given.hosts) {
    auto hosts = parse_hosts(*given.hosts);
    if (!hosts) return fail("--hosts: {}", hosts.error().message);
    return hosts;
  }
  std::ifstream file(*given.file);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return fail("--hostfile: cannot read '{}'", *given.file);
  auto hosts = parse_hostfile(text.str(), *given.file);
  if (!hosts) return fail("--hostfile: {}", hosts.error().message);
  return hosts;
}

Status apply_hosts(const HostArguments& given, const std::vector<Setting>& settings, LaunchOptions& options) {
  const auto says = [&](const char* variable) {
    return std::ranges::any_of(settings, [&](const Setting& setting) {
      return std::string_view(setting.variable) == variable && (setting.given || std::getenv(variable) != nullptr);
    });
  };
  if (given.hosts && given.file) return fail("--hosts and --hostfile exclude each other");
  const char* const inherited_ssh = std::getenv("MULTIGRAIN_SSH");
  auto ssh = split_words(given.ssh ? *given.ssh : inherited_ssh != nullptr ? inherited_ssh : "ssh");
  if (!ssh) return fail("{}: {}", given.ssh ? "--ssh" : "MULTIGRAIN_SSH", ssh.error().message);
  options.ssh = std::move(*ssh);
  if (!given.hosts && !given.file) return {};
  if (says("MULTIGRAIN_FABRIC") && options.config.fabric != FabricKind::kUcx)
    return fail("--fabric shm connects nodes on one machine only; leave it out, or leave the hosts out");
  const auto hosts = read_hosts(given);
  if (!hosts) return tl::unexpected<Error>(hosts.error());
  auto placed =
      place_nodes(*hosts, says("MULTIGRAIN_NODES") ? std::optional(options.config.nodes) : std::optional<unsigned>());
  if (!placed) return tl::unexpected<Error>(placed.error());
  options.hosts = std::move(*placed);
  options.config.nodes = options.hosts.back().first + options.hosts.back().count;
  options.config.fabric = FabricKind::kUcx;
  std::erase_if(options.environment, [](const auto& pair) { return pair.first == "MULTIGRAIN_FABRIC"; });
  options.environment.emplace_back("MULTIGRAIN_FABRIC", "ucx");
  return {};
}

constexpr const char* kUsage = "mgrun [OPTIONS] PROGRAM [ARGUMENTS...]";

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(32); }
  std::string make_usage(const CLI::App*, std::string) const override { return fmt::format("Usage: {}\n", kUsage); }
};

constexpr const char* kDescription =
    "Runs a Multigrain program on an emulated cluster on this machine, or on several hosts.\n"
    "Each option up to --stats can also be given as a variable of the environment, for example MULTIGRAIN_NODES.";
constexpr const char* kFooter =
    "Exit status: the program's own; 128 + the signal that killed it; 2 for bad usage; 1 when a node other than 0 "
    "or a host fails, or output is lost.";

}  // namespace

Result<std::variant<LaunchOptions, Information>> parse_command_line(int argc, const char* const* argv) {
  std::vector<Setting> settings = make_settings();
  LaunchOptions options;
  HostArguments hosts;
  bool verbose = false;
  bool check = false;
  bool pin = false;
  bool no_pin = false;
  std::string deadlock = "report";
  std::optional<std::string> deadlock_after;

  CLI::App app(kDescription, "mgrun");
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpFormatter>());
  // Everything from the program's name on is the program's.
  app.prefix_command();
  app.set_version_flag("--version", "mgrun (Multigrain) " MULTIGRAIN_VERSION);
  for (Setting& setting : settings)
    app.add_option(setting.option, setting.given, setting.help)->take_last()->type_name(setting.placeholder);
  app.add_option("--hosts", hosts.hosts, "hosts to run on, reached by ssh; b:2 takes two nodes")
      ->take_last()
      ->type_name("A,B:2,C");
  app.add_option("--hostfile", hosts.file, "the same from a file: a host a line, with slots=N")
      ->take_last()
      ->type_name("FILE");
  app.add_option("--ssh", hosts.ssh, "how to reach a host (default ssh; also MULTIGRAIN_SSH)")
      ->take_last()
      ->type_name("COMMAND");
  app.add_option("--remote-mgrun", options.remote_mgrun, "where mgrun is on the hosts (default: where it is here)")
      ->take_last()
      ->type_name("PATH");
  app.add_option("-x,--export", options.exported, "hand this variable of the environment to the nodes on all hosts")
      ->allow_extra_args(false)
      ->type_name("NAME");
  app.add_flag("--verbose", verbose, "say what is started and how")
      ->disable_flag_override();
  app.add_flag("--check", check,
               "name mistakes in porting: globals that another node than 0 writes, processors that are never started")
      ->disable_flag_override();
  app.add_flag("--quiet", options.quiet,
               "no remarks: that the program does not use Multigrain, that a variable MULTIGRAIN_... is not known")
      ->disable_flag_override();
  app.add_flag("--label-output", options.label_output, "begin each line of output with its [node]")
      ->disable_flag_override();
  app.add_option("--deadlock", deadlock,
                 "what a run does in which every processor waits for another: report (default: say who waits for what, "
                 "and go on) or end")
      ->take_last()
      ->type_name("WHAT");
  app.add_option("--deadlock-after", deadlock_after,
                 "how long every processor has slept before that is reported (default 10; 0: never)")
      ->take_last()
      ->type_name("SECONDS");
  app.add_flag("--pin", pin, "one core a processor, or refuse to start")
      ->disable_flag_override();
  app.add_flag("--no-pin", no_pin, "leave placement to the system (default: pin when there are enough cores)")
      ->disable_flag_override();

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& call) {
    return Information{std::string(call.what()) + "\n"};
  } catch (const CLI::CallForHelp&) {
    return Information{app.help()};
  } catch (const CLI::ArgumentMismatch& error) {
    // What CLI11 says of a flag with a value needs a programmer to be understood.
    const std::string_view said = error.what();
    const size_t end = said.find(" was given a disallowed flag override");
    if (end == said.npos) return fail("{} (mgrun --help lists the options)", said);
    return fail("--{} takes no value (mgrun --help lists the options)", said.substr(0, end));
  } catch (const CLI::ParseError& error) {
    return fail("{} (mgrun --help lists the options)", error.what());
  }

  if (deadlock != "report" && deadlock != "end")
    return fail("--deadlock: '{}' is neither report nor end", deadlock);
  options.deadlock_ends = deadlock == "end";
  if (deadlock_after) {
    const auto limit = parse_silence_limit(*deadlock_after);
    if (!limit)
      return fail("--deadlock-after is '{}'; it must be the seconds that every processor sleeps before that is reported, from "
                  "0.1 to 3600, or 0 for never",
                  *deadlock_after);
    options.deadlock_after = *limit;
  }
  if (pin && no_pin) return fail("--pin and --no-pin exclude each other");
  const auto net = std::ranges::find(settings, std::string_view("--net"), &Setting::option);
  if (net->given == "list") return Information{render_network_presets()};
  options.program = app.remaining();
  if (!options.program.empty() && options.program.front() == "--") {
    options.program.erase(options.program.begin());
  } else if (!options.program.empty() && options.program.front().starts_with('-')) {
    return fail("unknown option '{}' (mgrun --help lists the options)", options.program.front());
  }
  if (options.program.empty()) return fail("there is no program to run; usage: {}", kUsage);
  if (const Status status = apply(settings, options); !status) return tl::unexpected<Error>(status.error());
  if (const Status status = apply_flag("MULTIGRAIN_VERBOSE", verbose, &Config::verbose, options); !status)
    return tl::unexpected<Error>(status.error());
  if (const Status status = apply_flag("MULTIGRAIN_CHECK", check, &Config::check, options); !status)
    return tl::unexpected<Error>(status.error());
  if (const Status status = apply_hosts(hosts, settings, options); !status)
    return tl::unexpected<Error>(status.error());
  options.pinning = pin ? Pinning::kAlways : no_pin ? Pinning::kNever : Pinning::kAutomatic;
  return options;
}

Result<std::string> find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct stat info{};
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    struct stat info{};
    if (stat(name.c_str(), &info) != 0) return fail_errno(errno, fmt::format("cannot run '{}'", name));
    if (S_ISDIR(info.st_mode)) return fail("cannot run '{}': it is a directory", name);
    return fail("cannot run '{}': it is not executable (chmod +x makes it so, if it is a program)", name);
  }
  const char* variable = std::getenv("PATH");
  // What execvp searches when there is no PATH.
  std::string_view rest = variable != nullptr ? variable : "/bin:/usr/bin";
  while (!name.empty()) {
    const size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    std::string path = folder.empty() ? "./" + name : fmt::format("{}/{}", folder, name);
    if (is_program(path)) return path;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return fail("cannot run '{}': no executable file of that name in PATH{}", name,
              is_program("./" + name) ? fmt::format(" (there is ./{})", name) : "");
}

}  // namespace multigrain
