// A program that is run as it is (mgrun --binary), for the launcher: the host that is started in its place on every
// node, and how mgrun ends as the program did.
#pragma once

#include <string>
#include <vector>

#include "launch/command_line.h"

namespace multigrain {

// Returns the executable of this installation that hosts a program on one node, or on several. Error: it is missing.
Result<std::string> find_host(bool is_of_several_nodes);
// Returns the words with which the host is started for the program at `path`, with the user's options and words.
std::vector<std::string> words_for_host(const LaunchOptions& options, const std::string& path);

// Returns the exit status that a shell gives to a program that find_program() has not found.
int status_of_missing(const std::string& name);

// Tells the user if there are no statistics because the program was killed. `signal` is the signal that ended the
// program; 0: none did.
void tell_lost_statistics(const Config& config, int signal);

// Ends this process by the signal that ended the program, so that the process that waits for mgrun sees that signal.
// This process leaves no core; the program has left its own. Returns if the signal does not end a process after all.
void die_of(int number);

}  // namespace multigrain
