// What of --timeline and --stats needs libdw, to name functions and lines, and what writes the time line's file. It is a module
// (fabric/module.h), which a run with one of these options loads when it ends.
#pragma once

#include <cstdint>
#include <memory>
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

// Names places of this process's program, for the statistics. One thread uses it.
class Places {
 public:
  struct Block {
    std::string name;    // for instance "main at grid.c:52": the line that allocates the block
    uint64_t begin = 0;  // 0: there is none at the address, or none that is known
    uint64_t size = 0;
  };
  virtual ~Places() = default;
  virtual Block block(uint64_t address) = 0;
  // Return, for instance, "relax at sor.c:17", of an instruction, or of a call that returns to the address.
  virtual std::string instruction(uint64_t address) = 0;
  virtual std::string call(uint64_t return_address) = 0;
  // Returns, for instance, "lock of water.c:31".
  virtual std::string object(uint8_t call, uint64_t handle) = 0;
};

struct Module {
  // Writes the time line to `file`: a page for browsers if its name ends in .html, else what Perfetto and Chrome read (the
  // Trace Event Format). The file appears when it is complete, or stays as it was. `own` is node 0's status. Errors: the file
  // cannot be written.
  Status (*write)(WrittenRun& run, const std::string& file, const NodeStatus& own);
  // Returns what names the places of the program; `own` is this node's status, and outlives it.
  std::unique_ptr<Places> (*places)(const NodeStatus& own);
};

inline constexpr const char* kModuleName = "timeline";
inline constexpr const char* kModuleSymbol = "multigrain_timeline_module";

}  // namespace multigrain::timeline

// Returns the module.
extern "C" const multigrain::timeline::Module* multigrain_timeline_module();
