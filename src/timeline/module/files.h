// The two forms in which a time line is written.
#pragma once

#include <string>

#include "timeline/module.h"
#include "timeline/module/run_names.h"

namespace multigrain::timeline {

// Returns the run in the Trace Event Format, which Perfetto and Chrome open: a process for each node; for each track a thread
// with the categories, and one with faults, calls and handlers; an arrow for each message of which both ends are kept.
// The events of each track are in order of their times.
std::string trace_events(const WrittenRun& run, RunNames& names);

// Returns a page that shows the run in a browser without a network, of less than 2 MB: of the events those that take longest.
std::string page(const WrittenRun& run, RunNames& names);

}  // namespace multigrain::timeline
