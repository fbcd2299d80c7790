#include "base/checkpoint_settings.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/quantity.h"

namespace multigrain {

Result<Nanoseconds> parse_checkpoint_interval(std::string_view text) {
  constexpr Unit kUnits[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"min", 60e9}, {"h", 3600e9}};
  constexpr double kYear = 365 * 24 * 3600e9;
  const std::optional<double> ns = parse_quantity(text, kUnits);
  if (!ns || *ns > kYear)
    return fail(
        "'{}' is no time between checkpoints: it must be a time of at most a year such as 60s, in ms, s, min or h",
        text);
  return static_cast<Nanoseconds>(std::llround(*ns));
}

Result<std::string> parse_checkpoint_folder(std::string_view text) {
  if (text.empty()) return fail("it is set to nothing; name a folder");
  return std::string(text);
}

Result<CheckpointSettings> checkpoint_settings_from_environment() {
  CheckpointSettings settings;
  for (const auto& [variable, folder] :
       {std::pair{"MULTIGRAIN_CHECKPOINT", &settings.folder}, std::pair{"MULTIGRAIN_RESTART", &settings.restart}}) {
    const char* const text = secure_getenv(variable);
    if (text == nullptr) continue;
    const auto name = parse_checkpoint_folder(text);
    if (!name) return fail("{}: {}", variable, name.error().message);
    std::error_code failed;
    *folder = std::filesystem::absolute(*name, failed);
    if (failed) return fail_errno(failed.value(), fmt::format("{}: '{}'", variable, *name));
  }
  if (const char* const text = secure_getenv("MULTIGRAIN_CHECKPOINT_EVERY")) {
    const auto every = parse_checkpoint_interval(text);
    if (!every) return fail("MULTIGRAIN_CHECKPOINT_EVERY: {}", every.error().message);
    settings.every = *every;
  }
  return settings;
}

}  // namespace multigrain
