// Finds out whether the kernel has killed processes because memory ran out. The kernel sends SIGKILL then, from which
// alone the cause cannot be seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace multigrain {

// Returns how often the kernel did so in this process's control group, or, where the group does not count it, on this
// machine. Absent: the kernel does not say. Tests set `root`, a folder that stands in front of /proc and /sys.
std::optional<uint64_t> count_memory_kills(const std::string& root = "");

}  // namespace multigrain
