// Whether the program was compiled with -fmultigrain-threads.
#pragma once

namespace multigrain::threads {

// Returns whether some part of the program that was there when it started, the executable or a shared library, was.
// Async-signal-safe.
[[nodiscard]] bool is_program_of_threads();

}  // namespace multigrain::threads
