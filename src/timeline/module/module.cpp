#include "timeline/module.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/output_file.h"
#include "timeline/module/files.h"

namespace multigrain::timeline {
namespace {

Status write(WrittenRun& run, const std::string& file, const NodeStatus& own) {
  // Rows are in the order of nodes, processors before the threads of the runtime; a row's events in the order of their times,
  // of two that begin together first the one that has the other inside.
  std::ranges::sort(run.tracks, {},
                    [](const WrittenTrack& track) { return std::tuple(track.node, track.owner, track.number); });
  // Threads of the runtime that had nothing to do would be empty rows.
  std::erase_if(run.tracks,
                [](const WrittenTrack& track) { return track.owner == Owner::kThread && track.events.empty(); });
  for (WrittenTrack& track : run.tracks)
    std::ranges::sort(track.events, {}, [](const Event& event) { return std::tuple(event.begin, ~event.duration); });
  RunNames names(own);
  return write_output_file(file, file.ends_with(".html") ? page(run, names) : trace_events(run, names));
}

constexpr Module kModule{.write = &write};

}  // namespace
}  // namespace multigrain::timeline

extern "C" [[gnu::visibility("default")]] const multigrain::timeline::Module* multigrain_timeline_module() {
  return &multigrain::timeline::kModule;
}
