// Options of the subcommands that write a trace.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "trace/format/trace_writer.h"

namespace multigrain::trace::tool {

struct OutputOptions {
  std::string path;
  WriteOptions write;
};

inline void add_output_options(CLI::App& app, OutputOptions& options) {
  app.add_option("-o,--output", options.path, "the trace to write")->required()->type_name("TRACE");
  app.add_flag("-f,--force", options.write.overwrite, "replace it if it exists");
  app.add_option("--level", options.write.level, "compression, 1 (fast) to 19 (small); default 3")
      ->type_name("N")
      ->check(CLI::Range(1, 19));
  app.add_option("--block", options.write.block_references, "references of a block, default 262144")
      ->type_name("N")
      ->check(CLI::Range(1u, TraceWriter::kMaxBlockReferences));
}

}  // namespace multigrain::trace::tool
