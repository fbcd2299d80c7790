#include "launch/command_line.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "base/quantity.h"
#include "base/sampling.h"
#include "base/settings.h"
#include "emulation/machine_description.h"
#include "emulation/machines.h"
#include "placement/policies.h"

namespace multigrain {
namespace {

// A setting, and its value on the command line.
struct GivenSetting {
  const Setting* setting;
  std::optional<std::string> value;  // for an option with a value
  bool flag = false;
};

std::vector<GivenSetting> settings_with_options() {
  std::vector<GivenSetting> all;
  for (const Setting& setting : settings())
    if (setting.option != nullptr) all.push_back({&setting, {}, false});
  return all;
}

// Finds out what --machine means, and tells the nodes the description itself: they need no file, which they could find
// changed, or not at all, in another folder.
Status apply_machine(const std::vector<GivenSetting>& given, LaunchOptions& options) {
  constexpr std::string_view kVariable = "MULTIGRAIN_MACHINE";
  const auto setting = std::ranges::find(
      given, kVariable, [](const GivenSetting& one) { return std::string_view(one.setting->variable); });
  const std::string_view name = setting->value ? setting->setting->long_option() : kVariable;
  if (Status settled = settle_machine(name, options.config); !settled) return settled;
  if (options.config.machine == nullptr) return {};
  std::erase_if(options.environment, [&](const auto& pair) { return pair.first == kVariable; });
  options.environment.emplace_back(kVariable, compact(*options.config.machine));
  return {};
}

// Takes each setting from its option, or else from its variable.
Status apply(std::vector<GivenSetting>& given, LaunchOptions& options) {
  for (GivenSetting& one : given) {
    if (one.value == "automatic") one.value = "auto";
    if (one.flag) one.value = "1";
    const char* const inherited = std::getenv(one.setting->variable);
    if (!one.value && inherited == nullptr) continue;
    const std::string text = one.value ? *one.value : std::string(inherited);
    const std::string_view name = one.value ? one.setting->long_option() : std::string_view(one.setting->variable);
    if (const Status read = one.setting->read(name, text, options.config); !read) return read;
    // Nodes may run in other folders than this process.
    if (one.setting->repeats)
      options.environment.emplace_back(one.setting->variable,
                                       fmt::format("{}", fmt::join(options.config.local_files, ":")));
    else if (one.value)
      options.environment.emplace_back(one.setting->variable, text);
  }
  if (Status machine = apply_machine(given, options); !machine) return machine;
  if (Status valid = validate(options.config); !valid) return valid;
  if (options.config.translates()) settle_translation(options.config);
  if (options.config.traits().kind == ProtocolKind::kPlacement)
    if (const auto policy = placement::make_policy_of_run(options.config.policy); !policy)
      return fail("{} (--policy or MULTIGRAIN_POLICY)", policy.error().message);
  return {};
}

// Fails if one of the folders of --local-files is not there. Those of hosts are looked for there.
Status check_local_files(const LaunchOptions& options) {
  if (!options.hosts.empty()) return {};
  for (const std::string& folder : options.config.local_files) {
    struct stat status{};
    if (stat(folder.c_str(), &status) != 0) return fail_errno(errno, fmt::format("--local-files: '{}'", folder));
    if (!S_ISDIR(status.st_mode)) return fail("--local-files: '{}' is not a directory", folder);
  }
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

Status apply_hosts(const HostArguments& given, const std::vector<GivenSetting>& settings, LaunchOptions& options) {
  const auto says = [&](const char* variable) {
    return std::ranges::any_of(settings, [&](const GivenSetting& one) {
      return std::string_view(one.setting->variable) == variable && (one.value || std::getenv(variable) != nullptr);
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
  return validate(options.config);
}

// Nodes may run in other folders than this process, so that they are told whole names.
Status check_checkpoints(LaunchOptions& options, const std::optional<std::string>& restarts) {
  const Config& config = options.config;
  if (config.checkpoint_every && config.checkpoint.empty())
    return fail("--every says how often checkpoints are written; --checkpoint DIR must say where");
  if (options.binary && !(config.checkpoint.empty() && config.restart.empty()))
    return fail("--checkpoint and --restart are for programs of Multigrain's interface, and exclude --binary");
  for (auto& [name, value] : options.environment) {
    if (name == "MULTIGRAIN_CHECKPOINT") value = config.checkpoint;
    if (name == "MULTIGRAIN_RESTART") value = config.restart;
  }
  if (!restarts) return {};
  const std::optional<uint64_t> number = parse_whole(*restarts, 1'000'000);
  if (!number) return fail("--restart-on-failure is '{}'; it must be a whole number from 0 to 1000000", *restarts);
  if (config.checkpoint.empty()) return fail("--restart-on-failure needs checkpoints: give --checkpoint DIR as well");
  options.restarts = static_cast<unsigned>(*number);
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
    "Each option up to --check can also be given as a variable of the environment, for example MULTIGRAIN_NODES.";
constexpr const char* kFooter =
    "Exit status: the program's own; 128 + the signal that killed it; 2 for bad usage; 1 when a node other than 0 "
    "or a host fails, or output is lost.";

// The contents of the command line, before they are combined with the environment.
struct CommandLine {
  std::vector<GivenSetting> settings = settings_with_options();
  LaunchOptions options;
  HostArguments hosts;
  bool pin = false, no_pin = false;
  std::string processes = "home";
  std::string deadlock = "report";
  std::optional<std::string> deadlock_after;
  std::optional<std::string> restarts;
  std::optional<std::string> sample;
};

void add_options(CLI::App& app, CommandLine& line) {
  // For a flag --name=value is an error, not another form of --name.
  const auto add_flag = [&app](const char* name, bool& given, const char* help) {
    app.add_flag(name, given, help)->disable_flag_override();
  };
  const auto add_option = [&app](const char* name, auto& given, const std::string& type, const char* help) {
    return app.add_option(name, given, help)->take_last()->type_name(type);
  };
  for (GivenSetting& one : line.settings) {
    if (one.setting->placeholder == nullptr)
      add_flag(one.setting->option, one.flag, one.setting->help);
    else if (CLI::Option* const added =
                 add_option(one.setting->option, one.value, one.setting->type_name(), one.setting->help);
             one.setting->repeats)
      added->join(':')->allow_extra_args(false);
  }
  add_option("--hosts", line.hosts.hosts, "A,B:2,C", "hosts to run on, reached by ssh; b:2 takes two nodes");
  add_option("--hostfile", line.hosts.file, "FILE", "the same from a file: a host a line, with slots=N");
  add_option("--ssh", line.hosts.ssh, "COMMAND", "how to reach a host (default ssh; also MULTIGRAIN_SSH)");
  add_option("--remote-mgrun", line.options.remote_mgrun, "PATH",
             "where mgrun is on the hosts (default: where it is here)");
  app.add_option("-x,--export", line.options.exported,
                 "hand this variable of the environment to the nodes on all hosts")
      ->allow_extra_args(false)
      ->type_name("NAME");
  add_flag("--binary", line.options.binary,
           "run a program as it is: any for x86-64 Linux, without Multigrain's library");
  add_option("--processes", line.processes, "WHERE",
             "with --binary, where processes run that the program forks: home (default: on the first node) or spread "
             "(on all nodes in turn)");
  add_option("--record", line.options.record, "FILE",
             "write a trace of what the program refers to, and FILE.decisions with what --protocol placement does; the "
             "program is compiled with mgcc -fmultigrain-count=memory");
  add_option(
      "--sample", line.sample, "BURST/INTERVAL",
      "with --record, record bursts: of each INTERVAL of a processor's references BURST that follow each other, all "
      "processors at a time");
  add_flag("--quiet", line.options.quiet,
           "no remarks: that the program does not use Multigrain, that a variable MULTIGRAIN_... is not known");
  add_flag("--label-output", line.options.label_output, "begin each line of output with its [node]");
  add_option("--deadlock", line.deadlock, "WHAT",
             "what a run does in which every processor waits for another: report (default: say who waits for what, "
             "and go on) or end");
  add_option("--deadlock-after", line.deadlock_after, "SECONDS",
             "how long every processor has slept before that is reported (default 10; 0: never)");
  add_option("--restart-on-failure", line.restarts, "N",
             "with --checkpoint, start the run again when a node has died, from the last checkpoint, up to N times");
  add_flag("--pin", line.pin, "one core a processor, or refuse to start");
  add_flag("--no-pin", line.no_pin, "leave placement to the system (default: pin when there are enough cores)");
}

Status read_processes(const CommandLine& line, LaunchOptions& options) {
  if (line.processes != "home" && line.processes != "spread")
    return fail("--processes: '{}' is neither home nor spread", line.processes);
  options.spreads_processes = line.processes == "spread";
  if (!options.spreads_processes) return {};
  if (!options.binary) return fail("--processes spread is for programs as they are (--binary)");
  if (!options.hosts.empty() || options.config.fabric != FabricKind::kShm)
    return fail("--processes spread needs all nodes on one machine: leave out {}",
                options.hosts.empty() ? "--fabric ucx" : "the hosts");
  return {};
}

Status read_deadlock(const CommandLine& line, LaunchOptions& options) {
  if (line.deadlock != "report" && line.deadlock != "end")
    return fail("--deadlock: '{}' is neither report nor end", line.deadlock);
  options.deadlock_ends = line.deadlock == "end";
  if (!line.deadlock_after) return {};
  const auto limit = parse_silence_limit(*line.deadlock_after);
  if (!limit)
    return fail(
        "--deadlock-after is '{}'; it must be the seconds that every processor sleeps before that is reported, from "
        "0.1 to 3600, or 0 for never",
        *line.deadlock_after);
  options.deadlock_after = *limit;
  return {};
}

// Parses the words. Returns the text that the user asked for instead of a run, or nothing.
Result<std::optional<Information>> parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& call) {
    return Information{std::string(call.what()) + "\n"};
  } catch (const CLI::CallForHelp&) {
    return Information{app.help()};
  } catch (const CLI::ArgumentMismatch& error) {
    // Only a programmer understands CLI11's message about a flag with a value.
    const std::string_view said = error.what();
    const size_t end = said.find(" was given a disallowed flag override");
    if (end == said.npos) return fail("{} (mgrun --help lists the options)", said);
    return fail("--{} takes no value (mgrun --help lists the options)", said.substr(0, end));
  } catch (const CLI::ParseError& error) {
    return fail("{} (mgrun --help lists the options)", error.what());
  }
  return std::nullopt;
}

// Returns the program and its arguments, from the words that are left after the options.
Result<std::vector<std::string>> program_of(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && words.front().starts_with('-')) {
    return fail("unknown option '{}' (mgrun --help lists the options)", words.front());
  }
  if (words.empty()) return fail("there is no program to run; usage: {}", kUsage);
  return words;
}

// What is recorded is what a policy's placement looks like.
Status check_record(const std::optional<std::string>& sample, LaunchOptions& options) {
  if (!options.record) {
    if (sample) return fail("--sample says which references --record records; give --record FILE, too");
    return {};
  }
  if (options.binary)
    return fail(
        "--record is for programs that report their accesses (mgcc -fmultigrain-count=memory), and excludes --binary");
  if (options.config.traits().kind != ProtocolKind::kPlacement)
    return fail(
        "--record records what a policy does with pages, and the protocol of this run is {} (--protocol placement); mgtrace "
        "record records programs that run without Multigrain",
        options.config.traits().name);
  if (!options.config.shares_memory())
    return fail(
        "--record records references of programs on one machine without an emulated network; leave out {} (--record)",
        options.config.network.ideal() ? "hosts and --fabric ucx" : "--net");
  if (!sample) return {};
  const auto bursts = parse_sampling(*sample);
  if (!bursts) return tl::unexpected(bursts.error());
  options.record_bursts = *bursts;
  return {};
}

// A program that is run as it is runs on one node without any protocol, and on several nodes under sequential
// consistency, which is the only model for which a program need not be written in a certain way.
Status apply_to_binary(LaunchOptions& options) {
  if (options.config.races)
    return fail("--races is for programs that are linked with Multigrain, and excludes --binary");
  if (options.config.check_races)
    return fail("--check-races is for programs that mgcc has compiled, and excludes --binary");
  if (options.config.check)
    return fail("--check is for programs that are linked with Multigrain, and excludes --binary");
  if (is_alone(options)) return {};
  const auto give = [&options](const char* name, const char* value) {
    std::erase_if(options.environment, [name](const auto& one) { return one.first == name; });
    options.environment.emplace_back(name, value);
  };
  const auto given =
      std::ranges::find(options.environment, "MULTIGRAIN_PROTOCOL", [](const auto& one) { return one.first; });
  if (given != options.environment.end() && given->second != "sc" && given->second != kAutomaticProtocol)
    return fail(
        "--binary needs --protocol sc, since the program is not written for weaker models; leave --protocol {} out",
        given->second);
  options.config.protocol = "sc";
  give("MULTIGRAIN_PROTOCOL", "sc");
  return {};
}

}  // namespace

Result<std::variant<LaunchOptions, Information>> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app(kDescription, "mgrun");
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpFormatter>());
  // All words from the program's name on belong to the program.
  app.prefix_command();
  app.set_version_flag("--version", "mgrun (Multigrain) " MULTIGRAIN_VERSION);
  add_options(app, line);
  auto information = parse(app, argc, argv);
  if (!information) return tl::unexpected<Error>(information.error());
  if (*information) return **information;

