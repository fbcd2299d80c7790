// What can be said of a run: each setting once, with its variable of the environment, its option of mgrun, what it may
// be, and the sentence that --help, the manual page and docs/user/mgrun.md have of it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/error.h"

namespace multigrain {

struct Setting {
  enum class Scope { kRun, kNode };  // see run_settings()
  const char* variable;
  Scope scope;
  // Reads `text` into its member of `config`. Errors name `name`, the option or the variable that says it. Ranges that
  // depend on other settings are validate()'s.
  Status (*read)(std::string_view name, std::string_view text, Config& config);
  // Of mgrun; nullptr: there is only the variable, which a launcher sets.
  const char* option = nullptr;
  const char* placeholder = nullptr;  // of the option's value; nullptr: a flag
  const char* help = nullptr;
  // What the value may be, if that is one of few words: for --help and for the shells that complete it. `read` decides.
  const char* choices = nullptr;  // by commas

  // The long name of the option, for messages.
  [[nodiscard]] std::string_view long_option() const {
    const std::string_view all = option;
    return all.substr(all.find("--"));
  }
};

// All of them, in the order of mgrun --help, in which mistakes are reported as well.
std::span<const Setting> settings();

// What the value of a setting that has `choices` may be.
std::vector<std::string> choices_of(std::string_view variable);

}  // namespace multigrain
