// Composes the files of /proc and /sys that say how many processors there are, as a guest on several nodes has to read
// them: each node is a package whose processors are its cores, and all share one memory (NUMA node 0).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace multigrain::guest {

struct Processors {
  unsigned all = 0;
  unsigned of_a_node = 0;
};

// A set of processors has one bit for each, the lowest first.
using ProcessorMask = std::vector<uint64_t>;
ProcessorMask mask_of_all(unsigned processors);
bool has(const ProcessorMask& mask, unsigned processor);
// These write such a set of so many processors as the kernel does: "ff" and "0-7".
std::string mask_text(const ProcessorMask& mask, unsigned processors);
std::string list_text(const ProcessorMask& mask, unsigned processors);

// Returns what that file says; nullopt if the host need not say it. `real` returns the content of a file
// of this machine.
std::optional<std::string> processor_file(std::string_view path, const Processors& processors,
                                          std::string (*real)(const std::string&));
// Returns the path of a file of a processor that this machine has, in the place of one of a processor that only the
// guest has; empty if there is no such file. Other paths stay.
std::string processor_path(const std::string& path, const Processors& processors);

}  // namespace multigrain::guest