  LaunchOptions& options = line.options;
  if (const Status status = read_deadlock(line, options); !status) return tl::unexpected<Error>(status.error());
  if (line.pin && line.no_pin) return fail("--pin and --no-pin exclude each other");
  for (const GivenSetting& one : line.settings) {
    if (one.value != "list") continue;
    if (one.setting->long_option() == "--net") return Information{render_network_presets()};
    if (one.setting->long_option() == "--policy") return Information{placement::render_policies_of_runs()};
    if (one.setting->long_option() != "--machine") continue;
    auto machines = render_machines();
    if (!machines) return tl::unexpected<Error>(machines.error());
    return Information{std::move(*machines)};
  }
  auto program = program_of(app.remaining());
  if (!program) return tl::unexpected<Error>(program.error());
  options.program = std::move(*program);
  if (const Status status = apply(line.settings, options); !status) return tl::unexpected<Error>(status.error());
  if (const Status status = apply_hosts(line.hosts, line.settings, options); !status)
    return tl::unexpected<Error>(status.error());
  if (const Status status = check_local_files(options); !status) return tl::unexpected<Error>(status.error());
  if (const Status status = check_checkpoints(options, line.restarts); !status)
    return tl::unexpected<Error>(status.error());
  if (options.binary)
    if (const Status status = apply_to_binary(options); !status) return tl::unexpected<Error>(status.error());
  if (const Status status = read_processes(line, options); !status) return tl::unexpected<Error>(status.error());
  if (const Status status = check_record(line.sample, options); !status) return tl::unexpected<Error>(status.error());
  options.pinning = line.pin ? Pinning::kAlways : line.no_pin ? Pinning::kNever : Pinning::kAutomatic;
  return std::move(options);
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
  // Without PATH, execvp searches these folders.
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
