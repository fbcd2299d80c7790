// Where descriptions of machines are found, and how a run gets one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/error.h"
#include "emulation/machine_description.h"

namespace multigrain {

// What --clock counted takes if no machine is named.
inline constexpr std::string_view kDefaultMachine = "today-rdma";

// Returns the folder of the descriptions that Multigrain brings along, in the build tree or in an installed tree that may have
// been moved. Errors: there is none.
Result<std::filesystem::path> machines_folder();

// The machine that is measured by mgbench --calibrate.
inline constexpr std::string_view kOwnMachine = "here";
// Returns where mgbench --calibrate writes the description of this machine, and `here` is read: multigrain/here.json in the
// folder that XDG_DATA_HOME names, or in ~/.local/share. Errors: neither variable names a folder.
Result<std::filesystem::path> own_machine_file();

// Reads the description that `text` means: one that Multigrain brings along, by its name; `here`; a file, whose name has a slash or ends
// in ".json"; or a description itself, which begins with a brace (see compact()). Errors are one sentence.
Result<MachineDescription> read_machine(std::string_view text);

// Sets `machine` of a configuration with the counted clock, from `machine_text` or, if that is empty, the default; and
// `network`, unless it was given. Leaves any other configuration as it is. Errors are one sentence that begins with `name`, which
// is the option or the variable that gave the text.
Status settle_machine(std::string_view name, Config& config);

// Returns the machines that Multigrain brings along as a table for people, with their sources. It ends with a newline.
// Errors: those of machines_folder() and parse_machine().
Result<std::string> render_machines();

}  // namespace multigrain
