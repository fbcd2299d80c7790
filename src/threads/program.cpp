#include "threads/program.h"

#include "threads/abi.h"

// The definition is the program's (src/threads/pass/marker.cpp). As this library refers to it, the linker makes an
// executable export it.
extern "C" MG_THREADS_API __attribute__((weak)) const int multigrain_program_of_threads;

namespace multigrain::threads {

bool is_program_of_threads() {
  return &multigrain_program_of_threads != nullptr;
}

}  // namespace multigrain::threads
