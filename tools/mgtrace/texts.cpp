#include "texts.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace multigrain::trace::tool {

using nlohmann::json;

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{}", bytes);
}

std::string count_text(uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string time_text(double nanoseconds) {
  constexpr const char* kUnits[] = {"ns", "us", "ms"};
  for (const char* unit : kUnits) {
    if (nanoseconds < 999.5) return fmt::format("{:.3g} {}", nanoseconds, unit);
    nanoseconds /= 1000;
  }
  return nanoseconds < 999.5 ? fmt::format("{:.3g} s", nanoseconds) : fmt::format("{:.0f} s", nanoseconds);
}

std::string sampling_text(const json& sampling, const std::string& counts) {
  if (sampling.is_null()) return "";
  return fmt::format(
      "Sampled: bursts of {} in each {} of a processor's references, all processors at a time; one of {:.4g} references was\n"
      "recorded, and {}. What moved between bursts is seen once, if at all, when a burst\n"
      "begins. What happens only a few times in the run, or within {} references, may be missing, and what\n"
      "takes longer than a burst (placements that need a history, data that stay in a cache) is judged by bursts alone.\n",
      count_text(sampling["burst"].get<uint64_t>()), count_text(sampling["interval"].get<uint64_t>()),
      sampling["scale"].get<double>(), counts, count_text(sampling["interval"].get<uint64_t>()));
}

std::string site_text(const json& site, bool with_function) {
  if (site.is_null()) return "?";
  const auto function = site["function"].get<std::string>();
  const auto file = site["file"].get<std::string>();
  if (file.empty()) return function.empty() ? "?" : function;
  const auto line = site["line"].get<unsigned>();
  std::string text = std::filesystem::path(file).filename().string();
  // What the compiler made of several lines is of none.
  if (line != 0) text += fmt::format(":{}", line);
  return function.empty() || (line != 0 && !with_function) ? text : fmt::format("{} ({})", text, function);
}

std::string callers_text(const json& site) {
  if (site.is_null() || !site.contains("callers")) return "";
  constexpr size_t kMost = 8;
  std::string text;
  size_t listed = 0;
  for (const json& caller : site["callers"]) {
    if (listed++ == kMost) {
      text += ", ...";
      break;
    }
    const auto file = std::filesystem::path(caller["file"].get<std::string>()).filename().string();
    const auto line = caller["line"].get<unsigned>();
    text += fmt::format("{} {}", text.empty() ? "called from" : ",", caller["function"].get<std::string>());
    if (!file.empty() && line != 0) text += fmt::format(" at {}:{}", file, line);
  }
  return text;
}

std::string user_text(const json& user, const std::string& place) {
  return user.is_number() ? fmt::format("{} {}", place, user.get<unsigned>()) : user.get<std::string>();
}

std::string group_text(const json& attribution, const json& number) {
  for (const json& group : attribution["groups"]) {
    if (group["group"] != number) continue;
    auto name = group["name"].get<std::string>();
    if (!name.empty()) return name;
    if (!group["site"].is_null()) return site_text(group["site"]);
  }
  return number == 0 ? "(no allocation)" : fmt::format("allocation {}", number.get<uint64_t>());
}

}  // namespace multigrain::trace::tool
