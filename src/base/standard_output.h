// The output of a command must arrive: if the disk is full, or the output cannot be written for another reason, the
// command fails.
#pragma once

#include <string_view>

namespace multigrain {

// If something that was printed to standard output was lost, says so on standard error at the end of the process, in
// the command's name, and makes the exit status 1. Call it once, first; `command` must live as long as the process.
void fail_if_output_is_lost(const char* command);

// Prints the text to standard output. Text that is lost shows at the end.
void print_text(std::string_view text);

}  // namespace multigrain
