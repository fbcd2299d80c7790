// What a run does with each access of a program that reports them (mgcc -fmultigrain-count=memory) under --protocol placement: it
// is recorded (--record).
#pragma once

#include "base/config.h"
#include "base/error.h"
#include "memory/region.h"
#include "record/recorder.h"

namespace multigrain {

// Makes this process's recorder, if mgrun has said where to record (MULTIGRAIN_RECORD_FILE, the name of its file), and has accesses
// reported to it. Errors: the program does not report its accesses; Recorder::create()'s. Start-up only, before
// protocols are made.
Status start_recording(const Config& config, const Region& region);

// Returns that recorder, to whom the protocol tells what the placement does; nullptr if the run is not recorded, and in the child of a fork(), which has no shared memory. May be
// called by any thread, also in a signal handler.
record::Recorder* recorder_of_run();

}  // namespace multigrain
