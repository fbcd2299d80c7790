// Files of /proc and /sys that are about this process or its processors. In them the guest has to see itself, and
// not its host.
//
// The files are the home's: it carries out the calls about them of a thread that is away.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace multigrain::guest {

// Returns whether the path may name such a file. Most paths are told by their first characters: the caller gives at
// least this many, or all that there are.
inline constexpr size_t kTellingCharacters = 8;
bool may_be_own_file(std::string_view path);

// Returns a path of the same file that the functions below understand: with the place of the folder's descriptor before
// it, and without parts that name nothing.
std::string whole_path(int folder, const std::string& path);

// Returns the path that the guest means: its own program for /proc/self/exe and the names that are the same, else what
// was given. nullopt: there is no such file for the guest.
std::optional<std::string> real_path(const std::string& path);

// Returns what the guest reads in the file of that path, if the host has to say it (maps, cmdline, environ).
std::optional<std::string> own_file(const std::string& path);

// Returns what the link of that path says, if it is one of the guest's own program.
std::optional<std::string> own_link(const std::string& path);

// Says whether the host has entries in a folder, and whether these are descriptors or threads of this process.
enum class ProcFolder { kOther, kDescriptors, kThreads };
ProcFolder proc_folder(std::string_view path);
// Returns whether a thread of this process is none of the guest's.
bool is_host_thread(pid_t tid);
// Returns all threads of this process but the calling one. They are the host's.
std::vector<pid_t> threads_beside_this();

}  // namespace multigrain::guest
