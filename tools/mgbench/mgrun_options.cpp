#include <fmt/format.h>

#include "base/config.h"
#include "base/settings.h"
#include "commands.h"

namespace multigrain::bench {
namespace {

// Returns what is wrong with the text as a value of the setting; nothing if it is valid. CLI11 puts the option's name
// in front of the sentence.
std::string mistake_in(const Setting& setting, const std::string& text) {
  Config config;
  Status valid = setting.read(setting.long_option(), text, config);
  if (valid) valid = validate(config);
  if (valid) return {};
  const std::string prefix = fmt::format("{}: ", setting.long_option());
  const std::string& sentence = valid.error().message;
  return sentence.starts_with(prefix) ? sentence.substr(prefix.size()) : sentence;
}

}  // namespace

void add_mgrun_option(CLI::App& app, std::string_view variable, std::string& value, std::string_view note) {
  const Setting& setting = setting_of(variable);
  const std::string help = note.empty() ? setting.help : fmt::format("{}; {}", setting.help, note);
  app.add_option(setting.option, value, help)
      ->type_name(setting.type_name())
      ->check(CLI::Validator([&setting](const std::string& text) { return mistake_in(setting, text); }, ""));
}

}  // namespace multigrain::bench
