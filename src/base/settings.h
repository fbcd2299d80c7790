// This is the table of the settings of a run. Each is there once, with its variable of the environment, its option of
// mgrun, its possible values, and the sentence that --help and the manual page have about it. Other tools that hand an
// option on to mgrun take it from here, too; mgstudy, which is written in Python, repeats some, and tests/manual
// compares them. docs/user/mgrun.md says more of each in its own words; tests/manual finds out whether one is missing
// there.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/error.h"

namespace multigrain {

struct Setting {
  enum class Scope { kRun, kNode };  // see run_settings()
  const char* variable;
  Scope scope;
  // Reads `text` into its member of `config`. Errors name `name`, which is the option or the variable that gave the
  // text. validate() checks ranges that depend on other settings.
  Status (*read)(std::string_view name, std::string_view text, Config& config);
  // This is the option of mgrun; nullptr if there is only the variable, which a launcher sets.
  const char* option = nullptr;
  const char* placeholder = nullptr;  // for the option's value; nullptr: a flag
  const char* help = nullptr;
  // These are the possible values, if they are a few words: for --help, and for shells that complete them. `read`
  // decides what is valid.
  const char* choices = nullptr;  // separated by commas
  // Says whether the option may be given several times. The variable has all values, separated by colons.
  bool repeats = false;

  // Returns the long name of the option, for messages.
  [[nodiscard]] std::string_view long_option() const {
    const std::string_view all = option;
    return all.substr(all.find("--"));
  }
  // Returns the placeholder, and the possible values if they are a few words, as CLI11 shows them in --help:
  // "MODEL:{sc,rc}". The setting must not be a flag.
  [[nodiscard]] std::string type_name() const;
};

// Returns all settings, in the order of mgrun --help, in which mistakes are reported as well.
std::span<const Setting> settings();

// Returns the setting with this variable, which must be in the table.
const Setting& setting_of(std::string_view variable);

}  // namespace multigrain
