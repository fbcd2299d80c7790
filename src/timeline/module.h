// What of --timeline needs libdw, to name functions and lines, and what writes the file. It is a module (fabric/module.h),
// which a run with --timeline loads when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "status/node_status.h"
#include "timeline/timeline.h"

namespace multigrain::timeline {

// A track as it is written; its times are in nanoseconds since the run began, by node 0's clock.
struct WrittenTrack {
  unsigned node = 0;
  Owner owner = Owner::kNone;
  uint32_t number = 0;
  uint64_t least = 0;   // the shortest interval that it takes
  uint64_t one_in = 1;  // of those, it has one in so many
  uint64_t left_out = 0;
  std::vector<Event> events;
};

struct WrittenRun {
  std::string program;
  unsigned nodes = 1;
  unsigned processors_per_node = 1;
  std::string protocol;
  std::string clock;
  std::string network;
  uint64_t threads_without_track = 0;
  std::vector<WrittenTrack> tracks;
  // Returns the name of a message's type, or nullptr.
  const char* (*message_name)(uint8_t type) = nullptr;
};

struct Module {
  // Writes the time line to `file`: a page for browsers if its name ends in .html, else what Perfetto and Chrome read (the
  // Trace Event Format). The file appears when it is complete, or stays as it was. `own` is node 0's status. Errors: the file
  // cannot be written.
  Status (*write)(WrittenRun& run, const std::string& file, const NodeStatus& own);
};

inline constexpr const char* kModuleName = "timeline";
inline constexpr const char* kModuleSymbol = "multigrain_timeline_module";

}  // namespace multigrain::timeline

// Returns the module.
extern "C" const multigrain::timeline::Module* multigrain_timeline_module();
