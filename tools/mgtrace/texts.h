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
// What has to be known of the figures of a sampled trace, in lines; `counts` says what was done with them. Empty: the trace has all
// references. `sampling` is that of a study's "trace".
std::string sampling_text(const nlohmann::json& sampling, const std::string& counts);
// "fs.c:20" of a SITE; with `with_function`, "fs.c:20 (count)".
std::string site_text(const nlohmann::json& site, bool with_function = false);
// "called from left at fs.c:25, main at fs.c:40" of a SITE whose callers are known; else "".
std::string callers_text(const nlohmann::json& site);
// "several", "none" or "processor 1" of a field's "readers" or "writers"; `place` is the "places" of the false sharing.
std::string user_text(const nlohmann::json& user, const std::string& place);
// Of the group with this number in an "attribution": its name, or where it was allocated.
std::string group_text(const nlohmann::json& attribution, const nlohmann::json& number);

}  // namespace multigrain::trace::tool
