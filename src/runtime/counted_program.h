// Finds out whether the program counts what it executes: mgcc -fmultigrain-count puts a note (count/note.h) into each object
// file.
#pragma once

#include <string>

namespace multigrain::counting {

// Returns whether all of the program's own code is counted: the executable, as mgcc has linked it, and the libraries that
// came with it. Libraries of the system and of Multigrain have prices instead. It does not see what the program loads later.
// Call it at start-up only.
[[nodiscard]] bool program_is_counted();

// Returns why program_is_counted() is false, as a sentence without its end that names the executable or library, such as
// "./water is not counted: compile and link it with mgcc -fmultigrain-count"; empty if it is true.
[[nodiscard]] std::string why_not_counted();

}  // namespace multigrain::counting
