// What the system says a thread of any process does.
#pragma once

#include <cstdint>

namespace multigrain {

struct ThreadState {
  // The letter that /proc has for the state ('R' runs, 'S' sleeps, 'D' waits for a device, 'T' is stopped, see proc(5)), or 0 if
  // it cannot be found out.
  char letter = 0;
  uint64_t switches = 0;  // how often the thread has given up its core by itself, to sleep
};

// Async-signal-safe; leaves errno as it is.
ThreadState thread_state(uint32_t process, uint32_t thread);

}  // namespace multigrain
