// A process of the guest on a node that is not the home: what its host there does. To the guest it is the process that was
// forked; its shadow process at home (placement.h) has its number, descriptors, signals and children, and makes its
// calls. Its memory is here. It has one thread.
//
// What it does itself: memory without a file, futexes, its processor's time. What neither it nor its shadow can do
// alone, it does at home: it goes there with its memory and its registers (kTakeOver), and makes the call there. These
// are threads, forks, execve(), mappings of files and segments, and calls of which the home needs the guest's memory.
// It does not come back.
//
//  (P1) Areas of files do not change while the process is away, so its shadow's mappings of them stay right.
//  (P2) The shadow's memory without a file is nobody's meanwhile.
//  (P3) Of the shadow and the process, neither outlives the other: each ends when their connection does.
#pragma once

#include <atomic>

#include "base/file_descriptor.h"

namespace multigrain::guest {

// Runs the calling process, which a placer has forked, as the process that comes over the connection. `is_ending` becomes
// true, and the process gets kKick, if the node ends.
[[noreturn]] void run_placed_process(FileDescriptor connection, const std::atomic<bool>& is_ending);

}  // namespace multigrain::guest
