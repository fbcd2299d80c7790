// What libmultigrain-openmp.so asks of the runtime beyond the public interface: functions that may be called at any time,
// also before main(), from constructors, and in a child that the program has forked.
#pragma once

extern "C" {

// Returns 1 if the node runs and the interface may be called: from the start of main() on, and not in a forked child.
// Async-signal-safe.
__attribute__((visibility("default"))) int __multigrain_is_running(void);

// Returns how many processors the run has, or, before main(), will have as far as mgrun has said; 1 in a forked child.
__attribute__((visibility("default"))) unsigned __multigrain_expected_processors(void);
}
