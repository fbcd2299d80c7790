// What compiled access checks cost the compiler, and how much larger they make the code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain::bench {

struct CompileRow {
  std::string name;
  double seconds = 0, plain_seconds = 0;  // the shortest compilation, with checks and without
  uint64_t bytes = 0, plain_bytes = 0;    // of code, in sections that are executed
};

// Compiles each file as often as `rounds` says, with `options`, by mgcc or mg++ beside mgbench (`tools`), with checks and
// without, in turns. Errors: a file that does not compile, no temporary folder.
Result<std::vector<CompileRow>> measure_compilation(const std::filesystem::path& tools,
                                                    const std::vector<std::string>& files,
                                                    const std::vector<std::string>& options, unsigned rounds);

}  // namespace multigrain::bench
