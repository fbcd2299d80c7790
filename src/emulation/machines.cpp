#include "emulation/machines.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/installation.h"

namespace multigrain {
namespace {

namespace fs = std::filesystem;

// A description is a few kilobytes.
constexpr size_t kLongest = size_t{1} << 20;

Result<std::string> contents(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::directory)
    return fail("cannot read the description of a machine '{}': it is a directory", file.string());
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail_errno(errno, fmt::format("cannot read the description of a machine '{}'", file.string()));
  std::string text;
  text.resize(kLongest + 1);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return fail_errno(errno, fmt::format("cannot read the description of a machine '{}'", file.string()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLongest)
    return fail("'{}' is no description of a machine: it is longer than 1 MiB", file.string());
  return text;
}

Result<MachineDescription> read_file(const fs::path& file) {
  const auto text = contents(file);
  if (!text) return tl::unexpected(text.error());
  return parse_machine(*text, file.string());
}

bool is_file_name(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json");
}

// Returns the descriptions in the folder, by name.
Result<std::vector<MachineDescription>> all_machines() {
  const auto folder = machines_folder();
  if (!folder) return tl::unexpected(folder.error());
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(*folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") files.push_back(at->path());
  if (error) return fail("cannot read '{}': {}", folder->string(), error.message());
  std::ranges::sort(files);
  std::vector<MachineDescription> machines;
  for (const fs::path& file : files) {
    auto machine = read_file(file);
    if (!machine) return tl::unexpected(machine.error());
    machines.push_back(std::move(*machine));
  }
  return machines;
}

}  // namespace

Result<fs::path> machines_folder() {
  constexpr const char* kMark = "today-rdma.json";
  constexpr const char* kPlace = "../" MULTIGRAIN_DATA_DIRECTORY "/multigrain/machines";
  constexpr const char* kBuilt = "../share/multigrain/machines";
  auto beside = find_beside_executable({kPlace, kBuilt}, {kMark});
  if (beside) return beside;
  // In a node the executable is the program, and this code is in the library.
  Dl_info info = {};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&machines_folder), &info) == 0 || info.dli_fname == nullptr) return beside;
  const fs::path library = fs::canonical(info.dli_fname, error).parent_path();
  for (fs::path above = library; !error && above.has_relative_path(); above = above.parent_path()) {
    // The library is in lib, or in lib/x86_64-linux-gnu.
    if (fs::path folder = (above / kBuilt).lexically_normal(); fs::exists(folder / kMark, error)) return folder;
    if (above.filename() == "lib" || above.filename() == "lib64") break;
  }
  return beside;
}

Result<fs::path> own_machine_file() {
  // A value that is not absolute is to be ignored (XDG Base Directory Specification).
  for (const auto& [variable, below] : {std::pair("XDG_DATA_HOME", ""), std::pair("HOME", ".local/share")}) {
    const char* const folder = secure_getenv(variable);
    if (folder != nullptr && *folder == '/') return fs::path(folder) / below / "multigrain" / "here.json";
  }
  return fail("there is no folder for the description of this machine: neither XDG_DATA_HOME nor HOME names one");
}

Result<MachineDescription> read_machine(std::string_view text) {
  if (text.starts_with('{')) return parse_machine(text, "the description of a machine that was handed over");
  if (is_file_name(text)) return read_file(text);
  std::error_code error;
  if (text == kOwnMachine) {
    const auto own = own_machine_file();
    if (!own) return tl::unexpected(own.error());
    if (!fs::exists(*own, error))
      return fail("this machine has not been measured yet: mgbench --calibrate does that, and writes '{}'",
                  own->string());
    return read_file(*own);
  }
  const auto folder = machines_folder();
  if (!folder) return tl::unexpected(folder.error());
  const fs::path file = *folder / (std::string(text) + ".json");
  if (text.empty() || !fs::exists(file, error))
    return fail(
        "there is no machine '{}'; mgrun --machine list shows those that there are, and the name of a file has a slash or "
        "ends in .json",
        text);
  return read_file(file);
}

Status settle_machine(std::string_view name, Config& config) {
  if (config.clock != ClockKind::kCounted) return {};
  auto machine = read_machine(config.machine_text.empty() ? kDefaultMachine : std::string_view(config.machine_text));
  if (!machine) return fail("{}: {}", name, machine.error().message);
  if (config.mgs.translation == MgsTranslation::kCompiled && !machine->instructions.translation)
    return fail(
        "{}: the machine {} does not say what a translated access costs (processor.translation: pointer and array), which "
        "translation=compiled needs under the counted clock (--mgs or MULTIGRAIN_MGS)",
        name, machine->name);
  if (config.caches && !machine->caches)
    return fail(
        "--caches on: the description of the machine {} has no part 'caches' (docs/user/machines.md), so it has none to model",
        machine->name);
  if (!config.network_given) config.network = machine->network;
  config.machine = std::make_shared<const MachineDescription>(std::move(*machine));
  return {};
}

Result<std::string> render_machines() {
  const auto machines = all_machines();
  if (!machines) return tl::unexpected(machines.error());
  constexpr size_t kIndent = 18;
  constexpr size_t kWidth = 100 - kIndent;
  std::string out = "Machines that --machine knows by name, for --clock counted.\n\n";
  for (const MachineDescription& machine : *machines) {
    out += fmt::format("{:<{}}{} MHz, network {}\n", machine.name, kIndent, machine.clock_mhz,
                       format_network_model(machine.network));
    const std::string source = "Source: " + machine.source;
    for (std::string_view rest : {std::string_view(machine.what), std::string_view(source)}) {
      while (!rest.empty()) {
        size_t end = rest.size() <= kWidth ? rest.size() : rest.rfind(' ', kWidth);
        if (end == std::string_view::npos) end = rest.size();
        out += fmt::format("{:<{}}{}\n", "", kIndent, rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    out += "\n";
  }
  out += fmt::format(
      "Each figure's source is in its file, in {}.\n"
      "This machine: --machine {}, once mgbench --calibrate has measured it.\n"
      "A machine of your own: --machine FILE.json, with the same keys (docs/user/machines.md).\n",
      machines_folder()->string(), kOwnMachine);
  return out;
}

}  // namespace multigrain
