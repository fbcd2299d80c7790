// How mgtrace's tables call what a study's JSON (src/trace/analysis/study.h) names.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace multigrain::trace::tool {

// "64", "4 KiB", "2 MiB".
std::string bytes_text(uint64_t bytes);
// "1,234,567".
std::string count_text(uint64_t count);
// "3.21 us", with three digits that matter.
std::string time_text(double nanoseconds);
// "fs.c:20" of a SITE; with `with_function`, "fs.c:20 (count)".
std::string site_text(const nlohmann::json& site, bool with_function = false);
// "several", "none" or "processor 1" of a field's "readers" or "writers"; `place` is the "places" of the false sharing.
std::string user_text(const nlohmann::json& user, const std::string& place);
// Of the group with this number in an "attribution": its name, or where it was allocated.
std::string group_text(const nlohmann::json& attribution, const nlohmann::json& number);

}  // namespace multigrain::trace::tool
