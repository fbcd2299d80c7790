// Subcommands around recording: record, cc and c++.
#pragma once

#include "commands.h"

namespace multigrain::trace::tool {

Command add_record(CLI::App& app);
Command add_cc(CLI::App& app);
Command add_cxx(CLI::App& app);

}  // namespace multigrain::trace::tool
