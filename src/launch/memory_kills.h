// Whether the kernel has ended processes because memory ran out: it does so by SIGKILL, like anybody else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace multigrain {

// How often it did so in this process's control group, or, where that does not count it, on this machine. Absent: the
// kernel does not say. `root` is for tests: what stands in front of /proc and /sys.
std::optional<uint64_t> count_memory_kills(const std::string& root = "");

}  // namespace multigrain
