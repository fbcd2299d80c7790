// What a command prints must arrive: a full disk, or whatever else takes the place of the reader, is a failure of the
// command, not its success.
#pragma once

#include <string_view>

namespace multigrain {

// At the end of the process, if something that was printed to standard output was lost: says so on standard error, in
// the command's name, and makes the exit status 1. Call it once, first; `command` must live as long as the process.
void fail_if_output_is_lost(const char* command);

// Prints the text to standard output. What is lost shows at the end.
void print_text(std::string_view text);

}  // namespace multigrain
