// What the user says about checkpoints of a run: --checkpoint, --every and --restart of mgrun, or their variables. They are no
// part of Config, since the runtime's checkpoints alone read them.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"

namespace multigrain {

struct CheckpointSettings {
  std::string folder;     // MULTIGRAIN_CHECKPOINT; empty: no checkpoints are written
  Nanoseconds every = 0;  // MULTIGRAIN_CHECKPOINT_EVERY; 0: each call of mg_checkpoint() writes one
  std::string restart;  // MULTIGRAIN_RESTART: the folder of the checkpoint that the run goes on from; empty: it begins
};

// Reads a time between checkpoints such as "60s", "1.5h", "500ms", or a number of seconds; at most a year.
Result<Nanoseconds> parse_checkpoint_interval(std::string_view text);

// Reads the name of a folder. Errors: it is empty.
Result<std::string> parse_checkpoint_folder(std::string_view text);

// Reads the environment. Every error names the variable. Folders are absolute in the result. Call it before the program can go
// to another folder.
Result<CheckpointSettings> checkpoint_settings_from_environment();

}  // namespace multigrain
