// A program as it is (mgrun --binary), for the launcher: what is started in its place on every node, and how mgrun ends as
// the program did.
#pragma once

#include <string>
#include <vector>

#include "launch/command_line.h"

namespace multigrain {

// The executable that hosts a program on one node, or on several, in this installation. Error: it is not there.
Result<std::string> find_host(bool is_of_several_nodes);
// The words with which it is started for the program, which is at `path`, with the user's options and words.
std::vector<std::string> words_for_host(const LaunchOptions& options, const std::string& path);

// The status of a program that find_program() has not found, as a shell's.
int status_of_missing(const std::string& name);

// Says so if there are no statistics because the program was killed. `signal`: which it ended by; 0: none.
void tell_lost_statistics(const Config& config, int signal);

// Ends this process by the signal that ended the program, so that whoever waits for it sees what there is to see. The core,
// if any, is the program's. Returns if the signal does not end a process after all.
void die_of(int number);

}  // namespace multigrain
